"""What an adapter yields while a model answers.

A chunk is its JSON, as frames store it:

    {type: block-start, index, blockType}            blockType: text | reasoning | tool-call
    {type: text-delta, index, text}
    {type: reasoning-delta, index, text}
    {type: tool-call-delta, index, id?, name?, argumentsDelta}
    {type: block-end, index, block}
    {type: usage, usage: {inputTokens, outputTokens, cacheReadTokens?, cacheWriteTokens?, reasoningTokens?}}
    {type: finish, reason: {kind, error?}, replayState?}      always last; kind: FINISH_KINDS
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.types.frozen import FrozenDict, Record, freeze

__all__ = (
    "FINISH_KINDS",
    "RETRYABLE_CODES",
    "StreamChunk",
    "Usage",
    "block_end",
    "block_start",
    "finish",
    "reasoning_delta",
    "text_delta",
    "tool_call_delta",
    "usage_chunk",
)

FINISH_KINDS = ("stop", "tool-calls", "max-tokens", "error", "aborted")

RETRYABLE_CODES = frozenset(
    {"SERVER", "OVERLOADED", "RATE_LIMIT", "EMPTY_RESPONSE", "STREAM_TRUNCATED", "TIMEOUT", "TRANSPORT"}
)
"""Failures that another attempt may mend."""

StreamChunk = FrozenDict


class Usage(Record):
    """Tokens of one call; a field that the provider did not report is absent, not zero.

    `inputTokens` counts uncached input only.
    """

    __slots__ = ()

    @property
    def input_tokens(self) -> int | None:
        return self.get("inputTokens")

    @property
    def output_tokens(self) -> int | None:
        return self.get("outputTokens")

    @property
    def cache_read_tokens(self) -> int | None:
        return self.get("cacheReadTokens")

    @property
    def cache_write_tokens(self) -> int | None:
        return self.get("cacheWriteTokens")

    @property
    def reasoning_tokens(self) -> int | None:
        return self.get("reasoningTokens")


# The three constructors on the streaming path build from plain `str` and `int` and skip the walk of `freeze`; whoever
# takes text off the wire has already replaced lone surrogates.


def block_start(index: int, block_type: str) -> StreamChunk:
    """A block begins."""
    return FrozenDict(type="block-start", index=index, blockType=block_type)


def text_delta(index: int, text: str) -> StreamChunk:
    """More answer text."""
    return FrozenDict(type="text-delta", index=index, text=text)


def reasoning_delta(index: int, text: str) -> StreamChunk:
    """More reasoning text."""
    return FrozenDict(type="reasoning-delta", index=index, text=text)


def tool_call_delta(
    index: int, arguments_delta: str = "", *, id: str | None = None, name: str | None = None
) -> StreamChunk:
    """More of a tool call."""
    fields: dict[str, Any] = {"type": "tool-call-delta", "index": index}
    if id:
        fields["id"] = id
    if name:
        fields["name"] = name
    fields["argumentsDelta"] = arguments_delta
    return FrozenDict(fields)


def block_end(index: int, block: Mapping[str, Any]) -> StreamChunk:
    """A block is complete; `block` is its final form."""
    return FrozenDict(type="block-end", index=index, block=freeze(dict(block)))


def usage_chunk(usage: Mapping[str, Any]) -> StreamChunk:
    """Tokens so far; the last one of a stream counts."""
    return FrozenDict(type="usage", usage=Usage.of(usage))


def finish(
    kind: str, *, error: Mapping[str, Any] | None = None, replay_state: Mapping[str, Any] | None = None
) -> StreamChunk:
    """The terminal chunk.

    Args:
        kind: One of `FINISH_KINDS`.
        error: For `error` and `aborted`: `{message, code, status?, providerRetryAfterMs?, requestId?}`.
        replay_state: Opaque provider data to send back with this message.
    """
    reason: dict[str, Any] = {"kind": kind}
    if error is not None:
        reason["error"] = dict(error)
    fields: dict[str, Any] = {"type": "finish", "reason": reason}
    if replay_state is not None:
        fields["replayState"] = dict(replay_state)
    return freeze(fields)
