"""Frozen values as plain JSON, for comparisons and for reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from nbagent.types.config import Request
from nbagent.types.events import Event
from nbagent.types.frozen import thaw

__all__ = ("as_json",)


def as_json(value: Any) -> Any:
    """An event (the object of its file line), a message, a request, a header, or a sequence of them as plain JSON."""
    if isinstance(value, Event | Request):
        return thaw(value.to_json())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_json(each) for each in cast("Sequence[Any]", value)]
    return thaw(value)
