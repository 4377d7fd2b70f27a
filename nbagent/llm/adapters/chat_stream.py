"""A chat-completions stream as chunks: tolerant of what servers send, strict in what comes out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import orjson

from nbagent.errors import LlmError
from nbagent.llm.adapters.chat_calls import ChatCalls
from nbagent.llm.adapters.chat_extras import merged, usage_of
from nbagent.llm.adapters.surrogates import PieceJoiner
from nbagent.llm.failures import error_of, failure_of_error, readable
from nbagent.llm.sse import ServerEvent
from nbagent.types.stream import StreamChunk, block_start, finish, reasoning_delta, text_delta, usage_chunk

__all__ = ("ChatStream",)

_AFTER_FINISH_SECONDS = 0.9
"""Usage and the end mark may follow the finish reason."""
_AFTER_END_SECONDS = 0.1
"""A stream that is read to its end leaves its connection for the next request."""

_FINISH = {
    "length": "max-tokens",
    "max_tokens": "max-tokens",
    "max_output_tokens": "max-tokens",
    "model_length": "max-tokens",
    "tool_calls": "tool-calls",
    "tool_use": "tool-calls",
    "function_call": "tool-calls",
}
"""What a finish reason means; every other one is a plain stop."""
_FILTERED = ("the provider's content filter stopped the answer", "CONTENT_FILTER")
_FAILED_FINISH = {
    "content_filter": _FILTERED,
    "safety": _FILTERED,
    "insufficient_system_resource": ("the provider ran out of resources", "SERVER"),
    "error": ("the provider reported an error as the reason for stopping", "SERVER"),
}
_MESSAGE_EXTRAS = ("reasoning_details", "extra_content")
"""Opaque fields that servers want back with the message."""


class ChatStream:
    """Reads one answer.

    Attributes:
        ended: Nothing more will come that matters.
    """

    def __init__(self) -> None:
        self.ended = False
        self._finish_reason: str | None = None
        self._usage: dict[str, int] | None = None
        self._open: tuple[str, int] | None = None
        self._blocks = 0
        self._calls = ChatCalls()
        self._joiners: dict[int, tuple[str, PieceJoiner]] = {}
        self._extras: dict[str, Any] = {}
        self._stray = b""
        self._failure: LlmError | None = None

    @property
    def patience(self) -> float | None:
        """Seconds worth waiting for more of the stream; a server that leaves it open is not waited for."""
        if self.ended:
            return _AFTER_END_SECONDS
        return None if self._finish_reason is None else _AFTER_FINISH_SECONDS

    def feed(self, events: Sequence[ServerEvent]) -> list[StreamChunk]:
        """The chunks of a batch of events. A failure that the server reports ends it; `close` raises it."""
        chunks: list[StreamChunk] = []
        for event in events:
            if self.ended:
                break
            data = event.data.strip()
            if data in {b"[DONE]", b'"[DONE]"'}:
                self.ended = True
            elif data:
                self._take_safely(data, chunks, whole=event.whole, is_error=event.name == "error")
        return chunks

    def feed_body(self, body: bytes) -> list[StreamChunk]:
        """The chunks of an answer that is no event stream: JSON, or what a server says went wrong."""
        chunks: list[StreamChunk] = []
        data = body.strip()
        if not data.startswith((b"{", b"[")):
            self._stray = data
            return chunks
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError:
            # One object a line is a stream as well.
            lines = data.splitlines()
        else:
            lines = [data]
        return self.feed([ServerEvent("message", line) for line in lines])

    def close(self) -> list[StreamChunk]:
        """The last chunks: usage, then the finish.

        Raises:
            LlmError: What the server reported; `STREAM_TRUNCATED`, `EMPTY_RESPONSE`, `CONTENT_FILTER`, `SERVER`.
        """
        if self._failure is not None:
            raise self._failure
        reason = self._finish_reason
        if reason in _FAILED_FINISH:
            message, code = _FAILED_FINISH[reason]
            raise LlmError(message, code=code)
        if reason is None and not self.ended:
            raise self._truncated()
        kind = _FINISH.get(reason or "", "stop")
        if self._calls.complete or (self._calls.count and kind != "max-tokens"):
            # Servers are seen to say stop with calls; a complete call is a call whatever the reason says.
            kind = "tool-calls"
        elif kind == "tool-calls":
            kind = "stop"
        if kind == "stop" and not self._blocks:
            raise LlmError("the model answered with nothing", code="EMPTY_RESPONSE")
        last = [
            _delta(kind, block, rest) for block, (kind, joiner) in self._joiners.items() if (rest := joiner.flush())
        ]
        return [*last, *self._calls.close(), *self.usage_chunks(), finish(kind, replay_state=self._replay_state())]

    def usage_chunks(self) -> list[StreamChunk]:
        """The usage that was reported, if any."""
        return [usage_chunk(self._usage)] if self._usage else []

    def _replay_state(self) -> dict[str, Any] | None:
        """What the server attached and wants back, entries of `blocks` in the order of the blocks."""
        calls = self._calls.extras
        if not calls and not self._extras:
            return None
        return {"blocks": [calls.get(block) for block in range(self._blocks)], "message": self._extras}

    def _truncated(self) -> LlmError:
        if self._stray and not self._blocks:
            words = readable(self._stray.decode("utf-8", "replace"))
            return LlmError(f"the server answered with something that is no event stream: {words}", code="SERVER")
        return LlmError("the answer was cut off before its end", code="STREAM_TRUNCATED")

    def _take_safely(self, data: bytes, chunks: list[StreamChunk], *, whole: bool, is_error: bool) -> None:
        try:
            payload = _decoded(data)
        except ValueError:
            # A part of an event says that the stream was cut; after the answer's end it says nothing.
            if whole and self._finish_reason is None:
                words = readable(data.decode("utf-8", "replace"))[:120]
                self._fail(LlmError(f"the server sent a chunk that is not JSON: {words}", code="SERVER"))
            return
        try:
            self._take(payload, chunks, is_error=is_error)
        except LlmError as failure:
            self._fail(failure)

    def _fail(self, failure: LlmError) -> None:
        self._failure = failure
        self.ended = True

    def _take(self, payload: Any, chunks: list[StreamChunk], *, is_error: bool) -> None:
        if payload is None:
            return
        error = error_of(payload)
        if error is not None or is_error:
            raise failure_of_error(payload if error is None else error)
        if not isinstance(payload, dict):
            raise LlmError(f"the server sent {readable(str(payload))[:80]} where a chunk was due", code="SERVER")
        fields = cast("dict[str, Any]", payload)
        self._take_usage(fields.get("usage") or _fields(fields.get("x_groq")).get("usage"))
        for choice in _list(fields.get("choices")):
            said = _fields(choice)
            # Only one answer was asked for.
            if said and not said.get("index"):
                self._take_choice(said, chunks)

    def _take_choice(self, said: dict[str, Any], chunks: list[StreamChunk]) -> None:
        self._take_usage(said.get("usage"))
        delta = said.get("delta")
        if isinstance(delta, dict):
            self._take_delta(cast("dict[str, Any]", delta), chunks)
        elif not self._blocks:
            # Servers that stream may say the whole message once more at the end.
            self._take_delta(_fields(said.get("message")), chunks)
        if said.get("error"):
            raise failure_of_error(said["error"])
        reason = said.get("finish_reason")
        if isinstance(reason, str) and reason and self._finish_reason is None:
            self._finish_reason = reason.lower()

    def _take_usage(self, value: Any) -> None:
        usage = usage_of(value) if value else None
        if usage and (any(usage.values()) or self._usage is None):
            self._usage = usage

    def _take_delta(self, delta: dict[str, Any], chunks: list[StreamChunk]) -> None:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning:
            self._say("reasoning", reasoning, chunks)
        content = delta.get("content")
        if isinstance(content, list):
            for part in cast("list[Any]", content):
                self._take_part(part, chunks)
        elif content:
            self._say("text", content, chunks)
        if delta.get("refusal"):
            self._say("text", delta["refusal"], chunks)
        calls: Any = delta.get("tool_calls")
        if not calls and delta.get("function_call"):
            calls = {"function": delta["function_call"]}
        if calls:
            for call in _list(calls) or [calls]:
                chunks += self._calls.take(_fields(call), self._next_block)
        for key in _MESSAGE_EXTRAS:
            if delta.get(key):
                self._extras[key] = merged(self._extras.get(key), delta[key])

    def _take_part(self, part: Any, chunks: list[StreamChunk]) -> None:
        fields = _fields(part)
        thinking = fields.get("thinking")
        if isinstance(part, str):
            self._say("text", part, chunks)
        elif isinstance(thinking, list):
            for each in cast("list[Any]", thinking):
                self._say("reasoning", _fields(each).get("text"), chunks)
        elif thinking:
            self._say("reasoning", thinking, chunks)
        else:
            self._say("text", fields.get("text"), chunks)

    def _say(self, kind: str, piece: Any, chunks: list[StreamChunk]) -> None:
        """More text of a kind, in its open block; a change of kind opens the next one."""
        if not isinstance(piece, str) or not piece:
            return
        if self._open is None or self._open[0] != kind:
            block = self._next_block()
            self._open = (kind, block)
            self._joiners[block] = (kind, PieceJoiner())
            chunks.append(block_start(block, kind))
        block = self._open[1]
        text = self._joiners[block][1].feed(piece)
        if text:
            chunks.append(_delta(kind, block, text))

    def _next_block(self) -> int:
        index, self._blocks = self._blocks, self._blocks + 1
        self._open = None
        return index


def _delta(kind: str, block: int, text: str) -> StreamChunk:
    return reasoning_delta(block, text) if kind == "reasoning" else text_delta(block, text)


def _decoded(data: bytes) -> Any:
    """A payload's JSON.

    Raises:
        ValueError: It is none.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # Lone surrogates and bytes that are no UTF-8: read what can be read.
        return json.loads(data.decode("utf-8", "replace"))


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
