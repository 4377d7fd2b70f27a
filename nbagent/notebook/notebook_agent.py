"""The face of an agent in a notebook: every method may be called from any thread, and waits where its verb waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nbagent.errors import InputError, LifecycleError
from nbagent.notebook.reply import Reply
from nbagent.notebook.roster import roster
from nbagent.notebook.run import Run
from nbagent.notebook.shell import current_shell, publish
from nbagent.notebook.transcript import TurnTranscript
from nbagent.notebook.waiting import Interrupts, StoppedByUser, WaitTimeoutError, wait
from nbagent.types.messages import Message

if TYPE_CHECKING:
    from nbagent.agent import Agent, AgentHandle
    from nbagent.hooks import Listener
    from nbagent.notebook.host import Host
    from nbagent.types.events import Event

__all__ = ("InboxView", "NotebookAgent", "Pending", "SessionView")


@dataclass(frozen=True, slots=True)
class Pending:
    """A message that waits in an inbox; `target` is `next-turn` or `next-step`."""

    id: str
    text: str
    target: str


class SessionView:
    """The log of an agent, to read."""

    def __init__(self, host: Host, core: Agent) -> None:
        self._host = host
        self._core = core

    @property
    def id(self) -> str:
        return self._core.session.id

    @property
    def path(self) -> Path | None:
        """Its file. The file is there from the first event on."""
        return self._core.session.path

    @property
    def events(self) -> Sequence[Event]:
        """The committed events, in order; grows while a turn runs."""
        return self._core.session.events

    def messages(self) -> list[Message]:
        """The history as the model sees it."""
        return self._host.call(self._core.session.messages)

    def __repr__(self) -> str:
        return f"<session {self.id}: {len(self.events)} events>"


class InboxView:
    """What waits to enter an agent's turns."""

    def __init__(self, host: Host, core: Agent) -> None:
        self._host = host
        self._core = core

    @property
    def pending(self) -> list[Pending]:
        """What waits, in the order in which it enters: first what enters the next step, then prompts."""
        return self._host.call(self._read)

    def _read(self) -> list[Pending]:
        inbox = self._core.inbox
        return [
            Pending(message.id, message.text, target)
            for target, messages in (("next-step", inbox.next_step), ("next-turn", inbox.next_turn))
            for message in messages
        ]

    def __repr__(self) -> str:
        return f"<inbox: {len(self.pending)} pending>"


