"""What a repaired copy of a log would have that the log has not: results of unanswered calls, and the end of its turn.

A log is never changed after the fact. In a copy, results stand before the end of their step, so that everything behind
them gets other seqs; what refers to seqs is moved along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nbagent.session.repair import PendingCalls, interrupted_turn_closers, recovery_result
from nbagent.session.surface import Surface
from nbagent.types.events import Event
from nbagent.types.frozen import FrozenDict, FrozenList, freeze

__all__ = ("Insertion", "RepairPlan", "plan_repair")


@dataclass(frozen=True, slots=True)
class Insertion:
    """An event that the log lacks.

    Attributes:
        before_seq: It stands before this event of the log; the log's length when it stands at the end.
        event: As it is in the copy.
    """

    before_seq: int
    event: Event


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """How a repaired copy differs from a log.

    Attributes:
        insertions: What is new, in order; nothing for a log that is whole.
        events: The copy's events.
    """

    insertions: list[Insertion]
    events: list[Event]


def plan_repair(events: Sequence[Event]) -> RepairPlan:
    """What a repaired copy of a log would change.

    Calls of closed steps that have no result get one that says so, unless the model no longer sees their message. A
    turn that is open at the end is closed. Messages of the copy are those that are derived from the log.

    Args:
        events: A log that every rule accepts.
    """
    copy = _Copy()
    missing = _missing(events)
    for event in events:
        for call in missing.get(event.seq, ()):
            copy.answer(event.seq, call)
        copy.take(event)
    for closer in interrupted_turn_closers(copy.events):
        copy.insert(len(events), closer)
    return RepairPlan(copy.insertions, copy.events)


@dataclass(frozen=True, slots=True)
class _Missing:
    """A call of a closed step that has no result. `call_seq` is that of its `tool/call`, none without one."""

    call_id: str
    call_seq: int | None
    turn: int
    step: int
    step_end: int


def _missing(events: Sequence[Event]) -> dict[int, list[_Missing]]:
    """The calls that need a result, by the seq of the event before which it belongs."""
    seen = _surface_of(events)
    found: dict[int, list[_Missing]] = {}
    step: list[Event] = []
    for event in events:
        if event.type == "step/start":
            step = []
        step.append(event)
        if event.type == "step/end":
            for call_id, call_seq in _unsettled(step):
                asked = _asked(step, seen, call_id)
                if asked is not None:
                    call = _Missing(call_id, call_seq, event.data["turn"], event.data["step"], event.seq)
                    found.setdefault(_place_of_result(step, max(asked, call_seq or 0)), []).append(call)
    return found


def _unsettled(step: Sequence[Event]) -> list[tuple[str, int | None]]:
    calls = PendingCalls(step[-1].data["turn"], step[-1].data["step"])
    for event in step:
        calls.observe(event)
    return [(call_id, call_seq) for call_id, _name, call_seq in calls.unsettled()]


def _asked(step: Sequence[Event], seen: frozenset[int], call_id: str) -> int | None:
    """Seq of the answer that asks for the call, when the model still sees it."""
    answers = [event for event in step if event.type == "assistant/message" and event.seq in seen]
    asking = [event.seq for event in answers if any(b["id"] == call_id for b in event.data["message"].tool_calls)]
    return asking[0] if asking else None


def _place_of_result(step: Sequence[Event], after: int) -> int:
    """Seq of the event of the step before which a result belongs: the next message that is no result, or its end."""
    for event in step:
        if event.seq > after and event.surface_op == "append" and event.type != "tool/result":
            return event.seq
    return step[-1].seq


def _surface_of(events: Sequence[Event]) -> frozenset[int]:
    surface = Surface()
    for event in events:
        surface.commit(event, events)
    return frozenset(surface.seqs)


class _Copy:
    """The copy as it grows, and where the events of the log have gone."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.insertions: list[Insertion] = []
        self._moved: dict[int, int] = {}
        self._surface = Surface()

    def answer(self, before_seq: int, call: _Missing) -> None:
        """Put a result before an event of the log."""
        # Named by the log's seq, as in the history that is derived from the log.
        data, _ = recovery_result(call.call_id, call.call_seq, call.step_end, call.turn, call.step)
        sources = None if call.call_seq is None else freeze([self._moved[call.call_seq]])
        event = Event("tool/result", len(self.events), self.events[-1].time, data, "append", sources)
        self.insert(before_seq, event)

    def insert(self, before_seq: int, event: Event) -> None:
        self.insertions.append(Insertion(before_seq, event))
        self._put(event)

    def take(self, event: Event) -> None:
        """Take over an event of the log, with the seqs that it refers to moved along."""
        self._moved[event.seq] = len(self.events)
        operation, sources = event.surface_op, event.source_event_seqs
        if sources is not None:
            sources = freeze([self._moved[seq] for seq in sources])
        if isinstance(operation, FrozenDict):
            ends = {name: self._moved[operation[name]] for name in ("startSeq", "endSeq")}
            operation = freeze({**operation, **ends})
            sources = self._with_shadowed(ends["startSeq"], ends["endSeq"], sources)
        data = event.data
        if event.type == "developer/message" and "headerSeq" in data:
            data = freeze({**data, "headerSeq": self._moved[data["headerSeq"]]})
        self._put(Event(event.type, len(self.events), event.time, data, operation, sources, event.ignorable))

    def _with_shadowed(self, start_seq: int, end_seq: int, sources: FrozenList | None) -> FrozenList:
        """The sources of a replacement; results that were put into its range are among them."""
        cited: list[Any] = list(sources or ())
        nodes = self._surface.seqs
        shadowed = nodes[nodes.index(start_seq) : nodes.index(end_seq) + 1]
        return freeze([*cited, *(seq for seq in shadowed if seq not in cited)])

    def _put(self, event: Event) -> None:
        self.events.append(event)
        self._surface.commit(event, self.events)
