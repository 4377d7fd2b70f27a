"""How large a history is in tokens: what the model counted last, and an estimate of what came after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from nbagent.session import Session
from nbagent.types.config import Request
from nbagent.types.frozen import FrozenDict
from nbagent.types.messages import Message

__all__ = ("HistorySize", "estimated_tokens", "window_failure")

_CHARACTERS_PER_TOKEN = 4
"""English prose; denser scripts have fewer, so that the estimate errs towards trying."""


class HistorySize:
    """The size of one session's derived history, kept up without reading it again.

    A usage that the model reported covers everything before its answer. It holds until the history is rewritten; then,
    and on routes that report none, the texts are measured.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._generation = -1
        self._counted = 0
        self._total = 0

    def tokens(self, tools: Sequence[Mapping[str, Any]] = ()) -> int:
        """About how many tokens the history has, with the declarations of `tools`."""
        reported = self._reported()
        if reported is not None:
            return reported
        messages = self._session.messages()
        if self._generation != self._session.content_generation or self._counted > len(messages):
            self._generation, self._counted, self._total = self._session.content_generation, 0, 0
        self._total += _characters(messages[self._counted :])
        self._counted = len(messages)
        return _tokens(self._total + (len(orjson.dumps(list(tools))) if tools else 0))

    def _reported(self) -> int | None:
        """The latest usage, with an estimate of what entered since; none when nothing valid was reported."""
        since: list[Mapping[str, Any]] = []
        for event in reversed(self._session.events):
            if event.surface_op is None:
                continue
            if event.surface_op != "append":
                return None
            since.append(event.data if event.type == "user/message" else event.data["message"])
            if event.type == "assistant/message":
                # The answer's own count is left out: what the model thought may not be sent again.
                usage = event.data.get("usage", {})
                sent = sum(usage.get(field, 0) for field in _SENT)
                return sent + estimated_tokens(since) if sent else None
        return None


_SENT = ("inputTokens", "cacheReadTokens", "cacheWriteTokens")


def estimated_tokens(messages: Iterable[Mapping[str, Any]]) -> int:
    """About how many tokens the texts of `messages` have; images count nothing."""
    return _tokens(_characters(messages))


def window_failure(size: HistorySize, request: Request, window: int | None) -> FrozenDict | None:
    """The failure of a request that cannot fit the model's context window; none when it may, or nobody knows.

    Args:
        size: Of the history that `request` holds.
        request: What is about to be sent.
        window: Tokens that the model takes in.
    """
    if window is None:
        return None
    tokens = size.tokens(request.tools)
    if tokens <= window:
        return None
    message = (
        f"the request has about {tokens:,} tokens and the context window of {request.config.model} has {window:,}: "
        "compact the history with agent.compact(), or go on in a new session"
    )
    return FrozenDict({"message": message, "code": "CONTEXT_WINDOW_EXCEEDED"})


def _tokens(characters: int) -> int:
    return characters // _CHARACTERS_PER_TOKEN


def _characters(messages: Iterable[Mapping[str, Any]]) -> int:
    total = 0
    for message in messages:
        for block in Message.of(message).content:
            total += len(block.get("text", "")) + len(block.get("name", "")) + len(block.get("arguments", ""))
    return total
