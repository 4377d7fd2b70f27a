"""One tool call from policy to final result.

`prepare` decides whether the body may run, `dispatch` runs it, `finalize` makes the outcome final. Preparation and
finalization are for one call at a time; bodies may overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nbagent.cancellation import CancelSignal, Interrupted
from nbagent.errors import NbagentError, error_chain
from nbagent.hooks import Hooks
from nbagent.tools.body import run_body
from nbagent.tools.current import CurrentCall
from nbagent.tools.outcome import ToolOutcome, aborted_outcome, failed
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
from nbagent.tools.results import content_of
from nbagent.types.frozen import NotJsonError, freeze
from nbagent.types.messages import Message, text_block

__all__ = ("ToolExecution",)

_GRACE = 0.1
"""Seconds that a listener gets to end by itself when the turn is cancelled."""


class ToolExecution:
    """The execution of one call.

    Args:
        registry: Where its tool is looked up.
        hooks: Whose listeners take part.
        agent: For whom; none for a call outside an agent.
        call: The call.
        signal: Aborts when the turn is cancelled.

    Attributes:
        decided: Whether the body will not run: the outcome exists already.
    """

    def __init__(self, registry: ToolRegistry, hooks: Hooks, agent: Any, call: ToolCall, signal: CancelSignal) -> None:
        self._registry = registry
        self._hooks = hooks
        self._agent = agent
        self._signal = signal
        self._outcome: ToolOutcome | None = None
        self._final = False
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
            self._decide(failed("tool execution arguments must be losslessly JSON-serializable"), final=True)
            return
        self.call = replace(self.call, arguments=arguments)
        if self._signal.aborted:
            self._decide(aborted_outcome(dispatched=False), final=True)
            return
        try:
            decision = await self._stoppable(self._ask_policy)
        except Interrupted:
            self._decide(aborted_outcome(dispatched=False), final=True)
            return
        except Exception as failure:
            self._decide(_failure(failure), final=True)
            return
        reason = self._reason_to_deny(decision)
        if reason is not None:
            self._decide(failed(reason))
        elif self._signal.aborted:
            self._decide(aborted_outcome(dispatched=False))

    async def dispatch(self) -> None:
        """Run the body inside the `tools/execute` listeners. The outcome is there afterwards."""
        entered = False
        served = CurrentCall(self.call.call_id, self._signal)

        async def body(*, signal: CancelSignal | None = None) -> ToolOutcome:
            nonlocal entered
            tool = self._registry.get(self.call.name)
            if tool is None:
                return failed(f'unknown tool "{self.call.name}"', name="UnknownToolError", code="UNKNOWN_TOOL")
            if self._signal.aborted:
                return aborted_outcome(dispatched=False)
            entered = True
            served.signal = _fused(self._signal, signal)
            return await run_body(tool, self.call, served)

        payload = ToolExecute(self._agent, self.call, self._signal, self._attach)
        try:
            outcome = await self._hooks.waterfall("tools/execute", payload, body, accept_outcome)
        except Interrupted:
            self._decide(aborted_outcome(dispatched=entered, contexts=served.contexts))
            return
        except Exception as failure:
            self._decide(_failure(failure), final=True)
            return
        if self._signal.aborted and not outcome.is_error:
            outcome = aborted_outcome(dispatched=entered, contexts=outcome.contexts)
        self._decide(outcome)

    async def finalize(self) -> ToolOutcome:
        """Let `tools/post-execute` listeners judge the outcome, make it final, and tell of it."""
        outcome = self._outcome
        if outcome is None:
            outcome = aborted_outcome(dispatched=False)
        if not self._final:
            outcome = await self._judged(outcome)
        if self._final_content is not None:
            outcome = self._with_final_content(outcome)
        self._hooks.notify("tools/result", ToolResult(self._agent, self.call, outcome))
        return outcome

    async def _ask_policy(self) -> Allow | Deny | Ask:
        async def default() -> Allow:
            return Allow()

        payload = PreExecute(self._agent, self.call, self._signal)
        return await self._hooks.waterfall("tools/pre-execute", payload, default, accept_policy)

    def _reason_to_deny(self, decision: Allow | Deny | Ask) -> str | None:
        if isinstance(decision, Deny):
            return decision.reason
        if isinstance(decision, Ask):
            return decision.reason or f'tool "{self.call.name}" requires approval (not yet supported)'
        try:
            return self._registry.denial(self.call)
        except Exception as failure:
            return error_chain(failure)

    async def _judged(self, outcome: ToolOutcome) -> ToolOutcome:
        async def default() -> Accept:
            return Accept()

        payload = PostExecute(self._agent, self.call, outcome, self._signal)
        try:
            decision = await self._stoppable(
                lambda: self._hooks.waterfall("tools/post-execute", payload, default, accept_result)
            )
        except Interrupted:
            return replace(outcome, contexts=[*outcome.contexts, *self._wrapper_contexts])
        except Exception as failure:
            return _failure(failure)
        if isinstance(decision, Block):
            feedback = decision.feedback
            content = [text_block(feedback)] if isinstance(feedback, str) else [dict(block) for block in feedback]
            return ToolOutcome(content=freeze(content), is_error=True, contexts=decision.contexts)
        return self._accepted(outcome, decision)

    def _accepted(self, outcome: ToolOutcome, decision: Accept) -> ToolOutcome:
        contexts: Sequence[Message] = [*outcome.contexts, *self._wrapper_contexts, *decision.contexts]
        if decision.content is not None and decision.value is not UNSET:
            return failed("tools/post-execute cannot replace both content and value")
        if decision.content is not None:
            content = freeze([dict(block) for block in decision.content])
            return replace(outcome, content=content, contexts=contexts)
        if decision.value is not UNSET:
            if outcome.is_error:
                return failed("tools/post-execute cannot replace the value of a failed result")
            content, meta = content_of(decision.value)
            return replace(outcome, content=content, meta=meta, value=decision.value, contexts=contexts)
        return replace(outcome, contexts=contexts)

    def _with_final_content(self, outcome: ToolOutcome) -> ToolOutcome:
        hook = self._final_content
        if hook is None:
            return outcome
        try:
            return replace(outcome, content=content_of(hook(outcome))[0])
        except Exception as failure:
            return replace(_failure(failure), contexts=outcome.contexts)

    def _attach(self, message: Any) -> None:
        self._wrapper_contexts.append(Message.of(message))

    def _decide(self, outcome: ToolOutcome, *, final: bool = False) -> None:
        self._outcome = outcome
        self._final = final

    async def _stoppable(self, work: Any) -> Any:
        return await self._signal.run(work, grace=_GRACE)


def _failure(failure: Exception) -> ToolOutcome:
    if isinstance(failure, NbagentError):
        return failed(failure.message, name=type(failure).__name__, code=failure.code)
    return failed(error_chain(failure))


def _fused(caller: CancelSignal, narrowed: CancelSignal | None) -> CancelSignal:
    if narrowed is None or narrowed is caller:
        return caller
    fused = narrowed.child()
    caller.subscribe(lambda: fused.cancel(caller.reason))
    return fused
