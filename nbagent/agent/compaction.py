"""Compaction: a summary takes the place of older history, so that the agent can go on within its model's window.

The log keeps every event; only the surface changes, by a `user/message` that replaces the older nodes. Two log-only
events, `compaction/start` and `compaction/end`, tell when it happened, why, and what it cost.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from nbagent.agent.history_size import estimated_tokens
from nbagent.agent.initiator import current_agent
from nbagent.agent.points import Enter, PreStep, Reject, RequestError, Retry
from nbagent.agent.summary import written_summary
from nbagent.cancellation import CancelSignal, Interrupted
from nbagent.errors import InputError, LifecycleError, LlmError, NbagentError, error_chain
from nbagent.logs import logger
from nbagent.session.compaction import compactable, older_than_last_turn
from nbagent.session.shape import message_of
from nbagent.types.messages import Message, user_message

if TYPE_CHECKING:
    from nbagent.agent.agent import Agent
    from nbagent.agent.scope import Scope
    from nbagent.session import Session

__all__ = ("CompactionPolicy", "compact", "compact_by_policy", "is_summary")

_log = logger(__name__)
_PLUGIN = "nbagent/compaction"


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When an agent compacts its history by itself.

    It does so before a step when the history passes a part of the context window, and after a request that did not fit,
    which is then tried again. Routes that do not tell their window are compacted only after such a failure.

    Args:
        at: Part of the context window, above 0 and up to 1, from which on history is compacted.
        keep: Part of the window that the latest messages may fill afterwards, above 0 and below `at`.
        instructions: What the summary has to pay attention to.

    Raises:
        InputError: `INVALID_OPTION`.
    """

    at: float = 0.8
    keep: float = 0.3
    instructions: str | None = None

    def __post_init__(self) -> None:
        given: tuple[Any, Any] = (self.at, self.keep)
        if not all(type(part) in {int, float} and math.isfinite(part) for part in given) or not (
            0 < self.keep < self.at <= 1
        ):
            raise InputError(
                f"a compaction policy needs 0 < keep < at <= 1, got at={self.at!r}, keep={self.keep!r}",
                code="INVALID_OPTION",
            )

    @classmethod
    def of(cls, given: Any) -> CompactionPolicy | None:
        """The policy that an option names: a policy, `"auto"`, or none.

        Raises:
            InputError: `INVALID_OPTION`.
        """
        if given is None or isinstance(given, CompactionPolicy):
            return given
        if given == "auto":
            return cls()
        raise InputError(f'compaction is "auto" or a CompactionPolicy, got {given!r}', code="INVALID_OPTION")


def is_summary(message: Message) -> bool:
    """Whether `message` is a summary that stands for older history."""
    return message.source.get("plugin") == _PLUGIN


async def compact(agent: Agent, upto_seq: int | None, summary: str | None) -> Message:
    """What `Agent.compact` does."""
    agent.check_usable()
    if summary is not None and (type(summary) is not str or not summary.strip()):
        raise InputError("a summary must be a text that is not blank", code="INVALID_OPTION")
    if upto_seq is not None and (type(upto_seq) is not int or not 0 <= upto_seq < len(agent.session.events)):
        raise InputError(
            f"upto_seq must be the seq of an event, 0 to {len(agent.session.events) - 1}, got {upto_seq!r}",
            code="INVALID_BOUNDARY",
        )
    if agent.status == "running" and current_agent() is agent:
        # One of the turn's own listeners or tools asks: no other step can begin meanwhile.
        return await _compact(agent, upto_seq, summary, "manual", agent.turn_signal)
    activity = agent.begin_maintenance()
    try:
        return await _compact(agent, upto_seq, summary, "manual", activity.signal)
    finally:
        agent.converge(activity)


