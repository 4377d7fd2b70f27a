"""The kit that agents are tested with: a scripted model, a log checker, requests rebuilt from a log, and byte servers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbagent.session import check_log
    from nbagent.testing.clock import VirtualClock
    from nbagent.testing.log import LogBuilder
    from nbagent.testing.plain import as_json
    from nbagent.testing.reconstruct import sent_requests
    from nbagent.testing.scripted import ScriptedAdapter, fail, hang, reasoning, text, tool_calls
    from nbagent.testing.serve import read_reply, serve_bytes

__all__ = (
    "LogBuilder",
    "ScriptedAdapter",
    "VirtualClock",
    "as_json",
    "check_log",
    "fail",
    "hang",
    "read_reply",
    "reasoning",
    "sent_requests",
    "serve_bytes",
    "text",
    "tool_calls",
)

_HOMES = {
    "LogBuilder": "nbagent.testing.log",
    "VirtualClock": "nbagent.testing.clock",
    "ScriptedAdapter": "nbagent.testing.scripted",
    "as_json": "nbagent.testing.plain",
    "check_log": "nbagent.session",
    "fail": "nbagent.testing.scripted",
    "hang": "nbagent.testing.scripted",
    "read_reply": "nbagent.testing.serve",
    "reasoning": "nbagent.testing.scripted",
    "sent_requests": "nbagent.testing.reconstruct",
    "serve_bytes": "nbagent.testing.serve",
    "text": "nbagent.testing.scripted",
    "tool_calls": "nbagent.testing.scripted",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
