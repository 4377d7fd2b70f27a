"""Histories as lists of encoded messages: in the order that the strictest server wants, each message encoded once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import orjson

from nbagent.llm.adapters.chat_messages import ChatMessages, unanswered
from nbagent.llm.dialects import ChatDialect
from nbagent.types.config import Request
from nbagent.types.messages import Message

__all__ = ("ChatHistories",)

_MOST_HISTORIES = 64
"""Sessions whose encoded history is kept; one more makes the oldest be encoded anew when it asks again."""


class ChatHistories:
    """The histories of the sessions that ask one server.

    Args:
        dialect: How the server differs.
    """

    def __init__(self, dialect: ChatDialect) -> None:
        self._dialect = dialect
        self._histories: OrderedDict[tuple[str, str, str], _History] = OrderedDict()

    def encode(self, request: Request) -> list[bytes]:
        """The messages of a request as JSON. A history that only grew costs what was added to it."""
        key = (request.session_id, request.config.provider, request.config.model)
        history = self._histories.get(key)
        if history is None:
            history = self._histories[key] = _History(ChatMessages(self._dialect, key[1], key[2]))
            if len(self._histories) > _MOST_HISTORIES:
                self._histories.popitem(last=False)
        self._histories.move_to_end(key)
        return history.encode(tuple(request.messages))


class _History:
    """One history: every call is answered right after its message, and no two calls have one id.

    The log sees to most of this; what a plugin appends between a call and its result, or a history that begins after a
    call, is put right here, for a server that refuses it would refuse every later request as well.
    """

    def __init__(self, messages: ChatMessages) -> None:
        self._messages = messages
        self._kept: dict[int, tuple[Message, tuple[str, ...], bytes]] = {}
        self._begin()

    def _begin(self) -> None:
        self._seen: tuple[Message, ...] = ()
        self._parts: list[bytes] = []
        self._ids: set[str] = set()
        # Calls of the latest answer that have no result yet, with the id that each was sent under.
        self._open: dict[str, str] = {}
        self._after_results: list[bytes] = []

    def encode(self, messages: tuple[Message, ...]) -> list[bytes]:
        count = len(self._seen)
        if messages[:count] != self._seen:
            self._forget_all_but(messages)
            count = 0
        try:
            for message in messages[count:]:
                self._append(message)
        except BaseException:
            self._begin()
            raise
        self._seen = messages
        return [*self._parts, *self._unsettled()]

    def _append(self, message: Message) -> None:
        role = message["role"]
        if role == "assistant":
            self._settle()
            calls: list[str] = [block["id"] for block in message["content"] if block["type"] == "tool-call"]
            sent = [self._fresh(call) for call in calls]
            self._parts += self._encoded(message, tuple(sent))
            self._open = dict(zip(calls, sent, strict=True))
        elif role == "tool":
            sent_as = self._open.pop(message["toolCallId"], None)
            if sent_as is None:
                return
            self._parts += self._encoded(message, (sent_as,))
            self._after_results += self._messages.images_of_result(message)
            if not self._open:
                self._settle()
        else:
            (self._after_results if self._open else self._parts).extend(self._encoded(message, ()))

    def _settle(self) -> None:
        self._parts += self._unsettled()
        self._open = {}
        self._after_results = []

    def _unsettled(self) -> list[bytes]:
        return [*(unanswered(sent) for sent in self._open.values()), *self._after_results]

    def _fresh(self, call_id: str) -> str:
        """The id, or a variant that no earlier call has: some servers count anew in each turn."""
        fresh, number = call_id, 1
        while fresh in self._ids:
            number += 1
            fresh = f"{call_id}-{number}"
        self._ids.add(fresh)
        return fresh

    def _encoded(self, message: Message, ids: tuple[str, ...]) -> Sequence[bytes]:
        known = self._kept.get(id(message))
        if known is None or known[0] is not message or known[1] != ids:
            body = self._messages.message(message, ids)
            known = (message, ids, b"" if body is None else orjson.dumps(body))
            self._kept[id(message)] = known
        return (known[2],) if known[2] else ()

    def _forget_all_but(self, messages: Sequence[Message]) -> None:
        present = {id(message) for message in messages}
        self._kept = {key: value for key, value in self._kept.items() if key in present}
        self._begin()
