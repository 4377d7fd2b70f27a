"""The extension points of a tool call: what listeners are given and what they may answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from nbagent.cancellation import CancelSignal
from nbagent.errors import InputError
from nbagent.tools.outcome import ToolOutcome, accept_content, accept_context
from nbagent.types.frozen import freeze
from nbagent.types.messages import Message

__all__ = (
    "UNSET",
    "Accept",
    "Allow",
    "Ask",
    "Block",
    "Deny",
    "PostExecute",
    "PreExecute",
    "ToolCall",
    "ToolExecute",
    "ToolResult",
    "accept_outcome",
    "accept_policy",
    "accept_result",
)

UNSET: Any = object()
"""Marks a field that a decision leaves as it is."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the pipeline sees it.

    Attributes:
        call_id: The model's id.
        name: The tool's name.
        arguments: Parsed and frozen; the raw string when it is no JSON.
        root_call_id: The outermost call, for calls that a tool makes itself.
    """

    call_id: str
    name: str
    arguments: Any
    root_call_id: str


@dataclass(frozen=True, slots=True)
class PreExecute:
    """`tools/pre-execute`: a call wants to run; answer whether it may."""

    agent: Any
    call: ToolCall
    signal: CancelSignal


@dataclass(frozen=True, slots=True)
class Allow:
    """It may."""


@dataclass(frozen=True, slots=True)
class Deny:
    """It may not; the model reads the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody decides; what the model reads where nobody can is the reason."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ToolExecute:
    """`tools/execute`: the body is about to run; answer an outcome.

    Attributes:
        signal: What farther listeners have narrowed it to; `await next(signal=...)` narrows it more for this one
            dispatch and answers the outcome. The turn's cancel always reaches the body.
        attach_context: Puts a text or a message into the next step, after the call's result.
    """

    agent: Any
    call: ToolCall
    signal: CancelSignal
    attach_context: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class PostExecute:
    """`tools/post-execute`: the call has an outcome that is not final yet."""

    agent: Any
    call: ToolCall
    outcome: ToolOutcome
    signal: CancelSignal


@dataclass(frozen=True, slots=True)
class Accept:
    """Keep the outcome.

    Attributes:
        content: A text or blocks for the model instead of the outcome's; its value stays.
        value: A value instead of the outcome's, made into content anew. Not together with `content`.
        contexts: Messages for the next step.
    """

    content: str | Sequence[Mapping[str, Any]] | None = None
    value: Any = UNSET
    contexts: Sequence[Message] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Turn the outcome into a failure that tells the model `feedback`; only these contexts are kept."""

    feedback: str | Sequence[Mapping[str, Any]]
    contexts: Sequence[Message] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """`tools/result`: a call is settled."""

    agent: Any
    call: ToolCall
    outcome: ToolOutcome


def accept_policy(answer: Any) -> Allow | Deny | Ask:
    """An answer of a `tools/pre-execute` listener as a decision.

    Raises:
        InputError: `INVALID_DECISION`.
    """
    if isinstance(answer, Allow | Deny | Ask):
        return answer
    if isinstance(answer, Mapping):
        decision = cast("Mapping[str, Any]", answer)
        kind = decision.get("kind")
        if kind == "allow":
            return Allow()
        if kind == "deny":
            return Deny(str(decision.get("reason") or "denied by policy"))
        if kind == "ask":
            return Ask(str(decision.get("reason") or "") or None)
    raise InputError(
        f'a "tools/pre-execute" listener must answer allow, deny or ask, got {answer!r}', code="INVALID_DECISION"
    )


def accept_outcome(answer: Any) -> ToolOutcome:
    """An answer of a `tools/execute` listener, or an outcome that a body made, as one that a log can hold.

    Raises:
        InputError: `INVALID_DECISION`, `INVALID_CONTENT`, `INVALID_CONTEXT`.
        NotJsonError: A part of it is not lossless JSON.
    """
    if isinstance(answer, ToolOutcome):
        return replace(
            answer,
            content=accept_content(answer.content),
            error=None if answer.error is None else freeze(dict(answer.error)),
            meta=None if answer.meta is None else freeze(dict(answer.meta)),
            contexts=tuple(accept_context(message) for message in answer.contexts),
        )
    raise InputError(f'a "tools/execute" listener must answer an outcome, got {answer!r}', code="INVALID_DECISION")


def accept_result(answer: Any) -> Accept | Block:
    """An answer of a `tools/post-execute` listener as a decision.

    Raises:
        InputError: `INVALID_DECISION`, `INVALID_CONTENT`, `INVALID_CONTEXT`.
    """
    if isinstance(answer, Mapping):
        answer = _result_decision(cast("Mapping[str, Any]", answer))
    if isinstance(answer, Accept):
        content = None if answer.content is None else accept_content(answer.content)
        return Accept(content, answer.value, tuple(accept_context(message) for message in answer.contexts))
    if isinstance(answer, Block):
        return Block(accept_content(answer.feedback), tuple(accept_context(message) for message in answer.contexts))
    raise InputError(
        f'a "tools/post-execute" listener must answer accept or block, got {answer!r}', code="INVALID_DECISION"
    )


def _result_decision(decision: Mapping[str, Any]) -> Any:
    contexts = decision.get("contexts") or ()
    if decision.get("kind") == "accept":
        return Accept(decision.get("content"), decision.get("value", UNSET), contexts)
    if decision.get("kind") == "block" and "feedback" in decision:
        return Block(decision["feedback"], contexts)
    return decision