async def _compact(
    agent: Agent,
    upto_seq: int | None,
    summary: str | None,
    trigger: Literal["manual", "policy"],
    signal: CancelSignal,
    instructions: str | None = None,
) -> Message:
    session = agent.session
    nodes = compactable(session, older_than_last_turn(session) if upto_seq is None else upto_seq)
    if not nodes:
        raise InputError(
            "there is nothing to compact: no older message stands before the cut", code="NOTHING_TO_COMPACT"
        )
    span = {"startSeq": nodes[0], "endSeq": nodes[-1]}
    session.append("compaction/start", {**span, "trigger": trigger}, ignorable=True)
    end: dict[str, Any] = {**span, "outcome": "aborted"}
    try:
        text, usage = summary, None
        if text is None:
            older = session.messages(nodes)
            text, usage = await signal.run(lambda: written_summary(agent, older, signal, instructions))
        if usage is not None:
            end["usage"] = usage
        message = user_message(text, source={"kind": "plugin", "plugin": _PLUGIN, "form": "summary"})
        event = session.append("user/message", message, surface_op={"op": "replace", **span}, source_event_seqs=nodes)
        end.update(outcome="replaced", seq=event.seq)
        return Message.of(event.data)
    except Interrupted:
        raise LifecycleError("the compaction was cancelled; the history is as it was", code="ABORTED") from None
    except Exception as error:
        if not signal.aborted:
            facts = error.facts() if isinstance(error, LlmError) else {"message": error_chain(error), "code": "UNKNOWN"}
            end.update(outcome="failed", error=facts)
        raise
    finally:
        session.append("compaction/end", end, ignorable=True)


def compact_by_policy(scope: Scope, policy: CompactionPolicy) -> None:
    """Compact the histories of a scope's agents as `policy` says."""

    async def before_step(payload: PreStep, go_on: Callable[[], Awaitable[Enter | Reject]]) -> Enter | Reject:
        agent = payload.agent
        window = _window(agent.session)
        if window is not None:
            tokens = agent.history_size.tokens() + estimated_tokens(payload.messages)
            if tokens > policy.at * window:
                await _shrink(agent, policy, window, payload.signal)
        return await go_on()

    async def after_failure(payload: RequestError, go_on: Callable[[], Awaitable[Retry | None]]) -> Retry | None:
        if payload.failure["code"] != "CONTEXT_WINDOW_EXCEEDED":
            return await go_on()
        agent = payload.agent
        if await _shrink(agent, policy, _window(agent.session), payload.signal):
            return Retry()
        return await go_on()

    scope.on("agent/pre-step", before_step)
    scope.on("agent/request-error", after_failure)


async def _shrink(agent: Agent, policy: CompactionPolicy, window: int | None, signal: CancelSignal) -> bool:
    """Compact what does not belong to the part that is kept; answers whether the history became smaller."""
    session = agent.session
    upto = _cut(session, math.floor(policy.keep * window) if window is not None else None)
    nodes = compactable(session, upto)
    if not nodes or _is_only_summary(session, nodes):
        return False
    try:
        await _compact(agent, upto, None, "policy", signal, policy.instructions)
    except (LlmError, InputError) as failure:
        # The turn goes on with what it has; when that does not fit, its own failure says so.
        _log.warning("the history of session %s could not be compacted: %s", session.id, failure)
        return False
    except NbagentError:
        if signal.aborted:
            return False
        raise
    return True


def _cut(session: Session, kept_tokens: int | None) -> int:
    """Seq up to which history is replaced so that the rest has at most `kept_tokens`; half of the nodes when unknown.

    The latest message always stays: it is what the model is about to answer.
    """
    surface = session.surface
    if kept_tokens is None:
        return surface[(len(surface) - 1) // 2] if len(surface) > 1 else -1
    kept = 0
    for index in range(len(surface) - 1, 0, -1):
        kept += estimated_tokens(session.messages([surface[index]]))
        if kept > kept_tokens:
            return surface[min(index, len(surface) - 2)]
    return -1


def _is_only_summary(session: Session, nodes: list[int]) -> bool:
    message = message_of(session.events[nodes[0]])
    return len(nodes) == 1 and message is not None and is_summary(message)


def _window(session: Session) -> int | None:
    context = session.request_context()
    return context.get("contextWindow") if context is not None else None