class NotebookAgent:
    """An agent that `%agent create` or `nbagent.create` made.

    Attributes:
        name: What the notebook calls it.
        session: Its log.
        inbox: What is pending.
        host: The thread it lives on.
        core: The agent itself, for code that runs on that thread.
    """

    def __init__(self, host: Host, handle: AgentHandle, name: str) -> None:
        self.host = host
        self.core = handle.agent
        self.name = name
        self.session = SessionView(host, self.core)
        self.inbox = InboxView(host, self.core)
        self._handle = handle
        self._background: list[Run] = []

    @property
    def id(self) -> str:
        """The agent's and the session's id."""
        return self.core.id

    @property
    def status(self) -> str:
        """`idle`, `running` or `disposed`."""
        return "disposed" if self.core.disposed else self.core.status

    @property
    def model(self) -> str:
        """`provider/model`."""
        return f"{self.core.options.provider}/{self.core.options.model}"

    @property
    def tools(self) -> list[str]:
        """Names of its tools."""
        return self.host.call(lambda: [tool.name for tool in self.core.tools.visible()])

    @property
    def turns(self) -> int:
        """How many turns its session has."""
        return self.core.last_turn

    def __repr__(self) -> str:
        turns = self.turns
        return f"<agent {self.name}: {self.status}, {self.model}, {turns} turn{'' if turns == 1 else 's'}>"

    # -- asking --------------------------------------------------------------------------------------------------------

    def run(self, text: str | Message, *, timeout: float | None = None) -> Reply:
        """Send a prompt and wait for its turn.

        An interrupt cancels the turn and raises `KeyboardInterrupt` once it has settled.

        Args:
            text: The prompt.
            timeout: Seconds to wait; the turn goes on afterwards.

        Raises:
            TurnError: The turn ended in an error; the reply so far is its `reply`.
            TimeoutError: It took longer (`WAIT_TIMEOUT`).
            InputError: `EMPTY_PROMPT`.
            LifecycleError: `AGENT_DISPOSED`; `WOULD_DEADLOCK`, called on the agents' own thread or in its own turn.
            StorageError: An event could not be stored.
        """
        self.check_may_wait()
        run = self.launch(text)
        return run.result(timeout)

    async def arun(self, text: str | Message) -> Reply:
        """Like `run`, for async code on any loop; cancelling the awaiting task cancels the turn."""
        self.check_not_own_turn()
        return await self.launch(text)

    def start(self, text: str | Message) -> Run:
        """Send a prompt and return at once; the `Run` tells when its turn is over. Raises like `run`, but no failures."""
        run = self.launch(text)
        self._background = [each for each in self._background if not each.seen]
        self._background.append(run)
        return run

    def followup(self, text: str | Message) -> Message:
        """Queue a prompt that gets a turn of its own; answers the queued message."""
        return self.host.call(self.core.followup, _checked(text))

    def steer(self, text: str | Message) -> Message:
        """Put a message into the running turn, before its next model call; an idle agent begins a turn with it."""
        return self.host.call(self.core.steer, _checked(text))

    def inject(self, text: str | Message) -> Message:
        """Like `steer`, without waking an idle agent."""
        return self.host.call(self.core.inject, _checked(text))

    def launch(self, text: str | Message) -> Run:
        """Send a prompt and follow it; what `run` and `start` are made of."""
        run = Run(self, _checked(text))
        run.begin()
        return run

    def take_background(self) -> list[Run]:
        """The background turns whose outcome nobody has taken, oldest first; they count as taken now."""
        runs = [each for each in self._background if not each.seen]
        self._background = []
        return runs

    def compact(self, *, upto_seq: int | None = None, summary: str | None = None) -> Message:
        """Replace older history by a summary, as `Agent.compact` does; waits for it, an interrupt stops it."""
        self.check_may_wait()

        async def compacted() -> Message:
            return await self.core.compact(upto_seq=upto_seq, summary=summary)

        return self.host.call(compacted)

    def on(self, point: str, listener: Listener) -> Callable[[], None]:
        """Listen to an extension point of this agent; answers a function that removes the listener.

        Listeners run on the agents' own thread; their `payload.agent` is the agent there.

        Raises:
            InputError: `UNKNOWN_EXTENSION_POINT`, `INVALID_LISTENER`.
            LifecycleError: `SCOPE_DISPOSED`, the agent is gone.
        """
        remove = self.host.call(self.core.on, point, listener)
        return lambda: self.host.call(remove)

    # -- stopping ------------------------------------------------------------------------------------------------------

    def cancel(self, *, keep_inbox: bool = False) -> int:
        """Stop what the agent does; answers how many messages remain pending.

        Args:
            keep_inbox: Leave pending input for the next prompt instead of dropping it.
        """

        def stop() -> int:
            self.core.cancel("user", keep_inbox=keep_inbox)
            return len(self.core.inbox.next_turn) + len(self.core.inbox.next_step)

        return self.host.call(stop)

    def wait(self, timeout: float | None = None) -> Reply | None:
        """Wait until the agent is idle; answers the last reply of the turns that `start` began, if any.

        An interrupt ends only the wait: the agent goes on.

        Raises:
            TurnError: One of those turns ended in an error.
            TimeoutError: It took longer than `timeout` seconds; the agent goes on.
        """
        self.check_may_wait()
        future = self.host.submit(self.core.when_idle)
        with Interrupts(patience=1) as interrupts:
            wait(future, interrupts, timeout=timeout)
        check_waited(self, future.done(), interrupts, timeout)
        replies = [run.outcome() for run in self.take_background()]
        return replies[-1] if replies else None

    def dispose(self, *, keep_inbox: bool = False) -> None:
        """End the agent: its turn is cancelled, its file closed, its name freed. The session stays on disk.

        Args:
            keep_inbox: Leave pending input in the session for whoever resumes it.
        """
        self.check_may_wait()
        self.host.call(self._dispose, keep_inbox)
        roster.remove(self)
        shell = current_shell()
        if shell is not None and shell.user_ns.get(self.name) is self:
            del shell.user_ns[self.name]

    def check_may_wait(self) -> None:
        """Raise when the calling code would wait for itself: on the loop's thread, or inside this agent's own turn.

        Raises:
            LifecycleError: `WOULD_DEADLOCK`.
        """
        self.host.check_may_wait()
        self.check_not_own_turn()

    def check_not_own_turn(self) -> None:
        """Raise when the calling code belongs to a turn of this agent.

        Raises:
            LifecycleError: `WOULD_DEADLOCK`.
        """
        from nbagent.agent.initiator import current_agent

        if current_agent() is self.core:
            raise LifecycleError(
                f"{self.name} would wait for a turn of its own that cannot begin before this one ends: in its tools and "
                "listeners use steer or followup",
                code="WOULD_DEADLOCK",
            )

    async def _dispose(self, keep_inbox: bool) -> None:
        await self._handle.dispose(keep_inbox=keep_inbox)

    # -- showing -------------------------------------------------------------------------------------------------------

    def show(self, turn: int | None = None, *, all: bool = False) -> None:
        """Display a turn again, drawn from the log.

        Args:
            turn: Its number; the last one by default.
            all: Show every turn.

        Raises:
            InputError: `UNKNOWN_TURN`.
        """
        publish(self.drawn(turn, all=all))

    def drawn(self, turn: int | None = None, *, all: bool = False) -> Mapping[str, str]:
        """What `show` displays, by mime type."""
        from nbagent.notebook.display import bundle

        transcripts = self.transcripts()
        if turn is not None:
            chosen = [each for each in transcripts if each.turn == turn]
        else:
            chosen = transcripts if all else transcripts[-1:]
        if not chosen:
            there = f"it has {len(transcripts)}" if transcripts else "it has none yet"
            which = "no turn" if turn is None else f"no turn {turn}"
            raise InputError(f'agent "{self.name}" has {which}: {there}', code="UNKNOWN_TURN")
        return bundle(chosen, agent_name=self.name)

    def transcripts(self) -> list[TurnTranscript]:
        """The transcript of every turn in the log, in order."""
        transcripts: list[TurnTranscript] = []
        for event in list(self.session.events):
            if event.type == "turn/start":
                model = transcripts[-1].model if transcripts else ""
                transcripts.append(TurnTranscript())
                transcripts[-1].model = model
            if transcripts:
                transcripts[-1].apply(event)
        return transcripts


def check_waited(agent: NotebookAgent, done: bool, interrupts: Interrupts, timeout: float | None) -> None:
    """Raise when a wait for idleness was ended by an interrupt or a time limit."""
    if interrupts.count:
        raise StoppedByUser(f"no longer waiting; {agent.name} goes on, %agent cancel {agent.name} stops it")
    if not done:
        raise WaitTimeoutError(f'agent "{agent.name}" is still at work after {timeout:g} s; it goes on')


def _checked(text: str | Message) -> str | Message:
    if isinstance(text, str) and not text.strip():
        raise InputError("the prompt is empty: there is nothing to send", code="EMPTY_PROMPT")
    return text
