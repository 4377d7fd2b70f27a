"""The shell and kernel that this code runs in, if any, and whether somebody watches."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from nbagent.errors import InputError

__all__ = ("current_kernel", "current_shell", "hears_page", "is_live", "namespace", "publish", "say")


def current_shell() -> Any:
    """The running IPython shell, or none. Does not import IPython."""
    module = sys.modules.get("IPython.core.getipython")
    return module.get_ipython() if module is not None else None


def current_kernel() -> Any:
    """The kernel of the running shell, or none."""
    return getattr(current_shell(), "kernel", None)


def namespace() -> dict[str, Any]:
    """Where the user's names are: the shell's namespace, or the main module of a script."""
    shell = current_shell()
    return shell.user_ns if shell is not None else vars(sys.modules["__main__"])


def is_live() -> bool:
    """Whether a front end shows what the running cell displays while it runs.

    Front ends say which cell they run; programs that execute notebooks do not. `NBAGENT_LIVE` (0 or 1) overrides.

    Raises:
        InputError: `INVALID_OPTION`, `NBAGENT_LIVE` is something else.
    """
    kernel = current_kernel()
    if kernel is None or _is_captured():
        return False
    wish = os.environ.get("NBAGENT_LIVE", "")
    if wish in {"0", "1"}:
        return wish == "1"
    if wish:
        raise InputError(f'NBAGENT_LIVE must be 0 or 1, got "{wish}"', code="INVALID_OPTION")
    parent: Mapping[str, Any] = kernel.get_parent() or {}
    return bool(parent.get("metadata", {}).get("cellId"))


def hears_page(*, background: bool) -> bool:
    """Whether a click in the page reaches this kernel while the turn runs."""
    # Before version 7 messages of the page wait for the running cell; a background turn leaves none running.
    from importlib.metadata import version

    return background or int(version("ipykernel").partition(".")[0]) >= 7


def say(text: str) -> None:
    """Write a line under the cell."""
    sys.stdout.write(f"{text}\n")


def publish(bundle: Mapping[str, str]) -> None:
    """Display a static output once."""
    from IPython.display import display  # pyright: ignore[reportUnknownVariableType]

    display(dict(bundle), raw=True)


def _is_captured() -> bool:
    # Under %%capture an output is kept and shown later: nothing can be updated in it.
    module = sys.modules.get("IPython.core.displaypub")
    publisher = getattr(current_shell(), "display_pub", None)
    return module is not None and isinstance(publisher, module.CapturingDisplayPublisher)
