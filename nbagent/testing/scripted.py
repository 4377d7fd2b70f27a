"""A model that says what a script tells it to: one item answers one request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from nbagent.cancellation import CancelSignal
from nbagent.errors import LlmError
from nbagent.types.config import ModelFacts, Request
from nbagent.types.frozen import FrozenDict, freeze
from nbagent.types.messages import reasoning_block, text_block, tool_call_block
from nbagent.types.stream import (
    StreamChunk,
    block_end,
    block_start,
    finish,
    reasoning_delta,
    text_delta,
    tool_call_delta,
    usage_chunk,
)

__all__ = ("Answer", "ScriptedAdapter", "fail", "hang", "reasoning", "text", "tool_calls")


@dataclass(frozen=True, slots=True)
class Answer:
    """One scripted answer: chunks, then what happens after them."""

    chunks: Sequence[Mapping[str, Any]] = ()
    hangs: bool = False
    failure: LlmError | None = None


Item = Answer | Sequence[Mapping[str, Any]] | Callable[[Request], Any]


@dataclass(slots=True)
class ScriptedAdapter:
    """An adapter for tests.

    Args:
        script: One item a request: `text(...)`, `tool_calls(...)`, a list of raw chunks, or a function of the request
            that answers one of these.
        system_prompt_update: `"in-history"` for a route that understands a later system message.
        tool_update: Whether tools may change in the middle of a series.
        default_max_tokens: Cap that the route fills in.
        default_effort: Effort that the route fills in.
        efforts: Efforts that it takes.
        context_window: Tokens that fit.

    Attributes:
        requests: What was asked, in order.
    """

    script: list[Any]
    system_prompt_update: str | None = None
    tool_update: bool = False
    default_max_tokens: int | None = None
    default_effort: str | None = None
    efforts: Sequence[str] | None = None
    context_window: int | None = None
    requests: list[Request] = field(default_factory=list[Request])

    def facts(self, model: str) -> ModelFacts:  # noqa: ARG002 - every model of the script is the same
        """The facts given to the constructor."""
        return ModelFacts(
            context_window=self.context_window,
            default_max_tokens=self.default_max_tokens,
            default_effort=self.default_effort,
            efforts=tuple(self.efforts) if self.efforts is not None else None,
            system_prompt_update=self.system_prompt_update,
            tool_update=self.tool_update,
        )

    async def stream(self, request: Request, signal: CancelSignal) -> AsyncIterator[StreamChunk]:
        """Play the next item."""
        self.requests.append(request)
        if len(self.requests) > len(self.script):
            raise LlmError(
                f"the script has {len(self.script)} answers and was asked for answer {len(self.requests)}",
                code="SCRIPT_EXHAUSTED",
            )
        answer = _answer(self.script[len(self.requests) - 1], request)
        for chunk in answer.chunks:
            yield chunk if isinstance(chunk, FrozenDict) else freeze(dict(chunk))
        if answer.failure is not None:
            raise answer.failure
        if answer.hangs:
            await signal.wait()
            yield finish("aborted", error={"message": "the call was cancelled", "code": "ABORTED"})


def text(content: str, *, usage: bool = True) -> Answer:
    """An answer of one text block, a delta a character; usage 10 in, one out a character."""
    deltas = [text_delta(0, character) for character in content]
    chunks = [block_start(0, "text"), *deltas, block_end(0, text_block(content))]
    return Answer([*chunks, *_usage(len(content), usage=usage), finish("stop")])


def reasoning(thought: str, content: str = "", *, usage: bool = True) -> Answer:
    """An answer that thinks first, then says `content`."""
    chunks: list[StreamChunk] = [block_start(0, "reasoning"), *(reasoning_delta(0, part) for part in thought)]
    chunks.append(block_end(0, reasoning_block(thought)))
    if content:
        chunks += [block_start(1, "text"), *(text_delta(1, part) for part in content)]
        chunks.append(block_end(1, text_block(content)))
    return Answer([*chunks, *_usage(len(thought) + len(content), usage=usage), finish("stop")])


def tool_calls(*calls: tuple[str, str, Mapping[str, Any] | str], before: str = "") -> Answer:
    """An answer that calls tools.

    Args:
        calls: `(call id, tool name, arguments)`, arguments as an object or as the raw string of the model.
        before: Text said before the calls.
    """
    chunks: list[StreamChunk] = []
    if before:
        chunks += [block_start(0, "text"), text_delta(0, before), block_end(0, text_block(before))]
    for index, (call_id, name, arguments) in enumerate(calls, start=1 if before else 0):
        raw = arguments if isinstance(arguments, str) else orjson.dumps(dict(arguments)).decode()
        chunks.append(block_start(index, "tool-call"))
        chunks.append(tool_call_delta(index, raw, id=call_id, name=name))
        chunks.append(block_end(index, tool_call_block(call_id, name, raw)))
    return Answer([*chunks, *_usage(len(chunks), usage=True), finish("tool-calls")])


def hang(*chunks: Mapping[str, Any]) -> Answer:
    """An answer that says `chunks` (one text delta `partial` by default) and then waits for the abort."""
    return Answer(chunks or (text_delta(0, "partial"),), hangs=True)


def fail(
    message: str,
    code: str = "SERVER",
    *,
    status: int | None = None,
    provider_retry_after_ms: int | None = None,
    request_id: str | None = None,
    after: Sequence[Mapping[str, Any]] = (),
) -> Answer:
    """An answer that fails, after the chunks `after`."""
    failure = LlmError(
        message, code=code, status=status, provider_retry_after_ms=provider_retry_after_ms, request_id=request_id
    )
    return Answer(after, failure=failure)


def _usage(tokens: int, *, usage: bool) -> list[StreamChunk]:
    return [usage_chunk({"inputTokens": 10, "outputTokens": tokens})] if usage else []


def _answer(item: Any, request: Request) -> Answer:
    if isinstance(item, Answer):
        return item
    if callable(item):
        return _answer(item(request), request)
    if isinstance(item, Sequence) and all(isinstance(chunk, Mapping) for chunk in cast("Sequence[Any]", item)):
        return Answer(cast("Sequence[Mapping[str, Any]]", item))
    raise LlmError(
        f"a script is made of text(...), tool_calls(...) and the like, or lists of chunks, got {item!r}"[:300],
        code="SCRIPT_INVALID",
    )
