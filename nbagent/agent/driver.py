"""The driver: runs an agent's turns, and the steps of each, in their exact order.

A turn is opened by a plain call, so that the sender of a prompt finds it claimed when the send returns; the rest of the
turn runs as a task. Whatever happens to that task, a turn that was started is ended in the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio

from nbagent.agent.activity import Aborted, Activity, logged_cause
from nbagent.agent.agent import Agent
from nbagent.agent.budget import spent_budget
from nbagent.agent.initiator import initiating
from nbagent.agent.points import Enter, PreStep, Reject, TurnStopping, accept_pre_step
from nbagent.agent.prompt import Assembly, assemble
from nbagent.agent.recovery import recorded_recovery
from nbagent.agent.step import run_step
from nbagent.cancellation import CancelSignal, Interrupted
from nbagent.errors import LlmError, error_chain
from nbagent.logs import logger
from nbagent.types.messages import Message

__all__ = ("Driver",)

_log = logger(__name__)
_T = TypeVar("_T")
_GRACE = 0.1
"""Seconds that a listener gets to end by itself when the turn is cancelled."""


class Driver:
    """One activity's turns.

    Args:
        agent: Whose turns.
        activity: The activity that this driver is; its signal is renewed for each turn.
    """

    def __init__(self, agent: Agent, activity: Activity) -> None:
        self.agent = agent
        self.session = agent.session
        self.activity = activity
        self.turn = agent.last_turn
        self.step = 0
        self._turn_start = 0
        self._opened = False
        self._claimed: list[Message] = []
        self._claim_failure: Exception | None = None

    @property
    def signal(self) -> CancelSignal:
        """Aborts the present turn."""
        return self.activity.signal

    def check_abort(self) -> None:
        """Raise `Aborted` once the turn is cancelled."""
        if self.activity.signal.aborted:
            raise Aborted

    async def stoppable(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Await other people's code for this turn; a cancel ends the wait after a short grace."""
        try:
            return await self.signal.run(work, grace=_GRACE)
        except Interrupted:
            raise Aborted from None

    def open_turn(self) -> None:
        """Start the next turn and claim its prompt, unless the turn is cancelled already."""
        self._opened = False
        self._claimed, self._claim_failure = [], None
        self.step = 0
        if self.signal.aborted:
            return
        turn = self.agent.last_turn + 1
        try:
            self._turn_start = self.session.append("turn/start", {"turn": turn}).seq
        except Exception as error:
            self.agent.report_failure(turn, 0, error)
            return
        self.turn = self.agent.last_turn = turn
        self._opened = True
        if self.signal.aborted:
            return
        try:
            self._claimed = self.agent.inbox.claim("next-turn", turn)
        except Exception as error:
            self._claim_failure = error

    async def run(self) -> None:
        """Run turns until nothing is left to do; then the agent is idle."""
        try:
            with initiating(self.agent):
                while self._opened and await self._run_turn():
                    self.activity.signal = CancelSignal()
                    self.activity.wake_requested = False
                    self.open_turn()
        finally:
            self.agent.converge(self.activity)

    async def _run_turn(self) -> bool:
        """One open turn to its end; answers whether another one follows."""
        goes_on = False
        reason: dict[str, Any] = {"kind": "aborted", "reason": {"kind": "disposed"}}
        try:
            reason, goes_on = await self._steps()
        except Exception as error:
            reason = self._failure_reason(error)
        except BaseException:
            # The task itself is being cancelled: the runtime goes down.
            if self.signal.aborted:
                reason = self._aborted_reason()
            raise
        finally:
            goes_on = self._end_turn(reason) and goes_on
            self.activity.ending = not goes_on
        await self._flush()
        return goes_on and not self.signal.aborted and self.agent.inbox.pending

    def _failure_reason(self, error: Exception) -> dict[str, Any]:
        if self.signal.aborted:
            return self._aborted_reason()
        facts = error.facts() if isinstance(error, LlmError) else {"message": error_chain(error), "code": "UNKNOWN"}
        self.agent.report_failure(self.turn, self.step, error)
        return {"kind": "error", "error": facts}

    def _aborted_reason(self) -> dict[str, Any]:
        return {"kind": "aborted", "reason": logged_cause(self.signal.reason)}

    def _end_turn(self, reason: dict[str, Any]) -> bool:
        try:
            self.session.append("turn/end", {"turn": self.turn, "reason": reason})
        except Exception as error:
            self.agent.report_failure(self.turn, self.step, error)
            return False
        return True

    async def _flush(self) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await self.agent.runtime.sessions.flush(self.session)
        except Exception as error:
            _log.warning("session %s could not be synced to disk: %s", self.session.id, error)
            self.agent.report_failure(self.turn, self.step, error)

    async def _steps(self) -> tuple[dict[str, Any], bool]:
        """The steps of the open turn; answers the reason of its end and whether the driver may go on."""
        agent, inbox = self.agent, self.agent.inbox
        end: dict[str, Any] | None = None
        claimed = self._claimed
        self.check_abort()
        if self._claim_failure is not None:
            raise self._claim_failure
        while True:
            step = self.step + 1
            decision, assembly = await self._pre_step(claimed, step)
            if isinstance(decision, Reject):
                return {"kind": "blocked"}, False
            if not decision.messages:
                if end is not None:
                    return end, True
                if step == 1:
                    return {"kind": "completed"}, False
            self.check_abort()
            answer = await self._step(step, decision, assembly)
            if end is None or end["kind"] != "max-tokens":
                end = answer
            self.check_abort()
            if end is not None and not inbox.next_step:
                payload = TurnStopping(agent, self.turn, self.signal)
                await self.stoppable(lambda: agent.hooks.serial("agent/turn-stopping", payload))  # noqa: B023
                self.check_abort()
            if end is not None and not inbox.next_step:
                return end, True
            self._check_budget()
            claimed = inbox.claim("next-step", self.turn)

    def _check_budget(self) -> None:
        spent = spent_budget(self.agent, self._turn_start)
        if spent is not None:
            self.agent.cancel("hook", reason=f"budget: {spent}", keep_inbox=True)
        self.check_abort()

    async def _pre_step(self, claimed: Sequence[Message], step: int) -> tuple[Enter | Reject, Assembly]:
        agent = self.agent
        variables = agent.requests.variables(agent.options)
        assembly = await self.stoppable(lambda: assemble(agent, variables, self.signal))
        self.check_abort()

        async def default() -> Enter:
            context = agent.runtime_context.candidate(assembly.context)
            return Enter([*claimed, context] if context is not None else list(claimed))

        payload = PreStep(agent, tuple(claimed), self.turn, step, self.signal)
        decision = await self.stoppable(
            lambda: agent.hooks.waterfall("agent/pre-step", payload, default, accept_pre_step)
        )
        self.check_abort()
        return decision, assembly

    async def _step(self, step: int, decision: Enter, assembly: Assembly) -> dict[str, Any] | None:
        self.session.append("step/start", {"turn": self.turn, "step": step})
        self.step = step
        try:
            with recorded_recovery(self.session, self.turn, step):
                self.check_abort()
                return await run_step(self, decision, assembly)
        finally:
            self.session.append("step/end", {"turn": self.turn, "step": step})
