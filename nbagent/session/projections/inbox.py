"""The `inbox` projection: what waits, folded from splices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nbagent.session.projection import ProjectionUnit
from nbagent.types.events import Event, SessionHeader
from nbagent.types.messages import Message

__all__ = ("INBOX",)

Lists = Mapping[str, Sequence[Message]]
_TARGETS = ("next-turn", "next-step")


def _init(_header: SessionHeader) -> Lists:
    return {"next-turn": (), "next-step": ()}


def _apply(state: Lists, event: Event) -> Lists:
    if event.type != "agent/inbox/spliced":
        return state
    data = event.data
    target, start, removed = data["target"], data["start"], data.get("removedCount", 0)
    inserted: Sequence[Message] = data["inserted"]
    if target not in _TARGETS or type(start) is not int or type(removed) is not int:
        raise ValueError("invalid inbox splice")
    pending = state[target]
    if start < 0 or removed < 0 or start + removed > len(pending):
        raise ValueError("invalid inbox splice")
    changed = {**state, target: (*pending[:start], *inserted, *pending[start + removed :])}
    seen: set[str] = set()
    for message in (*changed["next-turn"], *changed["next-step"]):
        if message["id"] in seen:
            raise ValueError(f'message "{message["id"]}" is already pending')
        seen.add(message["id"])
    return changed


INBOX = ProjectionUnit("inbox", 1, _init, _apply)
"""`{"next-turn": messages, "next-step": messages}`."""
