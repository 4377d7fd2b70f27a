"""The `turns` projection: one entry a turn, for lists of sessions and transcripts."""

from __future__ import annotations

from typing import Any

from nbagent.session.projection import ProjectionUnit
from nbagent.types.events import Event, SessionHeader

__all__ = ("TURNS",)

Turns = tuple[dict[str, Any], ...]


def _init(_header: SessionHeader) -> Turns:
    return ()


def _apply(state: Turns, event: Event) -> Turns:
    kind, data = event.type, event.data
    if kind == "turn/start":
        opened = {"turn": data["turn"], "startSeq": event.seq, "endSeq": None, "reason": None, "prompts": ()}
        return (*state, opened)
    if not state:
        return state
    if kind == "turn/end":
        return _changed(state, endSeq=event.seq, reason=data["reason"])
    if kind == "user/message" and state[-1]["endSeq"] is None:
        return _changed(state, prompts=(*state[-1]["prompts"], data["id"]))
    return state


def _changed(state: Turns, **fields: Any) -> Turns:
    return (*state[:-1], {**state[-1], **fields})


TURNS = ProjectionUnit("turns", 1, _init, _apply)
"""A tuple of `{turn, startSeq, endSeq, reason, prompts}`; `prompts` are message ids."""
