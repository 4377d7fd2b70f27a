"""Tool calls out of deltas: which delta belongs to which call, whatever a server leaves out or repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from nbagent.llm.adapters.surrogates import PieceJoiner
from nbagent.types.stream import StreamChunk, tool_call_delta

__all__ = ("ChatCalls",)

_KNOWN = frozenset({"index", "id", "type", "function", "name", "arguments"})


@dataclass(slots=True)
class _Call:
    block: int
    index: int | None
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    joiner: PieceJoiner = field(default_factory=PieceJoiner)
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def complete(self) -> bool:
        """Whether the arguments are a whole JSON object: nothing more can belong to them."""
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(orjson.loads("".join(self.pieces)), dict)
        except orjson.JSONDecodeError:
            return False


class ChatCalls:
    """The calls of one answer."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    @property
    def count(self) -> int:
        """How many calls there are."""
        return len(self._calls)

    @property
    def complete(self) -> bool:
        """Whether there are calls and each has whole arguments."""
        return bool(self._calls) and all(call.complete for call in self._calls)

    @property
    def extras(self) -> dict[int, dict[str, Any]]:
        """What the server attached to calls, by block: opaque, and wanted back with them."""
        return {call.block: call.extra for call in self._calls if call.extra}

    def take(self, delta: dict[str, Any], next_block: Callable[[], int]) -> list[StreamChunk]:
        """The chunks of one delta.

        Args:
            delta: `{index?, id?, function?: {name?, arguments?}}`, any of it missing, blank or of another type.
            next_block: Answers the index of a new block.
        """
        function: Any = delta.get("function")
        fields = cast("dict[str, Any]", function) if isinstance(function, dict) else delta
        call_id, name = _word(delta.get("id")), _word(fields.get("name"))
        arguments = _arguments(fields.get("arguments"))
        index = _index(delta.get("index"))
        extra = {key: value for key, value in delta.items() if key not in _KNOWN and _is_opaque(value)}
        if not (call_id or name or arguments):
            call = self._at(index)
            if call is not None:
                call.extra.update(extra)
            return []
        call = self._find(call_id, name, arguments, index)
        if call is None:
            call = _Call(next_block(), index)
            self._calls.append(call)
        elif (call_id or name) and arguments and call.complete and arguments == "".join(call.pieces):
            return []  # Some servers say the whole call once more at its end.
        new_id = call_id if call_id and not call.id else None
        new_name = name if name and not call.name else None
        call.id, call.name = call.id or call_id, call.name or name
        text = call.joiner.feed(arguments)
        if text:
            call.pieces.append(text)
        call.extra.update(extra)
        return [tool_call_delta(call.block, text, id=new_id, name=new_name)]

    def close(self) -> list[StreamChunk]:
        """The chunks that the end of the answer adds."""
        rests = [(call, call.joiner.flush()) for call in self._calls]
        return [tool_call_delta(call.block, rest) for call, rest in rests if rest]

    def _at(self, index: int | None) -> _Call | None:
        """The call that is being written, under an index if one is given."""
        return next((call for call in reversed(self._calls) if index is None or call.index in {None, index}), None)

    def _find(self, call_id: str, name: str, arguments: str, index: int | None) -> _Call | None:
        """The call that a delta continues: the first thing that says something decides (id, then index, then order)."""
        if call_id:
            for call in self._calls:
                if call.id == call_id and (index is None or call.index in {None, index}):
                    return None if index is None and name and arguments and call.complete else call
        call = self._at(index)
        if call is None:
            return None
        if call_id and call.id:
            # Another id is another call, unless the server makes up a new one for every piece of the same call.
            return None if name or call.complete else call
        if name and call.name and (call.complete or (index is None and name != call.name)):
            return None
        return call


def _is_opaque(value: Any) -> bool:
    return type(value) in {dict, list, str} and bool(value)


def _word(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value.strip() else ""


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**31:
        return None
    return int(value)


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        try:
            return orjson.dumps(value).decode()
        except (orjson.JSONEncodeError, UnicodeDecodeError):
            return ""
    return ""
