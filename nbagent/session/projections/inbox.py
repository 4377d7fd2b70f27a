"""The `inbox` projection: what waits, folded from splices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from nbagent.session.projection_unit import ProjectionUnit, fold_failed
from nbagent.session.shape import check_message
from nbagent.types.events import Event, SessionHeader
from nbagent.types.messages import Message

__all__ = ("INBOX",)

Lists = Mapping[str, Sequence[Message]]
_TARGETS = ("next-turn", "next-step")


def _init(_header: SessionHeader, _inherited: int) -> Lists:
    return {"next-turn": (), "next-step": ()}


def _apply(state: Lists, event: Event) -> Lists:
    if event.type != "agent/inbox/spliced":
        return state
    try:
        return _spliced(state, event.data)
    except ValueError as fault:
        raise fold_failed(f"invalid persisted inbox splice at session seq {event.seq}") from fault


def _spliced(state: Lists, data: Mapping[str, Any]) -> Lists:
    target, start, removed = data["target"], data["start"], data.get("removedCount", 0)
    inserted: Sequence[Message] = data["inserted"]
    if target not in _TARGETS or type(start) is not int or type(removed) is not int:
        raise ValueError("invalid inbox splice")
    pending = state[target]
    if start < 0 or removed < 0 or start + removed > len(pending):
        raise ValueError("invalid inbox splice")
    changed = {**state, target: (*pending[:start], *inserted, *pending[start + removed :])}
    _check_ids(changed)
    return changed


def _check_ids(lists: Lists) -> None:
    seen: set[str] = set()
    for message in (*lists["next-turn"], *lists["next-step"]):
        if message["id"] in seen:
            raise ValueError(f'message "{message["id"]}" is already pending')
        seen.add(message["id"])


def _restored(value: Any) -> Lists:
    lists = {target: tuple(map(_message, cast("dict[str, Any]", value)[target])) for target in _TARGETS}
    _check_ids(lists)
    return lists


def _message(value: Any) -> Message:
    check_message("agent/inbox/spliced", value, "user")
    return Message.of(value)


INBOX = ProjectionUnit("inbox", 1, _init, _apply, state_schema=_restored)
"""`{"next-turn": messages, "next-step": messages}`."""
