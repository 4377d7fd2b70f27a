"""Drive LLM agents from a Jupyter notebook.

`%load_ext nbagent` adds the `%agent` magics. In Python, `nbagent.create(...)` makes an agent in a notebook or script, and
`nbagent.Runtime` is the same loop for any asyncio or trio program. Names load when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbagent.agent import CompactionPolicy, Runtime, current_agent, require_agent
    from nbagent.cancellation import CancelSignal
    from nbagent.notebook.api import acreate, create
    from nbagent.notebook.extension import load_ipython_extension, unload_ipython_extension
    from nbagent.tools import tool
    from nbagent.types.messages import user_message

__all__ = (
    "CancelSignal",
    "CompactionPolicy",
    "Runtime",
    "acreate",
    "create",
    "current_agent",
    "load_ipython_extension",
    "require_agent",
    "tool",
    "unload_ipython_extension",
    "user_message",
)

__version__ = "0.1.0"

_HOMES = {
    "CancelSignal": "nbagent.cancellation",
    "CompactionPolicy": "nbagent.agent",
    "Runtime": "nbagent.agent",
    "acreate": "nbagent.notebook.api",
    "create": "nbagent.notebook.api",
    "current_agent": "nbagent.agent",
    "load_ipython_extension": "nbagent.notebook.extension",
    "require_agent": "nbagent.agent",
    "tool": "nbagent.tools",
    "unload_ipython_extension": "nbagent.notebook.extension",
    "user_message": "nbagent.types.messages",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
