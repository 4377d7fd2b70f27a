"""A chat-completions stream as chunks: tolerant of what servers send, strict in what comes out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import orjson

from nbagent.errors import LlmError
from nbagent.llm.adapters.chat_calls import ChatCalls
from nbagent.llm.failures import error_of, failure_of_error, readable
from nbagent.llm.sse import ServerEvent
from nbagent.types.stream import StreamChunk, finish, reasoning_delta, text_delta, usage_chunk

__all__ = ("ChatStream",)

_AFTER_FINISH_SECONDS = 0.9
"""Usage and the end mark may follow the finish reason."""
_AFTER_END_SECONDS = 0.1
"""A stream that is read to its end leaves its connection for the next request."""

_FINISH = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "length": "max-tokens",
    "max_tokens": "max-tokens",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
}
_FAILED_FINISH = {
    "content_filter": ("the provider's content filter stopped the answer", "CONTENT_FILTER"),
    "insufficient_system_resource": ("the provider ran out of resources", "SERVER"),
    "error": ("the provider reported an error as the reason for stopping", "SERVER"),
}


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
        self._saw_text = False
        self._calls = ChatCalls()
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
            if data == b"[DONE]":
                self.ended = True
            elif data:
                self._take_safely(data, chunks)
        return chunks

    def feed_body(self, body: bytes) -> list[StreamChunk]:
        """The chunks of an answer that is no event stream: one JSON object, or what a server says went wrong."""
        chunks: list[StreamChunk] = []
        data = body.strip()
        if data.startswith((b"{", b"[")):
            self._take_safely(data, chunks)
        else:
            self._stray = data
        return chunks

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
        kind = _FINISH.get(reason or "stop", "stop")
        if self._calls.count and kind != "max-tokens":
            # Servers are seen to say stop with calls; a complete call is a call whatever the reason says.
            kind = "tool-calls"
        elif kind == "tool-calls":
            kind = "stop"
        if kind == "stop" and not self._blocks:
            raise LlmError("the model answered with nothing", code="EMPTY_RESPONSE")
        return [*self.usage_chunks(), finish(kind)]

    def usage_chunks(self) -> list[StreamChunk]:
        """The usage that was reported, if any."""
        return [usage_chunk(self._usage)] if self._usage else []

    def _truncated(self) -> LlmError:
        if self._stray and not self._blocks and not self._calls.count:
            words = readable(self._stray.decode("utf-8", "replace"))
            return LlmError(f"the server answered with something that is no event stream: {words}", code="TRANSPORT")
        return LlmError("the answer was cut off before its end", code="STREAM_TRUNCATED")

    def _take_safely(self, data: bytes, chunks: list[StreamChunk]) -> None:
        try:
            self._take(_decoded(data), chunks)
        except LlmError as failure:
            self._failure = failure
            self.ended = True

    def _take(self, payload: Any, chunks: list[StreamChunk]) -> None:
        error = error_of(payload)
        if error is not None:
            raise failure_of_error(error)
        if not isinstance(payload, dict):
            raise LlmError(f"the server sent {readable(str(payload))[:80]} where a chunk was due", code="TRANSPORT")
        fields = cast("dict[str, Any]", payload)
        usage = _usage(fields.get("usage"))
        if usage:
            self._usage = usage
        choices = _list(fields.get("choices"))
        if not choices or not isinstance(choices[0], dict):
            return
        said = cast("dict[str, Any]", choices[0])
        usage = _usage(said.get("usage"))
        if usage:
            self._usage = usage
        delta = said.get("delta")
        if not isinstance(delta, dict):
            delta = said.get("message")
        if isinstance(delta, dict):
            self._take_delta(cast("dict[str, Any]", delta), chunks)
        reason = said.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish_reason = reason

    def _take_delta(self, delta: dict[str, Any], chunks: list[StreamChunk]) -> None:
        reasoning = _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
        if reasoning:
            chunks.append(reasoning_delta(self._block("reasoning"), reasoning))
        content = delta.get("content")
        if isinstance(content, list):
            for part in cast("list[Any]", content):
                self._take_part(part, chunks)
        elif content:
            text = _text(content)
            if text:
                chunks.append(text_delta(self._block("text"), text))
        refusal = _text(delta.get("refusal"))
        if refusal:
            chunks.append(text_delta(self._block("text"), refusal))
        calls: Any = delta.get("tool_calls") or {"function": delta.get("function_call")}
        for call in _list(calls) or [calls]:
            chunks += self._calls.take(_fields(call), self._next_block)

    def _take_part(self, part: Any, chunks: list[StreamChunk]) -> None:
        if isinstance(part, str):
            chunks.append(text_delta(self._block("text"), _text(part)))
        elif isinstance(part, dict):
            fields = cast("dict[str, Any]", part)
            thinking = "".join(_text(_fields(each).get("text")) for each in _list(fields.get("thinking")))
            if thinking:
                chunks.append(reasoning_delta(self._block("reasoning"), thinking))
            elif _text(fields.get("text")):
                chunks.append(text_delta(self._block("text"), _text(fields["text"])))

    def _block(self, kind: str) -> int:
        """The open block of a kind; a change of kind opens the next one."""
        if self._open is None or self._open[0] != kind:
            self._open = (kind, self._next_block())
        return self._open[1]

    def _next_block(self) -> int:
        index, self._blocks = self._blocks, self._blocks + 1
        self._open = None
        return index


def _decoded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        # Lone surrogates and bytes that are no UTF-8: read what can be read.
        return json.loads(data.decode("utf-8", "replace"))
    except ValueError:
        words = readable(data.decode("utf-8", "replace"))[:120]
        raise LlmError(f"the server sent a chunk that is not JSON: {words}", code="TRANSPORT") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _usage(value: Any) -> dict[str, int] | None:
    """A server's usage in the log's terms; what it does not report is absent."""
    reported = _fields(value)
    cached = _count(_fields(reported.get("prompt_tokens_details")).get("cached_tokens"))
    if cached is None:
        cached = _count(reported.get("prompt_cache_hit_tokens"))
    prompt = _count(reported.get("prompt_tokens"))
    usage = {
        "inputTokens": None if prompt is None else max(prompt - (cached or 0), 0),
        "outputTokens": _count(reported.get("completion_tokens")),
        "cacheReadTokens": cached,
        "reasoningTokens": _count(_fields(reported.get("completion_tokens_details")).get("reasoning_tokens")),
    }
    return {key: count for key, count in usage.items() if count is not None} or None


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return int(value)
