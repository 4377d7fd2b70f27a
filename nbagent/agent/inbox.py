"""The durable inbox: what waits to enter an agent's turns and steps.

Two lists: `next-turn` holds prompts, each of which opens a turn of its own; `next-step` holds steering and injected
context, claimed as a whole at the next step. Every change is one `agent/inbox/spliced` event; the lists themselves are
the `inbox` projection, so there is nothing to keep in step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from nbagent.errors import InputError, SessionError
from nbagent.session import Session
from nbagent.types.frozen import NotJsonError
from nbagent.types.messages import Message, user_message

__all__ = ("Inbox", "Target", "input_message")

Target = Literal["next-turn", "next-step"]
_TARGETS: tuple[Target, ...] = ("next-turn", "next-step")


def input_message(given: str | Mapping[str, Any]) -> Message:
    """A text, a message or the mapping of one as a message.

    Raises:
        SessionError: `NOT_JSON`; `INVALID_EVENT`, it has no id.
    """
    try:
        message = user_message(given) if isinstance(given, str) else Message.of(given)
    except NotJsonError as fault:
        raise SessionError(f"a message is lossless JSON: {fault}", code="NOT_JSON") from fault
    if not isinstance(message.get("id"), str):
        raise SessionError("a message needs an id: make it with user_message(...)", code="INVALID_EVENT")
    return message


class Inbox:
    """The inbox of one session.

    Args:
        session: Where splices are logged.
        read: Answers the folded lists, `{"next-turn": [...], "next-step": [...]}`; none when nobody folds them.
        notify: Called as `notify(kind, message, turn)` with `inserted`, `claimed` or `discarded` after the splice.
    """

    def __init__(
        self,
        session: Session,
        read: Callable[[], Mapping[str, Sequence[Message]] | None],
        notify: Callable[[str, Message, int | None], None],
    ) -> None:
        self._session = session
        self._read = read
        self._notify = notify

    @property
    def next_turn(self) -> list[Message]:
        """Prompts waiting for a turn of their own, oldest first."""
        return list(self._lists()["next-turn"])

    @property
    def next_step(self) -> list[Message]:
        """What enters at the next step boundary, in order."""
        return list(self._lists()["next-step"])

    @property
    def pending(self) -> bool:
        """Whether anything waits."""
        state = self._lists()
        return bool(state["next-turn"] or state["next-step"])

    def splice(
        self,
        target: Target,
        start: float = math.inf,
        delete_count: float = 0,
        inserted: Sequence[Message | Mapping[str, Any]] = (),
    ) -> list[Message]:
        """Remove and insert in one list; answers what was removed.

        Args:
            target: Which list.
            start: Index, truncated towards zero; negative counts from the end, beyond the end appends.
            delete_count: How many to remove from there, clamped to what is there.
            inserted: Messages put in their place.

        Raises:
            InputError: `UNKNOWN_TARGET`; `ALREADY_PENDING` when an id is already in either list.
            SessionError: One of them is no message (`NOT_JSON`, `INVALID_EVENT`), or the log refused the event; the lists are unchanged.
        """
        return self._splice(target, start, delete_count, inserted, canceled=True)[0]

    def append(self, target: Target, message: Message) -> Message:
        """Put `message` at the end of a list; answers the logged message."""
        return self._splice(target, math.inf, 0, [message], canceled=True)[1][0]

    def prepend(self, target: Target, message: Message) -> Message:
        """Put `message` at the head of a list; answers the logged message."""
        return self._splice(target, 0, 0, [message], canceled=True)[1][0]

    def replace(self, message_id: str, message: Message | Mapping[str, Any]) -> bool:
        """Put `message` where the pending message `message_id` is; answers whether it was pending."""
        place = self._find(message_id)
        if place is None:
            return False
        self.splice(place[0], place[1], 1, [message])
        return True

    def remove(self, message_id: str) -> bool:
        """Take a pending message out; answers whether it was pending."""
        place = self._find(message_id)
        if place is None:
            return False
        self.splice(place[0], place[1], 1)
        return True

    def clear(self) -> None:
        """Cancel everything that waits; an empty list adds no event."""
        for target in ("next-step", "next-turn"):
            self.splice(target, 0, math.inf)

    def claim(self, target: Target, turn: int) -> list[Message]:
        """Take what the next step admits: all of `next-step`, then for `next-turn` the first prompt.

        Only the loop calls this.
        """
        claimed = self._splice("next-step", 0, math.inf, [], canceled=False)[0]
        if target == "next-turn":
            claimed += self._splice("next-turn", 0, 1, [], canceled=False)[0]
        for message in claimed:
            self._notify("claimed", message, turn)
        return claimed

    def _lists(self) -> Mapping[str, Sequence[Message]]:
        lists = self._read()
        if lists is None:
            raise SessionError(
                f'agent "{self._session.id}" cannot read inbox state: its projection registration is not active',
                code="PROJECTION_NOT_REGISTERED",
            )
        return lists

    def _find(self, message_id: str) -> tuple[Target, int] | None:
        state = self._lists()
        for target in _TARGETS:
            for index, message in enumerate(state[target]):
                if message.id == message_id:
                    return target, index
        return None

    def _splice(
        self,
        target: Target,
        start: float,
        delete_count: float,
        inserted: Sequence[Message | Mapping[str, Any]],
        *,
        canceled: bool,
    ) -> tuple[list[Message], list[Message]]:
        if target not in _TARGETS:
            raise InputError(f'unknown inbox list "{target}"; known: {", ".join(_TARGETS)}', code="UNKNOWN_TARGET")
        state = self._lists()
        pending = state[target]
        at = _start(start, len(pending))
        count = min(max(_truncate(delete_count, len(pending)), 0), len(pending) - at)
        messages = [input_message(message) for message in inserted]
        if not count and not messages:
            return [], []
        removed = list(pending[at : at + count])
        taken = {message.id for each in _TARGETS for message in state[each]} - {message.id for message in removed}
        for message in messages:
            if message.id in taken:
                raise InputError(f'message "{message.id}" is already pending', code="ALREADY_PENDING")
            taken.add(message.id)
        data: dict[str, Any] = {"target": target, "start": at}
        if count:
            data["removedCount"] = count
        data["inserted"] = messages
        if count and canceled:
            data["outcome"] = "canceled"
        event = self._session.append("agent/inbox/spliced", data)
        logged = [Message.of(message) for message in event.data["inserted"]]
        if canceled:
            for message in removed:
                self._notify("discarded", message, None)
        for message in logged:
            self._notify("inserted", message, None)
        return removed, logged


def _truncate(value: float, most: int) -> int:
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return most if value > 0 else -most
    return int(value)


def _start(value: float, length: int) -> int:
    at = _truncate(value, length)
    return max(length + at, 0) if at < 0 else min(at, length)
