"""One prompt on its way: sent on the loop's thread, followed through the turn that claims it, answered as a reply."""

from __future__ import annotations

import concurrent.futures
import html
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

from nbagent.errors import LifecycleError
from nbagent.notebook.reply import Reply, TurnError
from nbagent.notebook.transcript import TurnTranscript
from nbagent.notebook.waiting import Interrupts, StoppedByUser, WaitTimeoutError, wait
from nbagent.types.messages import Message, user_message

if TYPE_CHECKING:
    from anyio import Event as AnyioEvent

    from nbagent.notebook.notebook_agent import NotebookAgent
    from nbagent.notebook.views.run import RunView
    from nbagent.types.events import Event

__all__ = ("Run",)


class Run:
    """A prompt that was sent. Any thread may use it; `await run` works on every event loop.

    Attributes:
        agent: Who was asked.
        message: The queued message.
        seen: Whether somebody took the outcome, so that `wait` need not report it.
    """

    def __init__(self, agent: NotebookAgent, text: str | Message) -> None:
        self.agent = agent
        self.message = user_message(text) if isinstance(text, str) else text
        self.seen = False
        self._host = agent.host
        self._core = agent.core
        self._transcript = TurnTranscript()
        self._view: RunView | None = None
        self._ended: AnyioEvent | None = None
        self._turn_over = False
        self._discarded = False
        self._failure: BaseException | None = None
        self._reply: Reply | None = None
        self._undo: list[Callable[[], None]] = []
        self.future: concurrent.futures.Future[Reply] = concurrent.futures.Future()
        """Done when the turn is; never an error of the turn itself, which is `Reply.reason`."""

    @property
    def done(self) -> bool:
        """Whether the turn has ended."""
        return self.future.done()

    @property
    def text(self) -> str:
        """The answer so far."""
        return self._transcript.text

    @property
    def transcript(self) -> TurnTranscript:
        """What the turn shows so far; it grows on the loop's thread."""
        return self._transcript

    def result(self, timeout: float | None = None) -> Reply:
        """Wait for the reply.

        An interrupt cancels the turn and is raised once it has settled.

        Args:
            timeout: Seconds to wait; the turn goes on afterwards.

        Raises:
            TurnError: The turn ended in an error; it carries the reply so far.
            StorageError: An event could not be stored.
            WaitTimeoutError: It took longer.
            LifecycleError: `PROMPT_PENDING`, the prompt never got its turn; `WOULD_DEADLOCK`, called in a turn of the
                same agent.
        """
        if not self.future.done():
            self.agent.check_not_own_turn()
        with Interrupts(self.cancel) as interrupts:
            done = wait(self.future, interrupts, timeout=timeout)
        if interrupts.count:
            raise StoppedByUser("stopped; the text so far is kept")
        if not done:
            raise WaitTimeoutError(f'agent "{self.agent.name}" is still at work after {timeout:g} s; it goes on')
        return self.outcome()

    def outcome(self) -> Reply:
        """The reply of a run that is done; raises like `result`."""
        self.seen = True
        reply = self.future.result(0)
        if reply.reason.get("kind") == "error":
            raise TurnError.of(reply)
        return reply

    def cancel(self) -> None:
        """Stop this turn, or take the prompt back when it has none yet. Returns at once."""
        if not self.future.done():
            self._host.submit(self._cancel)

    def __await__(self) -> Generator[Any, Any, Reply]:
        return self._arrive().__await__()

    async def _arrive(self) -> Reply:
        import anyio
        import anyio.to_thread

        self.agent.check_not_own_turn()
        try:
            # Its result is taken below; the thread only tells when it is there, whatever loop this is.
            await anyio.to_thread.run_sync(
                lambda: concurrent.futures.wait([self.future]), abandon_on_cancel=True, limiter=_waiters()
            )
        except anyio.get_cancelled_exc_class():
            self.cancel()
            raise
        return self.outcome()

    def begin(self) -> None:
        """Send the prompt; returns once the agent has it.

        Raises:
            LifecycleError, StorageError, SessionError: It was refused; nothing is queued.
        """
        self._host.call(self._send)

    def attach(self, view: RunView) -> None:
        """Show the run in a view from now on."""
        self._host.call(self._attach, view)

    # -- on the loop's thread ------------------------------------------------------------------------------------------

    def _send(self) -> None:
        core = self._core
        core.check_usable()
        on = core.on
        self._undo = [
            on("agent/inbox/claimed", self._on_claimed),
            on("agent/inbox/discarded", self._on_discarded),
            on("agent/status", self._on_status),
            on("agent/error", self._on_error),
        ]
        try:
            core.followup(self.message)
        except BaseException:
            self._release()
            raise

    def _attach(self, view: RunView) -> None:
        self._view = view
        if self.future.done():
            view.finish(self.bundle())
        else:
            view.update(self._transcript)

    def _cancel(self) -> None:
        if self._transcript.turn is None:
            self._core.inbox.remove(self.message.id)
            return
        self._transcript.stop_asked()
        self._core.cancel("user")
        self._show()

    def _on_claimed(self, change: Any) -> None:
        if change.message.id != self.message.id:
            return
        session = self._core.session
        header = session.request_header()
        if header is not None:
            # A turn whose configuration did not change logs none.
            config = header["config"]
            self._transcript.model = f"{config['provider']}/{config['model']}"
        events = session.events
        start = len(events) - 1
        while events[start].type != "turn/start":
            start -= 1
        for event in events[start:]:
            self._transcript.apply(event)
        self._undo.append(session.subscribe(self._on_event))
        self._show()

    def _on_discarded(self, change: Any) -> None:
        if change.message.id == self.message.id:
            self._discarded = True
            self._finish()

    def _on_event(self, event: Event) -> None:
        if self._transcript.apply(event):
            self._show()
            self._turn_over = event.type == "turn/end"
        elif self._turn_over and event.type == "turn/start":
            self._finish()

    def _on_error(self, notice: Any) -> None:
        self._failure = notice.error

    def _on_status(self, change: Any) -> None:
        # Not at the end of the turn: a prompt that is sent then could find an agent that is busy with nothing.
        if change.status == "idle":
            self._finish()

    def _show(self) -> None:
        if self._view is not None:
            self._view.update(self._transcript)

    def _finish(self) -> None:
        if self.future.done():
            return
        self._release()
        fault: BaseException | None = None
        if not self._turn_over and not self._discarded:
            fault = self._failure or LifecycleError(
                "the prompt is still pending, because the turn before it did not end well; it goes out with the next "
                f"prompt to {self.agent.name}",
                code="PROMPT_PENDING",
            )
        if self._view is not None:
            self._view.finish(self.bundle())
        if fault is not None:
            self.future.set_exception(fault)
        else:
            self.future.set_result(Reply.of(self._transcript, agent=self.agent.name, reason=_CANCELLED))

    def _release(self) -> None:
        undo, self._undo = self._undo, []
        for each in undo:
            each()

    def bundle(self) -> Mapping[str, str]:
        """The static output of this turn as it is now."""
        from nbagent.notebook.display import bundle

        if self._transcript.turn is None:
            word = "was cancelled before its turn" if self._discarded else "is waiting for its turn"
            return _plain(f"{self.agent.name}: the prompt {word}")
        return bundle([self._transcript], agent_name=self.agent.name)


_CANCELLED: Mapping[str, Any] = {"kind": "aborted", "reason": {"kind": "user"}}


def _plain(text: str) -> dict[str, str]:
    return {"text/markdown": text, "text/html": f"<div>{html.escape(text)}</div>", "text/plain": text}


def _waiters() -> Any:
    # Waiting takes no share of the threads that other work has a limit on.
    import anyio

    return anyio.CapacityLimiter(1)
