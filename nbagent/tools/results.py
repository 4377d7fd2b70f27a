"""What a body returned, as content that a model reads: text within a bound, values as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import orjson

from nbagent.types.frozen import FrozenDict, FrozenList, freeze
from nbagent.types.messages import text_block

__all__ = ("TEXT_BOUND", "content_of", "cut")

TEXT_BOUND = 32 * 1024
"""Characters of a result that a model gets to read."""


def content_of(value: Any) -> tuple[FrozenList, FrozenDict | None]:
    """Content blocks and meta of a returned value."""
    text = text_of_value(value)
    shown = cut(text)
    meta = FrozenDict(cutFrom=len(text)) if shown is not text else None
    return freeze([text_block(shown)]), meta


def text_of_value(value: Any) -> str:
    """The text that stands for a returned value."""
    if value is None:
        return "(no output)"
    if isinstance(value, str):
        return _readable(value) or "(no output)"
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, orjson.JSONEncodeError):
        return _readable(str(value))


def cut(text: str, bound: int = TEXT_BOUND) -> str:
    """`text` within a bound, its middle left out and said to be."""
    if len(text) <= bound:
        return text
    head, tail = bound * 2 // 3, bound // 3
    left_out = len(text) - head - tail
    return f"{text[:head]}\n\n[... {left_out} characters left out ...]\n\n{text[-tail:]}"


def _readable(text: str) -> str:
    return text if text.isascii() else text.encode(errors="replace").decode()


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, set | frozenset | tuple):
        return list(cast("set[Any]", value))
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    return str(value)
