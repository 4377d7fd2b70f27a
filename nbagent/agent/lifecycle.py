"""How agents come and go: create and resume publish completely or leave nothing; teardown happens once."""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from nbagent.agent.agent import Agent, AgentOptions
from nbagent.agent.initiator import current_agent
from nbagent.agent.points import AgentCreated, AgentDisposed, SessionNotice
from nbagent.agent.registry import AgentTable
from nbagent.agent.scope import Scope
from nbagent.cancellation import CancelSignal, Interrupted
from nbagent.errors import InputError, LifecycleError, SessionError, StorageError
from nbagent.session import Session
from nbagent.session.repair import interrupted_turn_closers
from nbagent.storage import Handle
from nbagent.tools import as_tool
from nbagent.types.events import Event, SessionHeader

if TYPE_CHECKING:
    from nbagent.agent.runtime import Runtime

__all__ = ("AgentHandle", "Agents")

Setup = Callable[[Scope, Agent], Awaitable[Any]]


class AgentHandle:
    """Ownership of a live agent."""

    def __init__(self, agent: Agent, storage: Handle, detach: Sequence[Callable[[], None]]) -> None:
        self.agent = agent
        self._storage = storage
        self._detach = detach
        self._started = False
        self._done = anyio.Event()
        self._failures: list[Exception] = []

    @property
    def dropped_tail(self) -> bool:
        """Whether the stored session ended in a record that was cut in the middle; it is dropped."""
        return self._storage.dropped_tail

    async def dispose(self, *, keep_inbox: bool = False) -> None:
        """Stop the agent, end its turn in the log, close its file. Every call waits for the same teardown.

        Args:
            keep_inbox: Leave pending input in the session for whoever resumes it.

        Raises:
            LifecycleError: `DISPOSE_FROM_WITHIN`, called by the agent's own turn.
            Exception: What failed on the way; every stage was still run.
        """
        if current_agent() is self.agent:
            raise LifecycleError(
                f'agent "{self.agent.id}" cannot be disposed by its own turn: cancel it, or conclude the turn first',
                code="DISPOSE_FROM_WITHIN",
            )
        if self._started:
            await self._done.wait()
        else:
            self._started = True
            with anyio.CancelScope(shield=True):
                await self._tear_down(keep_inbox=keep_inbox)
            self._done.set()
        if len(self._failures) == 1:
            raise self._failures[0]
        if self._failures:
            raise ExceptionGroup(f'agent "{self.agent.id}" disposal failed', self._failures)

    async def _tear_down(self, *, keep_inbox: bool) -> None:
        agent = self.agent
        runtime = agent.runtime
        await self._stage(lambda: agent.cancel("disposed", keep_inbox=keep_inbox))
        await self._stage(agent.when_idle)
        agent.close()
        await self._stage(self._storage.close)
        for detach in self._detach:
            await self._stage(detach)
        agent.hooks.notify("agent/disposed", AgentDisposed(agent))
        agent.hooks.notify("session/disposed", SessionNotice(agent.session, agent))
        runtime.projections.detach(agent.session)
        await self._stage(agent.scope.aclose)

    async def _stage(self, stage: Callable[[], Any]) -> None:
        try:
            result = stage()
            if inspect.isawaitable(result):
                await result
        except Exception as failure:
            self._failures.append(failure)


