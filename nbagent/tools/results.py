"""What a body returned, as text that a model reads: values as JSON, everything within a bound."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import itertools
import json
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from typing import Any, cast

__all__ = ("TEXT_BOUND", "cut", "text_of_value", "without_scalar_box")

TEXT_BOUND = 32 * 1024
"""Bytes of a result, in UTF-8, that a model gets to read."""
_ITEMS = 10_000
"""Items that are taken from an iterator or an array."""
NO_OUTPUT = "(no output)"


def text_of_value(value: Any) -> str:
    """The text that stands for a returned value, of any length.

    A text is itself, nothing is `(no output)`, data (numbers, containers, dataclasses, pydantic models) is compact
    JSON, anything else is what `str` makes of it.
    """
    if value is None:
        return NO_OUTPUT
    value = without_scalar_box(value)
    if isinstance(value, enum.Enum):
        value = value.value
    if not isinstance(value, str):
        value = _json(value) if _is_data(value) else _shown(value)
    return (value if value.isascii() else value.encode(errors="replace").decode()) or NO_OUTPUT


def cut(text: str, bound: int = TEXT_BOUND) -> str:
    """`text` within a bound, its middle left out and said to be.

    Args:
        text: Any text.
        bound: Bytes in UTF-8 that are kept.
    """
    if len(text) * 4 <= bound:
        return text
    data = text.encode()
    if len(data) <= bound:
        return text
    tail = bound // 3
    first = data[: bound - tail].decode(errors="ignore")
    last = data[len(data) - tail :].decode(errors="ignore")
    left_out = len(text) - len(first) - len(last)
    return f"{first}\n\n[... {left_out} characters left out ...]\n\n{last}"


def without_scalar_box(value: Any) -> Any:
    """A number that an array library has wrapped as the plain number; other values as they are."""
    if getattr(value, "shape", None) == () and hasattr(value, "dtype") and hasattr(value, "item"):
        return value.item()
    return value


def _is_data(value: Any) -> bool:
    return (
        isinstance(value, int | float | list | tuple | Mapping | AbstractSet | Iterator | range | ValuesView)
        or _dump_of(value) is not None
        or _is_record(value)
        or hasattr(value, "tolist")
    )


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError):
        # Keys that are no text, a cycle, a number that is too long: not JSON after all.
        return _shown(value)


def _plain(value: Any) -> Any:
    """One step from a value that is no JSON towards one that is."""
    unboxed = without_scalar_box(value)
    if unboxed is not value:
        return unboxed
    dump = _dump_of(value)
    if dump is not None:
        return dump(mode="json")
    if _is_record(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, AbstractSet) and not isinstance(value, KeysView | ItemsView):
        # A set has no order of its own; one result must not read differently from run to run.
        return sorted(cast("AbstractSet[Any]", value), key=repr)
    if isinstance(value, Iterator | range | KeysView | ItemsView | ValuesView):
        return list(itertools.islice(cast("Iterator[Any]", value), _ITEMS))
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if hasattr(value, "tolist") and getattr(value, "size", 0) <= _ITEMS:
        return value.tolist()
    return _shown(value)


def _dump_of(value: Any) -> Callable[..., Any] | None:
    # Asked of the type, so that an object that has any attribute one asks for is not taken for a model.
    kind = cast("Any", type(value))
    return value.model_dump if callable(getattr(kind, "model_dump", None)) else None


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _shown(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # an object that cannot show itself is no reason to fail a call that has succeeded
        return f"<{type(value).__name__} that cannot be shown>"
