"""The `turns` projection: one entry a turn, for lists of sessions and transcripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from nbagent.session.projection_unit import ProjectionUnit
from nbagent.types.events import Event, SessionHeader

__all__ = ("TURNS",)

Turns = tuple[dict[str, Any], ...]
_UNDECIDED: dict[str, Any] = {"turn": 0, "startSeq": 0, "endSeq": None, "reason": None, "prompts": (), "usage": {}}


def _init(_header: SessionHeader, _inherited: int) -> Turns:
    return ()


def _apply(state: Turns, event: Event) -> Turns:
    kind, data = event.type, event.data
    if kind == "turn/start":
        opened: dict[str, Any] = {**_UNDECIDED, "turn": data["turn"], "startSeq": event.seq}
        return (*state, opened)
    if not state:
        return state
    if kind == "turn/end":
        return _changed(state, endSeq=event.seq, reason=data["reason"])
    if kind == "user/message" and state[-1]["endSeq"] is None:
        return _changed(state, prompts=(*state[-1]["prompts"], data["id"]))
    if kind == "assistant/message" and "usage" in data:
        return _changed(state, usage=_added(state[-1]["usage"], data["usage"]))
    return state


def _added(total: Mapping[str, int], usage: Mapping[str, Any]) -> dict[str, int]:
    counted = {name: tokens for name, tokens in usage.items() if type(tokens) is int}
    return {**total, **{name: total.get(name, 0) + tokens for name, tokens in counted.items()}}


def _changed(state: Turns, **fields: Any) -> Turns:
    return (*state[:-1], {**state[-1], **fields})


def _restored(value: Any) -> Turns:
    return tuple(map(_turn, cast("list[Any]", value)))


def _turn(value: Any) -> dict[str, Any]:
    fields = cast("dict[str, Any]", value)
    if set(fields) != set(_UNDECIDED) or not isinstance(fields["usage"], dict):
        raise ValueError("not a turn")
    return {**fields, "prompts": tuple(cast("list[Any]", fields["prompts"]))}


TURNS = ProjectionUnit("turns", 1, _init, _apply, state_schema=_restored)
"""A tuple of `{turn, startSeq, endSeq, reason, prompts, usage}`.

`prompts` are message ids; `usage` adds up the tokens of the turn's answers, without fields that none of them reported.
"""
