"""The surface: the events whose messages the model sees, in the order in which it sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from nbagent.errors import SessionError
from nbagent.types.events import SURFACE_TYPES, Event
from nbagent.types.frozen import FrozenDict

__all__ = ("Surface",)


class Surface:
    """The fold of surface operations. `check` refuses a transition without touching anything, `commit` makes it.

    Attributes:
        seqs: The current nodes, in surface order.
        system: Those of them that hold the system prompt.
        replacements: How many positional replacements were committed.
    """

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.system: list[int] = []
        self.replacements = 0

    def check(self, event: Event, events: Sequence[Event]) -> None:
        """Raise unless `event` may follow `events`.

        Raises:
            SessionError: `SURFACE_REFUSED`.
        """
        operation, sources = event.surface_op, event.source_event_seqs
        if event.type not in SURFACE_TYPES:
            if operation is not None or sources is not None:
                raise _refused(f'session event "{event.type}" is not surface-eligible and cannot carry surfaceOp')
            return
        if operation is None:
            raise _refused(f'session event "{event.type}" is surface-eligible and requires a surfaceOp marker')
        if sources is not None:
            _check_sources(event, sources)
        if operation == "append":
            return
        start, end = self._range(operation)
        shadowed = self.seqs[start : end + 1]
        cited = frozenset(sources or ())
        missing = [seq for seq in shadowed if seq not in cited]
        if missing:
            listed = ", ".join(str(seq) for seq in missing)
            raise _refused(
                f"surface replace: sourceEventSeqs must include every shadowed surface node; missing {listed}"
            )
        if event.type == "tool/result":
            _check_result_rewrite(event, [events[seq] for seq in shadowed])
        rewrites_head = event.type == "system/message" and end == 0
        if start == 0 and events[self.seqs[0]].type == "system/message" and not rewrites_head:
            raise _refused(
                "surface replace: node 0 holds the system prompt and may be rewritten only by a system/message "
                "over exactly that node"
            )

    def commit(self, event: Event, events: Sequence[Event]) -> None:
        """Make the transition that `check` accepted."""
        operation = event.surface_op
        if operation is None:
            return
        if operation == "append":
            self.seqs.append(event.seq)
            if event.type == "system/message":
                self.system.append(event.seq)
            return
        start, end = self._range(operation)
        shadowed = frozenset(self.seqs[start : end + 1])
        self.seqs[start : end + 1] = [event.seq]
        if event.type == "system/message" or not shadowed.isdisjoint(self.system):
            self.system = [seq for seq in self.seqs if events[seq].type == "system/message"]
        self.replacements += 1

    def _range(self, operation: Any) -> tuple[int, int]:
        if not isinstance(operation, FrozenDict) or operation.get("op") != "replace":
            raise _refused(f"unknown surface operation {operation!r}")
        first, last = operation.get("startSeq"), operation.get("endSeq")
        start, end = self._index(first, "start"), self._index(last, "end")
        if start > end:
            raise _refused(f"surface replace: start seq {first} (index {start}) is after end seq {last} (index {end})")
        return start, end

    def _index(self, seq: Any, which: str) -> int:
        if type(seq) is int:
            try:
                return self.seqs.index(seq)
            except ValueError:
                pass
        raise _refused(f"surface replace: {which} seq {seq} not found in surface")


def _check_sources(event: Event, sources: Any) -> None:
    if not isinstance(sources, list):
        raise _refused("sourceEventSeqs must be a list")
    _check_source_list(event, cast("list[Any]", sources))


def _check_source_list(event: Event, sources: Sequence[Any]) -> None:
    if not sources:
        raise _refused("sourceEventSeqs must not be empty")
    if any(type(seq) is not int or seq < 0 for seq in sources):
        raise _refused("sourceEventSeqs must hold non-negative integers")
    if len(set(sources)) != len(sources):
        raise _refused("sourceEventSeqs must not contain duplicates")
    for seq in sources:
        if seq >= event.seq:
            raise _refused(f"sourceEventSeqs must reference earlier events: {seq} >= current seq {event.seq}")


def _check_result_rewrite(event: Event, shadowed: Sequence[Event]) -> None:
    if len(shadowed) != 1:
        raise _refused("tool/result surface replacement must rewrite exactly one current node")
    target = shadowed[0]
    if target.type != "tool/result":
        raise _refused("tool/result surface replacement must target a current tool/result")
    if _without_content(event) != _without_content(target):
        raise _refused("tool/result surface replacement may change only content")


def _without_content(event: Event) -> dict[str, Any]:
    message = {key: value for key, value in event.data["message"].items() if key != "content"}
    return {**event.data, "message": message}


def _refused(message: str) -> SessionError:
    return SessionError(message, code="SURFACE_REFUSED")
