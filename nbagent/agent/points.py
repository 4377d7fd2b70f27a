"""The loop's extension points: what listeners are given and what they may answer.

Answers are typed values and are also accepted as mappings with the keys of the session file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from nbagent.cancellation import CancelSignal
from nbagent.errors import InputError
from nbagent.types.config import CallConfig
from nbagent.types.frozen import FrozenDict
from nbagent.types.messages import Message

if TYPE_CHECKING:
    from nbagent.agent.agent import Agent
    from nbagent.session import Session

__all__ = (
    "AgentCreated",
    "AgentDisposed",
    "AssistantStream",
    "ConfigStartFailed",
    "Enter",
    "InboxChange",
    "PreStep",
    "Reject",
    "RequestError",
    "RequestProposal",
    "Retry",
    "SessionNotice",
    "StatusChange",
    "TurnFailure",
    "TurnStopping",
    "accept_config",
    "accept_pre_step",
    "accept_request_error",
)


@dataclass(frozen=True, slots=True)
class PreStep:
    """`agent/pre-step`: the messages that are about to enter a step."""

    agent: Agent
    messages: Sequence[Message]
    turn: int
    step: int
    signal: CancelSignal


@dataclass(frozen=True, slots=True)
class Enter:
    """Let the step begin with these messages.

    Attributes:
        messages: The batch, in the order in which the model reads it.
        starts_request_series: Whether the request begins a new series (a fresh prompt baseline).
    """

    messages: Sequence[Message]
    starts_request_series: bool = False


@dataclass(frozen=True, slots=True)
class Reject:
    """End the turn as blocked, without a step."""


@dataclass(frozen=True, slots=True)
class RequestProposal:
    """`agent/request`: the configuration of the next call; answer a replacement to change it."""

    agent: Agent
    config: CallConfig
    turn: int
    step: int
    signal: CancelSignal


@dataclass(frozen=True, slots=True)
class RequestError:
    """`agent/request-error`: a call ended in a failure of the provider.

    Attributes:
        failure: `{message, code, status?, providerRetryAfterMs?, requestId?}`.
        retry_policy: The policy that decides when no listener does, or none.
        attempt: Which attempt of the step failed, from 1.
    """

    agent: Agent
    turn: int
    step: int
    provider: str
    failure: FrozenDict
    retry_policy: Any
    attempt: int
    signal: CancelSignal


@dataclass(frozen=True, slots=True)
class Retry:
    """Try the same step again."""


@dataclass(frozen=True, slots=True)
class TurnStopping:
    """`agent/turn-stopping`: the turn is about to end; steer now to keep it going."""

    agent: Agent
    turn: int
    signal: CancelSignal


@dataclass(frozen=True, slots=True)
class AgentCreated:
    """`agent/created`: an agent is about to be handed out; a raise vetoes it. `source`: create, resume or fork."""

    agent: Agent
    source: str


@dataclass(frozen=True, slots=True)
class AgentDisposed:
    """`agent/disposed`: an agent is gone."""

    agent: Agent


@dataclass(frozen=True, slots=True)
class StatusChange:
    """`agent/status`: the agent went `idle` or `running`."""

    agent: Agent
    status: str


@dataclass(frozen=True, slots=True)
class InboxChange:
    """`agent/inbox/inserted`, `claimed`, `discarded`: what happened to one message; `turn` when claimed."""

    agent: Agent
    message: Message
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class TurnFailure:
    """`agent/error`: a turn failed."""

    agent: Agent
    turn: int
    step: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class AssistantStream:
    """`agent/assistant-stream`: one notification of an attempt.

    Attributes:
        type: `start`, `chunk` or `end`.
        attempt_id: `<session id>:<n>`, n counting the attempts of this agent object.
        revision: Counts the stream notifications of this agent object.
        index: Of the chunk; at the end, the number of chunks.
        time: Milliseconds since the epoch, on chunks.
        chunk: The chunk, already durable.
        outcome: At the end `{kind: committed, eventType, seq}` or `{kind: aborted}`.
    """

    agent: Agent
    type: str
    attempt_id: str
    revision: int
    turn: int
    step: int
    index: int | None = None
    time: int | None = None
    chunk: FrozenDict | None = None
    outcome: FrozenDict | None = None


@dataclass(frozen=True, slots=True)
class SessionNotice:
    """`session/created`, `session/disposed`, `session/flush`: something happened to a session."""

    session: Session
    agent: Agent | None = None


@dataclass(frozen=True, slots=True)
class ConfigStartFailed:
    """`agent-loop/config-start-failed`: an agent of a configuration could not be started; the others go on."""

    session_id: str
    error: Exception


def accept_pre_step(answer: Any) -> Enter | Reject:
    """An answer of an `agent/pre-step` listener as a decision.

    Raises:
        InputError: `INVALID_DECISION`.
    """
    if isinstance(answer, Reject):
        return answer
    if isinstance(answer, Enter):
        return Enter([Message.of(message) for message in answer.messages], answer.starts_request_series)
    if isinstance(answer, Mapping):
        decision = cast("Mapping[str, Any]", answer)
        if decision.get("kind") == "reject":
            return Reject()
        if decision.get("kind") == "enter":
            messages = [Message.of(message) for message in decision.get("messages", ())]
            return Enter(messages, decision.get("startsRequestSeries") is True)
    raise InputError(
        f'an "agent/pre-step" listener must answer enter or reject, got {answer!r}', code="INVALID_DECISION"
    )


def accept_config(answer: Any) -> CallConfig:
    """An answer of an `agent/request` listener as a configuration.

    Raises:
        InputError: `INVALID_DECISION`.
    """
    if isinstance(answer, Mapping):
        return CallConfig.of(cast("Mapping[str, Any]", answer))
    raise InputError(
        f'an "agent/request" listener must answer a configuration, got {answer!r}', code="INVALID_DECISION"
    )


def accept_request_error(answer: Any) -> Retry | None:
    """An answer of an `agent/request-error` listener as an action.

    Raises:
        InputError: `INVALID_DECISION`.
    """
    if answer is None or isinstance(answer, Retry):
        return answer
    if isinstance(answer, Mapping) and cast("Mapping[str, Any]", answer).get("kind") == "retry":
        return Retry()
    raise InputError(
        f'an "agent/request-error" listener must answer retry or nothing, got {answer!r}', code="INVALID_DECISION"
    )
