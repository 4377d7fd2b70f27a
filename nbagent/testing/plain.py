"""Frozen values as plain JSON, for comparisons and for reading."""

from __future__ import annotations

from typing import Any

from nbagent.types.config import Request
from nbagent.types.events import Event
from nbagent.types.frozen import thaw

__all__ = ("as_json",)


def as_json(value: Any) -> Any:
    """An event (the object of its file line), a message, a request, a header or any frozen value as plain JSON."""
    if isinstance(value, Event | Request):
        value = value.to_json()
    return thaw(value)
