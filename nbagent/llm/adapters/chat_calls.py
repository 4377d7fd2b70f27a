"""Tool calls out of deltas: which delta belongs to which call, whatever a server leaves out or repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from nbagent.types.stream import StreamChunk, tool_call_delta

__all__ = ("ChatCalls",)


@dataclass(slots=True)
class _Call:
    block: int
    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""

    @property
    def complete(self) -> bool:
        try:
            return isinstance(orjson.loads(self.arguments), dict)
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

    def take(self, delta: dict[str, Any], next_block: Callable[[], int]) -> list[StreamChunk]:
        """The chunks of one delta.

        Args:
            delta: `{index?, id?, function?: {name?, arguments?}}`, any of it missing, blank or of another type.
            next_block: Answers the index of a new block.
        """
        function: Any = delta.get("function")
        if not isinstance(function, dict):
            function = delta
        call_id = _word(delta.get("id"))
        name = _word(function.get("name"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        arguments = _arguments(function.get("arguments"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        index = delta.get("index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else None
        if not (call_id or name or arguments):
            return []
        call = self._find(call_id, name, arguments, index)
        if call is None:
            call = _Call(next_block(), index)
            self._calls.append(call)
        new_id = call_id if call_id and not call.id else None
        new_name = name if name and not call.name else None
        call.id, call.name = call.id or call_id, call.name or name
        call.arguments += arguments
        return [tool_call_delta(call.block, arguments, id=new_id, name=new_name)]

    def _find(self, call_id: str, name: str, arguments: str, index: int | None) -> _Call | None:
        """The call that a delta continues: the first thing that says something decides (id, then index, then order)."""
        if call_id:
            for call in self._calls:
                if call.id == call_id and (index is None or call.index in {None, index}):
                    return call
        placed = [call for call in self._calls if index is None or call.index == index]
        call = placed[-1] if placed else None
        if call is None:
            return None
        if call_id and call.id:
            return None
        # Without an id, a new name together with arguments after a complete call begins another one.
        starts_anew = bool(name and call.name and arguments and call.complete)
        return None if starts_anew else call


def _word(value: Any) -> str:
    return value if isinstance(value, str) and value.strip() else ""


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode()
    return ""
