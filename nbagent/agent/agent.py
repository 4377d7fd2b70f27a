"""The agent: a handle on one session's loop. Input goes in here, turns happen elsewhere, the log tells the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from nbagent.agent.activity import Activity
from nbagent.agent.compaction import compact
from nbagent.agent.context import RuntimeContext
from nbagent.agent.history_size import HistorySize
from nbagent.agent.inbox import Inbox, Target, input_message
from nbagent.agent.initiator import initiating
from nbagent.agent.options import AgentOptions
from nbagent.agent.points import InboxChange, StatusChange, TurnFailure
from nbagent.agent.prompt import PromptRegistry
from nbagent.agent.request import RequestLog
from nbagent.agent.scope import Scope
from nbagent.cancellation import CancelSignal
from nbagent.errors import LifecycleError
from nbagent.hooks import Hooks, Listener
from nbagent.llm.runtime import LlmRuntime
from nbagent.logs import logger
from nbagent.session import Session
from nbagent.tools import ToolRegistry
from nbagent.types.config import CancelCause
from nbagent.types.messages import Message

if TYPE_CHECKING:
    from nbagent.agent.runtime import Runtime

__all__ = ("Agent",)

_log = logger(__name__)

Status = Literal["idle", "running"]


class Agent:
    """One agent. Every method is for the thread of the runtime's event loop.

    Attributes:
        id: The agent's and the session's id.
        session: Its log.
        options: How it calls its model.
        scope: What is registered for it alone.
        inbox: What waits to enter its turns.
        parent: The agent that it works for and goes away with, or none.
    """

    def __init__(
        self, runtime: Runtime, session: Session, scope: Scope, options: AgentOptions, parent: Agent | None = None
    ) -> None:
        self.runtime = runtime
        self.session = session
        self.scope = scope
        self.options = options
        self.parent = parent
        self.inbox = Inbox(session, partial(runtime.projections.state, session, "inbox"), self._inbox_changed)
        self.runtime_context = RuntimeContext(session)
        self.requests = RequestLog(session)
        self.history_size = HistorySize(session)
        self.last_turn: int = runtime.projections.state(session, "turnBoundary")["lastTurn"]
        self.attempts = 0
        self.stream_revision = 0
        self.disposed = False
        self._activity: Activity | None = None
        self._unsubscribe = session.subscribe(self.runtime_context.observe)

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def hooks(self) -> Hooks:
        return self.scope.hooks

    @property
    def tools(self) -> ToolRegistry:
        """The agent's own layer of tools: `register`, `guard`, `restrict`."""
        return self.scope.tools

    @property
    def prompt(self) -> PromptRegistry:
        """The agent's own layer of the system prompt: `section`, `variable`, `context`."""
        return self.scope.prompt

    @property
    def llm(self) -> LlmRuntime:
        """The agent's own layer of model routes."""
        return self.scope.llm

    @property
    def status(self) -> Status:
        """`running` from the wake to the end of the last turn, else `idle`."""
        return "running" if self._activity is not None and self._activity.kind == "driver" else "idle"

    @property
    def max_parallel_tool_calls(self) -> int:
        """How many parallel-safe tool calls may be in flight now."""
        return self.options.max_parallel_tool_calls or self.runtime.max_parallel_tool_calls

    def on(self, point: str, listener: Listener) -> Callable[[], None]:
        """Listen to an extension point for this agent; answers a function that removes the listener."""
        return self.scope.on(point, listener)

    def context(self, name: str, text: str | Callable[..., Any], order: float = 0) -> Callable[[], None]:
        """Add a section of the runtime context, read at every step; answers a function that removes it."""
        return self.prompt.context(name, text, order)

    # -- input ---------------------------------------------------------------------------------------------------------

    def followup(self, message: str | Message | Mapping[str, Any]) -> Message:
        """Queue a prompt that gets a turn of its own, and wake the agent; answers the queued message.

        When it returns on an idle agent, the turn is open in the log and the message is claimed.

        Raises:
            LifecycleError: `AGENT_DISPOSED`, `WRONG_THREAD`.
            InputError: `ALREADY_PENDING`.
            SessionError, StorageError: The log refused it; nothing is queued and nothing started.
        """
        return self._send(message, "next-turn", wake=True)

    def steer(self, message: str | Message | Mapping[str, Any]) -> Message:
        """Put a message into the next step of the running turn, and wake the agent; raises like `followup`."""
        return self._send(message, "next-step", wake=True)

    def inject(self, message: str | Message | Mapping[str, Any]) -> Message:
        """Put a message into the next step without waking the agent; raises like `followup`."""
        return self._send(message, "next-step", wake=False)

    def _send(self, message: str | Message | Mapping[str, Any], target: Target, *, wake: bool) -> Message:
        self.check_usable()
        # Classified before the insertion: a cancel from one of its observers must not change where the input belongs.
        after_abort = wake and self._activity is not None and self._activity.signal.aborted
        if after_abort:
            target = "next-turn"
        logged = self.inbox.append(target, input_message(message))
        if wake:
            self._wake(after_abort=after_abort)
        return logged

    def _wake(self, *, after_abort: bool) -> None:
        activity = self._activity
        if activity is None:
            self._start_driver()
        elif (after_abort or activity.ending or activity.kind == "maintenance") and not activity.disposing:
            activity.wake_requested = True

    # -- cancelling ----------------------------------------------------------------------------------------------------

    def cancel(
        self, kind: str | Mapping[str, Any] = "user", *, keep_inbox: bool = False, reason: str | None = None
    ) -> None:
        """Stop what the agent does. On an idle agent this only clears the inbox.

        Args:
            kind: `user`, `parent`, `disposed` or `hook`, or a whole cause; the first cause of an activity wins.
            keep_inbox: Leave pending input where it is, for the next waking input.
            reason: Why, for kind `hook`.

        Raises:
            LifecycleError: `WRONG_THREAD`.
        """
        self.runtime.check_thread()
        cause = kind if isinstance(kind, Mapping) else _cause(kind, reason)
        activity = self._activity
        if self.session.publishing:
            # The log takes no append now: stop at once, clear when the publication unwinds.
            if activity is not None:
                activity.signal.cancel(cause)
            if not keep_inbox:
                self.session.after_publication(partial(self._clear, activity))
            return
        try:
            if not keep_inbox:
                self._clear(activity)
        finally:
            if activity is not None:
                activity.signal.cancel(cause)

    def _clear(self, activity: Activity | None) -> None:
        try:
            self.inbox.clear()
        finally:
            if activity is not None:
                activity.wake_requested = False

    # -- activities ----------------------------------------------------------------------------------------------------

    async def when_idle(self) -> None:
        """Wait until nothing runs, work that follows the present one included. Never raises a turn's failure."""
        while self._activity is not None:
            await self._activity.done.wait()

    def run_maintenance(self, job: Callable[[CancelSignal], Awaitable[object]]) -> Activity:
        """Run `await job(signal)` while no turn can start; waking input waits until it ends.

        Raises:
            LifecycleError: `ALREADY_ACTIVE`, a turn or another job runs; `AGENT_DISPOSED`.
        """
        self.check_usable()
        activity = self.begin_maintenance()

        async def run() -> None:
            try:
                await job(activity.signal)
            except Exception as error:
                _log.exception('maintenance of agent "%s" failed', self.id)
                self.report_failure(self.last_turn, 0, error)
            finally:
                self.converge(activity)

        self.runtime.start_soon(run)
        return activity

    async def compact(self, *, upto_seq: int | None = None, summary: str | None = None) -> Message:
        """Replace older history by a summary, so that the agent can go on within its model's context window.

        The log keeps everything; what the model reads becomes shorter. The system prompt stays, and a tool call is
        never parted from its result: the cut moves back before the call. Turns wait until it is done. Inside a turn,
        only its own listeners and tools may ask for it.

        Args:
            upto_seq: Seq of the last event that the summary covers; by default everything before the latest turn, or
                everything when there is only one.
            summary: The text that stands for it; by default the agent's model writes one.

        Returns:
            The message that now stands for the older history.

        Raises:
            InputError: `NOTHING_TO_COMPACT`, `INVALID_BOUNDARY`, `INVALID_OPTION`.
            LlmError: The model could not write a summary; nothing was replaced.
            LifecycleError: `ALREADY_ACTIVE`, a turn or a maintenance job runs; `ABORTED`, cancelled; `AGENT_DISPOSED`.
        """
        return await compact(self, upto_seq, summary)

    @property
    def turn_signal(self) -> CancelSignal:
        """Aborts what the agent does now.

        Raises:
            LifecycleError: `NOT_ACTIVE`, it does nothing.
        """
        if self._activity is None:
            raise LifecycleError(f'agent "{self.id}" has no active work', code="NOT_ACTIVE")
        return self._activity.signal

    def begin_maintenance(self) -> Activity:
        """Enter maintenance; whoever calls it ends it with `converge`."""
        if self._activity is not None:
            raise LifecycleError(f'agent "{self.id}" already has active work', code="ALREADY_ACTIVE")
        self._activity = Activity("maintenance")
        return self._activity

    def converge(self, activity: Activity) -> None:
        """End an activity: idle first, then the driver that late input asked for."""
        self._activity = None
        if activity.kind == "driver":
            self._notify_status()
        activity.done.set()
        latched = activity.wake_requested and not activity.disposing and not self.disposed
        if latched and self._activity is None and self.inbox.pending:
            self._start_driver()

    def _start_driver(self) -> None:
        from nbagent.agent.driver import Driver

        activity = Activity("driver")
        self._activity = activity
        self._notify_status()
        driver = Driver(self, activity)
        with initiating(self):
            driver.open_turn()
        self.runtime.start_soon(driver.run)

    def close(self) -> None:
        """Take no more input; part of the teardown."""
        self.disposed = True
        self._unsubscribe()

    # -- notifications -------------------------------------------------------------------------------------------------

    def report_failure(self, turn: int, step: int, error: BaseException) -> None:
        """Tell `agent/error` listeners."""
        self.scope.hooks.notify("agent/error", TurnFailure(self, turn, step, error))

    def check_usable(self) -> None:
        """Raise unless this thread may use the agent and the agent is alive."""
        self.runtime.check_thread()
        self.runtime.check_active()
        if self.disposed:
            raise LifecycleError(
                f'agent "{self.id}" is disposed; its session is kept, resume it to go on', code="AGENT_DISPOSED"
            )

    def _notify_status(self) -> None:
        self.scope.hooks.notify("agent/status", StatusChange(self, self.status))

    def _inbox_changed(self, kind: str, message: Message, turn: int | None) -> None:
        self.scope.hooks.notify(f"agent/inbox/{kind}", InboxChange(self, message, turn))


def _cause(kind: str, reason: str | None) -> CancelCause:
    return CancelCause.of({"kind": kind} if reason is None else {"kind": kind, "reason": reason})
