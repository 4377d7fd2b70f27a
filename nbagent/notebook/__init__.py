"""Jupyter: the magics, the agent a notebook holds, and the views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbagent.notebook.notebook_agent import NotebookAgent
    from nbagent.notebook.reply import Reply, TurnError
    from nbagent.notebook.run import Run

__all__ = ("NotebookAgent", "Reply", "Run", "TurnError")

_HOMES = {
    "NotebookAgent": "nbagent.notebook.notebook_agent",
    "Reply": "nbagent.notebook.reply",
    "Run": "nbagent.notebook.run",
    "TurnError": "nbagent.notebook.reply",
}


def __getattr__(name: str) -> Any:
    # Loading the extension imports this package; what agents need comes with the first agent.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
