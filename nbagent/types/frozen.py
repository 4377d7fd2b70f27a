"""Frozen JSON: what events, messages and requests are made of.

A value that enters the log is snapshotted once by `freeze` and is immutable from then on. Frozen containers are real
`dict` and `list` subclasses, so that they compare, iterate and encode like the JSON they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn, Self, cast

__all__ = ("MAX_DEPTH", "FrozenDict", "FrozenList", "NotJsonError", "Record", "freeze", "thaw")

MAX_DEPTH = 200
"""Levels of nesting that a stored value may have."""

_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1


class NotJsonError(ValueError):
    """The value is not lossless JSON; the message names the place and the fault."""


class FrozenDict(dict[str, Any]):
    """A JSON object that cannot change."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is frozen")

    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]
    clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, _memo: Any) -> FrozenDict:
        return self

    def __reduce__(self) -> Any:
        return (type(self), (dict(self),))


class FrozenList(list[Any]):
    """A JSON array that cannot change."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("FrozenList is frozen")

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # type: ignore[assignment]
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse  # type: ignore[assignment]

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, _memo: Any) -> FrozenList:
        return self

    def __reduce__(self) -> Any:
        return (type(self), (list(self),))


class Record(FrozenDict):
    """A frozen JSON object with named access to its fields; subclasses say which fields it has."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Self:
        """`value` as this record; an instance is returned as it is.

        Raises:
            NotJsonError: It is not lossless JSON.
        """
        if type(value) is cls:
            return value
        return cls(freeze(value if isinstance(value, dict) else dict(value)))

    def replace(self, **changes: Any) -> Self:
        """A copy with fields changed; a field given as `None` is left out."""
        merged = {**self, **changes}
        return type(self)(freeze({key: value for key, value in merged.items() if value is not None}))


def freeze(value: Any) -> Any:
    """A detached, deeply frozen snapshot of a JSON value.

    Accepts `None`, `bool`, `int` within 64 bits, finite `float` other than -0.0, `str` without lone surrogates, `list`
    and `dict` with `str` keys, nested at most `MAX_DEPTH` levels. Already frozen parts are shared, not copied.

    Raises:
        NotJsonError: Anything else.
    """
    return _freeze(value, 0)


def _freeze(value: Any, depth: int) -> Any:
    kind = cast("type[Any]", type(value))
    if kind is str:
        _check_text(value)
        return value
    if value is None or kind is bool:
        return value
    if kind is int:
        if not _MIN_INT <= value <= _MAX_INT:
            raise NotJsonError(f"integer {value} does not fit in 64 bits")
        return value
    if isinstance(value, FrozenDict | FrozenList):
        if depth and depth + _height(cast("Any", value)) > MAX_DEPTH:
            raise NotJsonError(f"nested deeper than {MAX_DEPTH} levels")
        return value
    if kind is dict:
        if depth >= MAX_DEPTH:
            raise NotJsonError(f"nested deeper than {MAX_DEPTH} levels")
        frozen: dict[str, Any] = {}
        for key, item in value.items():
            if type(key) is not str:
                raise NotJsonError(f"object key {key!r} is not a string")
            _check_text(key)
            frozen[key] = _freeze(item, depth + 1)
        return FrozenDict(frozen)
    if kind is list:
        if depth >= MAX_DEPTH:
            raise NotJsonError(f"nested deeper than {MAX_DEPTH} levels")
        return FrozenList([_freeze(item, depth + 1) for item in value])
    if kind is float:
        if not math.isfinite(value) or (value == 0.0 and math.copysign(1.0, value) < 0):
            raise NotJsonError(f"number {value!r} has no JSON form")
        return value
    raise NotJsonError(f"{kind.__name__} is not a JSON value")


def _height(value: Any) -> int:
    """Levels of nesting of a frozen value."""
    items = cast("Any", value).values() if isinstance(value, dict) else value
    below = 0
    for item in items:
        if isinstance(item, dict | list):
            below = max(below, _height(item))
    return below + 1


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotJsonError("text holds a lone surrogate") from None


def thaw(value: Any) -> Any:
    """A plain, mutable copy of a frozen value; a tuple becomes a list."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [thaw(item) for item in cast("list[Any]", value)]
    return value
