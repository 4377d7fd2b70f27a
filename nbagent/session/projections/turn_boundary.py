"""The `turnBoundary` projection: where the log stands in turns and steps."""

from __future__ import annotations

from typing import Any

from nbagent.session.projection import ProjectionUnit
from nbagent.types.events import Event, SessionHeader

__all__ = ("TURN_BOUNDARY",)


def _init(_header: SessionHeader) -> dict[str, Any]:
    return {"openTurnStartSeq": None, "lastStepStartSeq": None, "lastStepBoundary": None, "lastTurn": 0}


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


TURN_BOUNDARY = ProjectionUnit("turnBoundary", 2, _init, _apply)
"""`{openTurnStartSeq, lastStepStartSeq, lastStepBoundary, lastTurn}`, the first three none when there is none."""
