"""One tool call from policy to final result.

`prepare` decides whether the body may run, `dispatch` runs it, `finalize` makes the outcome final. Preparation and
finalization are for one call at a time; bodies may overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nbagent.cancellation import CancelSignal, Interrupted
from nbagent.errors import InputError
from nbagent.hooks import Hooks
from nbagent.tools.approval import ApprovalRequest, RecordApproval, ask_for_approval, reason_against
from nbagent.tools.body import run_body, success_of
from nbagent.tools.current import CurrentCall
from nbagent.tools.faults import ToolNotFoundError
from nbagent.tools.outcome import ToolOutcome, aborted_outcome, accept_content, accept_context, failed, failure_of
from nbagent.tools.points import (
    UNSET,
    Accept,
    Allow,
    Ask,
    Block,
    Deny,
    PostExecute,
    PreExecute,
    ToolCall,
    ToolExecute,
    ToolResult,
    accept_outcome,
    accept_policy,
    accept_result,
)
from nbagent.tools.registry import ToolRegistry
from nbagent.types.frozen import NotJsonError, freeze
from nbagent.types.messages import Message

__all__ = ("ToolExecution",)

_GRACE = 0.1
"""Seconds that a listener gets to end by itself when the turn is cancelled."""
_WRAPPER_GRACE = 0.2
"""The same for a listener around the body, which gets its own grace first."""


class ToolExecution:
    """The execution of one call.

    Args:
        registry: Where its tool is looked up.
        hooks: Whose listeners take part.
        agent: For whom; none for a call outside an agent.
        call: The call.
        signal: Aborts when the turn is cancelled.
        record: Puts questions of approval and their answers into the agent's log.

    Attributes:
        call: The call, its arguments frozen once it is prepared.
        decided: Whether an outcome exists, so that the body is not to be dispatched (any more).
    """

    def __init__(
        self,
        registry: ToolRegistry,
        hooks: Hooks,
        agent: Any,
        call: ToolCall,
        signal: CancelSignal,
        record: RecordApproval | None = None,
    ) -> None:
        self._registry = registry
        self._hooks = hooks
        self._agent = agent
        self._signal = signal
        self._record = record or _unrecorded
        self._outcome: ToolOutcome | None = None
        self._final = False
        self._entered = False
        self._served = CurrentCall(call.call_id, signal)
        self._wrapper_contexts: list[Message] = []
        self.call = call
        tool = registry.get(call.name)
        self._final_content = tool.final_content if tool is not None else None

    @property
    def decided(self) -> bool:
        return self._outcome is not None

    async def prepare(self) -> None:
        """Policy, then guards; a denied or aborted call has its outcome afterwards."""
        try:
            arguments = freeze(self.call.arguments)
        except NotJsonError:
            self.call = replace(self.call, arguments=None)
            self._decide(failed("tool execution arguments must be losslessly JSON-serializable"), final=True)
            return
        self.call = replace(self.call, arguments=arguments)
        if self._signal.aborted:
            self._decide(aborted_outcome(dispatched=False), final=True)
            return
        try:
            reason = await self._reason_to_deny()
        except Interrupted:
            reason = None
        except Exception as failure:
            self._decide(failure_of(failure), final=True)
            return
        if reason is not None:
            self._decide(failed(reason))
        elif self._signal.aborted:
            self._decide(aborted_outcome(dispatched=False))

    async def dispatch(self) -> None:
        """Run the body inside the `tools/execute` listeners. The outcome is there afterwards."""
        wrappers = self._hooks.listeners("tools/execute")
        try:
            if wrappers:
                outcome = await self._signal.run(lambda: self._wrapped(wrappers, self._signal), grace=_WRAPPER_GRACE)
            else:
                outcome = await self._body(self._signal)
        except Interrupted:
            outcome = aborted_outcome(dispatched=self._entered)
        except Exception as failure:
            self._decide(failure_of(failure), final=True)
            return
        contexts = (*self._served.contexts, *self._wrapper_contexts, *outcome.contexts)
        if self._signal.aborted and not outcome.is_error:
            outcome = aborted_outcome(dispatched=self._entered)
        self._decide(replace(outcome, contexts=contexts))

    async def finalize(self) -> ToolOutcome:
        """Let `tools/post-execute` listeners judge the outcome, make it final, and tell of it."""
        outcome = self._outcome or aborted_outcome(dispatched=False)
        if not self._final:
            try:
                outcome = await self._judged(outcome)
            except Exception as failure:
                outcome = failure_of(failure)
            if self._signal.aborted and not outcome.is_error:
                outcome = aborted_outcome(dispatched=self._entered, contexts=outcome.contexts)
        if self._final_content is not None:
            try:
                content = self._final_content(outcome)
                outcome = outcome if content is None else replace(outcome, content=accept_content(content))
            except Exception as failure:
                outcome = failure_of(failure)
        self._decide(outcome, final=True)
        self._hooks.notify("tools/result", ToolResult(self._agent, self.call, outcome))
        return outcome

    # -- policy --------------------------------------------------------------------------------------------------------

    async def _reason_to_deny(self) -> str | None:
        """Policy, approval where policy asks for it, then guards, which nothing overrules."""
        decision = await self._ask_policy()
        reason: str | None = None
        if isinstance(decision, Deny):
            reason = decision.reason
        elif isinstance(decision, Ask):
            reason = await self._ask_somebody(decision.reason)
        return self._registry.denial(self.call) if reason is None else reason

    async def _ask_policy(self) -> Allow | Deny | Ask:
        async def default() -> Allow:
            return Allow()

        if not self._hooks.has("tools/pre-execute"):
            return await default()
        payload = PreExecute(self._agent, self.call, self._signal)
        return await self._signal.run(
            lambda: self._hooks.waterfall("tools/pre-execute", payload, default, accept_policy), grace=_GRACE
        )

    async def _ask_somebody(self, why: str | None) -> str | None:
        name, service = self.call.name, self._registry.approval_service
        if service is None:
            return why or f'tool "{name}" requires approval (not yet supported)'
        if self._agent is None:
            return f'tool "{name}" requires approval, but the call has no agent to route it through'
        if self._signal.aborted:
            raise Interrupted
        request = ApprovalRequest(self._agent, self.call, why, self._signal)
        return reason_against(await ask_for_approval(service, request, self._record), name)

    # -- dispatch ------------------------------------------------------------------------------------------------------

    async def _wrapped(self, wrappers: list[Any], signal: CancelSignal) -> ToolOutcome:
        """The body inside `wrappers`, the first one outermost, under a signal that each may narrow further."""
        if not wrappers:
            return await self._body(signal)

        async def following(*, signal: CancelSignal | None = None) -> ToolOutcome:
            fused, release = _fused(payload.signal, signal)
            try:
                return await self._wrapped(wrappers[1:], fused)
            finally:
                release()

        payload = ToolExecute(self._agent, self.call, signal, self._attach)
        return accept_outcome(await wrappers[0](payload, following))

    async def _body(self, signal: CancelSignal) -> ToolOutcome:
        if signal.aborted:
            return aborted_outcome(dispatched=False)
        tool = self._registry.get(self.call.name)
        if tool is None:
            return failure_of(ToolNotFoundError(f'unknown tool "{self.call.name}"'))
        self._entered = True
        self._served.signal = signal
        outcome = await run_body(tool, self.call, self._served, self._registry.main_thread)
        if signal.aborted and not outcome.is_error:
            return aborted_outcome(dispatched=True)
        return outcome

    def _attach(self, message: Any) -> None:
        self._wrapper_contexts.append(accept_context(message))

    # -- judgement -----------------------------------------------------------------------------------------------------

    async def _judged(self, outcome: ToolOutcome) -> ToolOutcome:
        async def default() -> Accept:
            return Accept()

        if not self._hooks.has("tools/post-execute"):
            return outcome
        payload = PostExecute(self._agent, self.call, outcome, self._signal)
        try:
            decision = await self._signal.run(
                lambda: self._hooks.waterfall("tools/post-execute", payload, default, accept_result), grace=_GRACE
            )
        except Interrupted:
            return outcome
        if isinstance(decision, Block):
            return ToolOutcome(accept_content(decision.feedback), is_error=True, contexts=decision.contexts)
        contexts = (*outcome.contexts, *decision.contexts)
        if decision.value is not UNSET:
            return replace(self._with_value(outcome, decision), contexts=contexts)
        if decision.content is not None:
            return replace(outcome, content=accept_content(decision.content), contexts=contexts)
        return replace(outcome, contexts=contexts)

    def _with_value(self, outcome: ToolOutcome, decision: Accept) -> ToolOutcome:
        if decision.content is not None:
            raise InputError("tools/post-execute cannot replace both content and value", code="INVALID_DECISION")
        if outcome.is_error:
            raise InputError("tools/post-execute cannot replace the value of a failed result", code="INVALID_DECISION")
        tool = self._registry.get(self.call.name)
        if tool is None:
            raise ToolNotFoundError(f'unknown tool "{self.call.name}"')
        return success_of(tool, decision.value, concluded=outcome.concludes_turn)

    def _decide(self, outcome: ToolOutcome, *, final: bool = False) -> None:
        self._outcome = outcome
        self._final = final


def _unrecorded(type: str, data: Mapping[str, Any]) -> None:
    """Outside an agent's turn there is no log."""


def _fused(outer: CancelSignal, narrowed: CancelSignal | None) -> tuple[CancelSignal, Callable[[], None]]:
    """A signal that follows both, and what stops it from following."""
    if narrowed is None or narrowed is outer:
        return outer, lambda: None
    fused = CancelSignal()
    unsubscribes = [source.subscribe(lambda source=source: fused.cancel(source.reason)) for source in (narrowed, outer)]

    def release() -> None:
        for unsubscribe in unsubscribes:
            unsubscribe()

    return fused, release