class Agents(AgentTable):
    """The agents of a runtime: create, resume, find."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self._runtime = runtime
        self._handles: dict[str, AgentHandle] = {}

    async def create(
        self,
        session_id: str | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        system: str | Callable[..., Any] | None = None,
        tools: Sequence[Any] = (),
        reasoning_effort: str | None = None,
        max_tokens: int | None = None,
        cwd: str | Path | None = None,
        max_steps: int | None = None,
        max_parallel_tool_calls: int | None = None,
        setup: Setup | None = None,
        signal: CancelSignal | None = None,
        parent: Agent | None = None,
        header: dict[str, Any] | None = None,
    ) -> AgentHandle:
        """A new agent on a new session.

        Args:
            session_id: Its id; a fresh one by default.
            provider: Route to the model, as registered in `runtime.llm`.
            model: Model name on that route.
            system: System prompt, or a function called once a step that answers it.
            tools: Tools, or functions that become tools.
            reasoning_effort: Effort asked of the model.
            max_tokens: Cap on the tokens of an answer.
            cwd: Working directory recorded in the session, absolute.
            max_steps: Model calls that one turn may make.
            max_parallel_tool_calls: Overrides the runtime's limit for this agent.
            setup: `async def setup(scope, agent)`, run before anybody sees the agent; it may answer a plain function
                that is called right before publication.
            signal: Abandons the creation; so does cancelling the awaiting task.
            parent: The agent that this one works for, recorded in the session.
            header: More fields of the session header.

        Raises:
            InputError: `INVALID_OPTION`, `INVALID_SESSION_ID`.
            LifecycleError: `SESSION_ALREADY_EXISTS`, `CREATION_ABORTED`, `RUNTIME_CLOSED`.
            StorageError: The session cannot be stored.
        """
        options = _options(provider, model, reasoning_effort, max_tokens, max_steps, max_parallel_tool_calls)
        self._check_free(session_id)
        _check_signal(signal, session_id or "")
        fields: dict[str, Any] = {"cwd": str(cwd) if cwd is not None else None, **(header or {})}
        if parent is not None:
            depth = parent.session.header.get("delegationDepth", 0)
            fields.update(parentSession=parent.session.id, origin="subagent", delegationDepth=depth + 1)
        session_header = SessionHeader.new(session_id or f"session-{uuid.uuid4().hex[:12]}", self._now(), **fields)
        storage = await self._runtime.store.create(session_header)

        def session() -> Session:
            return Session(session_header, clock=self._runtime.clock)

        return await self._publish(session, storage, 0, "create", options, system, tools, setup, signal)

    async def resume(
        self,
        session_id: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        system: str | Callable[..., Any] | None = None,
        tools: Sequence[Any] = (),
        reasoning_effort: str | None = None,
        max_tokens: int | None = None,
        max_steps: int | None = None,
        max_parallel_tool_calls: int | None = None,
        setup: Setup | None = None,
        signal: CancelSignal | None = None,
    ) -> AgentHandle:
        """An agent that goes on with a stored session: an interrupted turn is closed, pending input is kept.

        Without `provider` and `model` the last ones of the session are used. Arguments and errors as in `create`;
        pending input does not wake the agent by itself.

        Raises:
            StorageError: `SESSION_NOT_FOUND`, `SESSION_LOCKED`, `SESSION_DAMAGED`, `SESSION_FORMAT`.
        """
        options = _options(provider, model, reasoning_effort, max_tokens, max_steps, max_parallel_tool_calls)
        self._check_free(session_id)
        _check_signal(signal, session_id)
        storage = await self._runtime.store.open(session_id, "write")
        stored: list[Event] = []
        try:
            stored = await storage.read()
            closers = interrupted_turn_closers(stored)
            if closers:
                storage.append(closers)
                stored = [*stored, *closers]
        except BaseException:
            await _close_quietly(storage)
            raise

        def session() -> Session:
            try:
                return Session(storage.header, stored, clock=self._runtime.clock)
            except SessionError as fault:
                raise _damaged(storage, fault) from fault

        return await self._publish(session, storage, len(stored), "resume", options, system, tools, setup, signal)

    def handle(self, agent_id: str) -> AgentHandle | None:
        """The handle of a live agent, or none."""
        return self._handles.get(agent_id)

    async def dispose_all(self) -> None:
        """Tear every agent down and leave pending input in the sessions; the first failure is raised at the end."""
        failures: list[Exception] = []
        for handle in list(self._handles.values()):
            try:
                await handle.dispose(keep_inbox=True)
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    async def _publish(
        self,
        make_session: Callable[[], Session],
        storage: Handle,
        stored: int,
        source: str,
        options: AgentOptions,
        system: str | Callable[..., Any] | None,
        tools: Sequence[Any],
        setup: Setup | None,
        signal: CancelSignal | None,
    ) -> AgentHandle:
        runtime = self._runtime
        undo: list[Callable[[], Any]] = [storage.close]
        try:
            session = make_session()
            session.path = storage.path
            scope = Scope(runtime.scope)
            session.hooks = scope.hooks
            runtime.projections.attach(session)
            undo.append(lambda: runtime.projections.detach(session))
            agent = Agent(runtime, session, scope, _with_stored_model(options, session))
            undo += [scope.aclose, agent.close]
            maintenance = agent.begin_maintenance()
            for each in tools:
                scope.tools.register(as_tool(each))
            if system:
                scope.prompt.section("system", system)
            commit = await _set_up(setup, scope, agent, signal)
            if commit is not None:
                commit()
            if len(session.events) > stored:
                storage.append(list(session.events)[stored:])
            session.storage = lambda event: storage.append([event])
            detach_session = runtime.sessions.enter(session)
            undo.append(detach_session)
            detach_agent = self.enter(agent)
            undo.append(detach_agent)
            for listener in scope.hooks.listeners("session/created"):
                undo.append(lambda: scope.hooks.notify("session/disposed", SessionNotice(session, agent)))
                listener(SessionNotice(session, agent))
            undo.append(lambda: scope.hooks.notify("agent/disposed", AgentDisposed(agent)))
            await _raced(lambda: scope.hooks.serial("agent/created", AgentCreated(agent, source)), signal, agent.id)
            runtime.check_active()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await _unwind(undo)
            raise

        def forget() -> None:
            if self._handles.get(agent.id) is handle:
                del self._handles[agent.id]

        forget_storage = runtime.remember(session, storage)
        handle = AgentHandle(agent, storage, [forget, forget_storage, detach_agent, detach_session])
        self._handles[agent.id] = handle
        agent.converge(maintenance)
        return handle

    def _check_free(self, session_id: str | None) -> None:
        self._runtime.check_thread()
        self._runtime.check_active()
        if session_id is not None and self.get(session_id) is not None:
            raise LifecycleError(f'session "{session_id}" already exists', code="SESSION_ALREADY_EXISTS")

    def _now(self) -> int:
        return self._runtime.clock() if self._runtime.clock is not None else time.time_ns() // 1_000_000


def _options(
    provider: str | None,
    model: str | None,
    reasoning_effort: str | None,
    max_tokens: int | None,
    max_steps: int | None,
    max_parallel_tool_calls: int | None,
) -> AgentOptions:
    counts = {"maxTokens": max_tokens, "maxSteps": max_steps, "maxParallelToolCalls": max_parallel_tool_calls}
    for name, value in counts.items():
        if value is not None and (type(value) is not int or not 0 < value < 2**53):
            raise InputError(f"agent {name} must be a positive safe integer, got {value!r}", code="INVALID_OPTION")
    if reasoning_effort == "":
        raise InputError("agent reasoningEffort must not be empty", code="INVALID_OPTION")
    return AgentOptions(provider, model, reasoning_effort, max_tokens, max_steps, max_parallel_tool_calls)


def _with_stored_model(options: AgentOptions, session: Session) -> AgentOptions:
    header = session.request_header()
    if options.provider is not None or options.model is not None or header is None:
        return options
    config = header["config"]
    return AgentOptions(
        config["provider"],
        config["model"],
        options.reasoning_effort,
        options.max_tokens,
        options.max_steps,
        options.max_parallel_tool_calls,
    )


def _check_signal(signal: CancelSignal | None, agent_id: str) -> None:
    if signal is not None and signal.aborted:
        raise _creation_aborted(signal, agent_id)


def _damaged(storage: Handle, fault: SessionError) -> StorageError:
    seq = fault.seq or 0
    # A file has its header in line 1 and the first event, seq 0, in line 2.
    where = f"session file {storage.path} is damaged in line {seq + 2}" if storage.path else f"event {seq} is damaged"
    return StorageError(
        f"{where} ({fault.message}); it is left as it is: restore it from a copy, or go on in a new session",
        code="SESSION_DAMAGED",
    )


def _creation_aborted(signal: CancelSignal | None, agent_id: str) -> BaseException:
    reason = signal.reason if signal is not None else None
    if isinstance(reason, BaseException):
        return reason
    because = f": {reason}" if reason is not None else ""
    return LifecycleError(f'agent "{agent_id}" creation aborted{because}', code="CREATION_ABORTED")


async def _set_up(setup: Setup | None, scope: Scope, agent: Agent, signal: CancelSignal | None) -> Any:
    if setup is None:
        _check_signal(signal, agent.id)
        return None
    commit = await _raced(lambda: setup(scope, agent), signal, agent.id)
    agent.runtime.check_active()
    return commit if callable(commit) else None


async def _raced(work: Callable[[], Awaitable[Any]], signal: CancelSignal | None, agent_id: str) -> Any:
    if signal is None:
        return await work()
    try:
        result = await signal.run(work)
    except Interrupted:
        raise _creation_aborted(signal, agent_id) from None
    _check_signal(signal, agent_id)
    return result


async def _unwind(undo: list[Callable[[], Any]]) -> None:
    for step in reversed(undo):
        try:
            result = step()
            if inspect.isawaitable(result):
                await result
        except Exception:  # noqa: S112 - the caller gets the failure that began the rollback
            continue


async def _close_quietly(storage: Handle) -> None:
    with anyio.CancelScope(shield=True):
        await _unwind([storage.close])
