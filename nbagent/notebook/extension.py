"""`%load_ext nbagent`: the magics, the transformer and completion come and go; agents stay."""

from __future__ import annotations

from typing import Any

from nbagent.notebook import completion, magics, transformer

__all__ = ("load_ipython_extension", "unload_ipython_extension")


def load_ipython_extension(shell: Any) -> None:
    """Add `%agent` and `%%agent` to a shell. Loading twice is like loading once."""
    magics.register(shell)
    transformer.install(shell)
    completion.install(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics out of a shell. Agents and their turns are left alone, so that a reload keeps them."""
    completion.remove(shell)
    transformer.remove(shell)
    magics.unregister(shell)
