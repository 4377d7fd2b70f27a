"""The extension points of a tool call: what listeners are given and what they may answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nbagent.cancellation import CancelSignal
from nbagent.errors import InputError
from nbagent.tools.outcome import ToolOutcome
from nbagent.types.messages import Message

__all__ = (
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
    """A person decides."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ToolExecute:
    """`tools/execute`: the body is about to run; `next(signal=...)` narrows its signal."""

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
    """Keep the outcome, with its content or its value replaced, and messages for the next step."""

    content: Sequence[Mapping[str, Any]] | None = None
    value: Any = UNSET
    contexts: Sequence[Message] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Turn the outcome into a failure that tells the model `feedback`."""

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
            return Deny(str(decision.get("reason", "denied")))
        if kind == "ask":
            return Ask(decision.get("reason"))
    raise InputError(
        f'a "tools/pre-execute" listener must answer allow, deny or ask, got {answer!r}', code="INVALID_DECISION"
    )


def accept_outcome(answer: Any) -> ToolOutcome:
    """An answer of a `tools/execute` listener as an outcome.

    Raises:
        InputError: `INVALID_DECISION`.
    """
    if isinstance(answer, ToolOutcome):
        return answer
    raise InputError(f'a "tools/execute" listener must answer an outcome, got {answer!r}', code="INVALID_DECISION")


def accept_result(answer: Any) -> Accept | Block:
    """An answer of a `tools/post-execute` listener as a decision.

    Raises:
        InputError: `INVALID_DECISION`.
    """
    if isinstance(answer, Accept | Block):
        return answer
    if isinstance(answer, Mapping):
        decision = cast("Mapping[str, Any]", answer)
        contexts = [Message.of(message) for message in decision.get("contexts", ())]
        if decision.get("kind") == "accept":
            return Accept(decision.get("content"), decision.get("value", UNSET), contexts)
        if decision.get("kind") == "block":
            return Block(decision.get("feedback", ""), contexts)
    raise InputError(
        f'a "tools/post-execute" listener must answer accept or block, got {answer!r}', code="INVALID_DECISION"
    )
