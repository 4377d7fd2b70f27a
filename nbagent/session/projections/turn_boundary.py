"""The `turnBoundary` projection: where the log stands in turns and steps."""

from __future__ import annotations

from typing import Any, cast

from nbagent.session.projection_unit import ProjectionUnit
from nbagent.types.events import Event, SessionHeader

__all__ = ("TURN_BOUNDARY",)


_EMPTY: dict[str, Any] = {
    "openTurnStartSeq": None,
    "lastStepStartSeq": None,
    "lastStepBoundary": None,
    "lastTurn": 0,
}


def _init(_header: SessionHeader, _inherited: int) -> dict[str, Any]:
    return _EMPTY


def _apply(state: dict[str, Any], event: Event) -> dict[str, Any]:
    if event.type == "turn/start":
        return {**state, "openTurnStartSeq": event.seq, "lastTurn": event.data["turn"]}
    if event.type == "turn/end":
        return {**state, "openTurnStartSeq": None}
    if event.type == "step/start":
        return {**state, "lastStepStartSeq": event.seq, "lastStepBoundary": event.seq}
    if event.type == "step/end":
        return {**state, "lastStepBoundary": event.seq}
    return state


def _restored(value: Any) -> dict[str, Any]:
    fields = cast("dict[str, Any]", value)
    seqs = [fields.get(name) for name in _EMPTY if name != "lastTurn"]
    if set(fields) != set(_EMPTY) or type(fields["lastTurn"]) is not int:
        raise ValueError("not the place of a log in turns and steps")
    if not all(seq is None or type(seq) is int for seq in seqs):
        raise ValueError("the place of a log in turns and steps is given by seqs")
    return fields


TURN_BOUNDARY = ProjectionUnit("turnBoundary", 2, _init, _apply, state_schema=_restored)
"""`{openTurnStartSeq, lastStepStartSeq, lastStepBoundary, lastTurn}`, the first three none when there is none."""
