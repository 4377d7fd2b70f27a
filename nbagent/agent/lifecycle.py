"""How agents come: create, resume and fork publish completely or leave nothing."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from nbagent.agent.agent import Agent
from nbagent.agent.budget import check_price
from nbagent.agent.creation import Creation
from nbagent.agent.handle import AgentHandle, raise_collected
from nbagent.agent.options import AgentChoices, AgentOptions
from nbagent.agent.points import AgentCreated, AgentDisposed, SessionNotice
from nbagent.agent.registry import AgentTable
from nbagent.agent.scope import Scope
from nbagent.errors import LifecycleError, SessionError, StorageError
from nbagent.session import Session
from nbagent.session.repair import interrupted_turn_closers
from nbagent.storage import Handle
from nbagent.tools import as_tool
from nbagent.types.events import Event, SessionHeader

if TYPE_CHECKING:
    from nbagent.agent.runtime import Runtime

__all__ = ("Agents",)


class Agents(AgentTable):
    """The agents of a runtime: create, resume, fork, find."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self._runtime = runtime
        self._handles: dict[str, AgentHandle] = {}
        self._creations: list[Creation] = []

    async def create(
        self,
        session_id: str | None = None,
        *,
        cwd: str | Path | None = None,
        header: Mapping[str, Any] | None = None,
        **choices: Unpack[AgentChoices],
    ) -> AgentHandle:
        """A new agent on a new session.

        Args:
            session_id: Its id; a fresh one by default.
            cwd: Working directory recorded in the session, absolute.
            header: More fields of the session header.
            **choices: See `AgentChoices`.

        Raises:
            InputError: `INVALID_OPTION`, `INVALID_SESSION_ID`, `UNKNOWN_PRICE`.
            LifecycleError: `SESSION_ALREADY_EXISTS`, `CREATION_ABORTED`, `OWNER_DISPOSED`, `RUNTIME_CLOSED`.
            StorageError: The session cannot be stored.
        """
        options = self._checked(session_id, choices)
        parent = choices.get("parent")
        fields: dict[str, Any] = {"cwd": str(cwd) if cwd is not None else None, **(header or {})}
        if parent is not None:
            depth = parent.session.header.get("delegationDepth", 0)
            fields.update(parentSession=parent.session.id, origin="subagent", delegationDepth=depth + 1)
        session_header = self._header(session_id, fields)

        async def begin(creation: Creation) -> tuple[Handle, Session, int]:
            storage = await creation.opened(lambda: self._runtime.store.create(session_header))
            return storage, self._session(session_header, None), 0

        return await self._make(session_header.id, "create", options, choices, begin)

    async def resume(self, session_id: str, **choices: Unpack[AgentChoices]) -> AgentHandle:
        """An agent that goes on with a stored session: an interrupted turn is closed, pending input is kept.

        Without `provider` and `model` the last ones of the session are used. Pending input does not wake the agent by
        itself.

        Args:
            session_id: The session.
            **choices: See `AgentChoices`.

        Raises:
            InputError, LifecycleError: As `create`.
            StorageError: `SESSION_NOT_FOUND`, `SESSION_LOCKED`, `SESSION_DAMAGED`, `SESSION_FORMAT`.
        """
        options = self._checked(session_id, choices)

        async def begin(creation: Creation) -> tuple[Handle, Session, int]:
            storage = await creation.opened(lambda: self._runtime.store.open(session_id, "write"))
            stored = await creation.stage(storage.read)
            closers = interrupted_turn_closers(stored)
            if closers:
                storage.append(closers)
                stored = [*stored, *closers]
            try:
                return storage, self._session(storage.header, stored), len(stored)
            except SessionError as fault:
                raise _damaged(storage, fault) from fault

        return await self._make(session_id, "resume", options, choices, begin)

    def handle(self, agent_id: str) -> AgentHandle | None:
        """The handle of a live agent, or none."""
        return self._handles.get(agent_id)

    async def dispose_all(self) -> None:
        """Abandon what is being created and tear every agent down; pending input stays in the sessions."""
        failures = await self._dispose(None, keep_inbox=True)
        raise_collected("*", failures)

    async def dispose_owned(self, owner: Agent, *, keep_inbox: bool) -> None:
        """The same for what goes away with `owner`."""
        failures = await self._dispose(owner, keep_inbox=keep_inbox)
        raise_collected(owner.id, failures)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _dispose(self, owner: Agent | None, *, keep_inbox: bool) -> list[Exception]:
        for creation in [each for each in self._creations if owner is None or each.parent is owner]:
            creation.abandon(self._abandonment(creation, owner))
            await creation.done.wait()
        failures: list[Exception] = []
        for handle in [each for each in self._handles.values() if owner is None or each.agent.parent is owner]:
            try:
                await handle.dispose(keep_inbox=keep_inbox)
            except Exception as failure:
                failures.append(failure)
        return failures

    def _abandonment(self, creation: Creation, owner: Agent | None) -> LifecycleError:
        if owner is None:
            return self._runtime.closed()
        return LifecycleError(
            f'agent "{creation.agent_id}" setup aborted: owner disposed during setup', code="OWNER_DISPOSED"
        )

    async def _make(
        self,
        agent_id: str,
        source: str,
        options: AgentOptions,
        choices: AgentChoices,
        begin: Callable[[Creation], Awaitable[tuple[Handle, Session, int]]],
    ) -> AgentHandle:
        """The way to publication that all agents take; `begin` answers the session and how much of it is stored."""
        creation = Creation(self._runtime, agent_id, choices.get("parent"), choices.get("signal"))
        self._creations.append(creation)
        try:
            async with creation:
                storage, session, stored = await begin(creation)
                return await self._publish(creation, storage, session, stored, source, options, choices)
        finally:
            self._creations.remove(creation)

    async def _publish(
        self,
        creation: Creation,
        storage: Handle,
        session: Session,
        stored: int,
        source: str,
        options: AgentOptions,
        choices: AgentChoices,
    ) -> AgentHandle:
        runtime = self._runtime
        session.path = storage.path
        scope = Scope(creation.parent.scope if creation.parent is not None else runtime.scope)
        session.hooks = scope.hooks
        runtime.projections.attach(session)
        creation.undo(lambda: runtime.projections.detach(session))
        agent = Agent(runtime, session, scope, options.with_stored_model(session.request_header()), creation.parent)
        maintenance = agent.begin_maintenance()
        creation.undo(scope.aclose)
        creation.undo(lambda: agent.converge(maintenance))
        creation.undo(agent.close)
        check_price(runtime, agent.options)
        for each in choices.get("tools", ()):
            scope.tools.register(as_tool(each))
        system = choices.get("system")
        if system:
            scope.prompt.section("system", system)
        setup = choices.get("setup")
        commit: Any = await creation.stage(lambda: setup(scope, agent)) if setup is not None else None
        creation.check()
        if callable(commit):
            commit()
        if len(session.events) > stored:
            storage.append(list(session.events)[stored:])
        session.storage = lambda event: storage.append([event])
        detach_session = runtime.sessions.enter(session)
        creation.undo(detach_session)
        detach_agent = self.enter(agent)
        creation.undo(detach_agent)
        await _announce(creation, agent, source)

        def forget() -> None:
            if self._handles.get(agent.id) is handle:
                del self._handles[agent.id]

        forget_storage = runtime.sessions.keep(session, storage)
        handle = AgentHandle(agent, storage, [forget, forget_storage, detach_agent, detach_session])
        self._handles[agent.id] = handle
        agent.converge(maintenance)
        return handle

    def _session(self, header: SessionHeader, events: Sequence[Event] | None) -> Session:
        return Session(header, events, clock=self._runtime.clock)

    def _header(self, session_id: str | None, fields: Mapping[str, Any]) -> SessionHeader:
        clock = self._runtime.clock
        now = clock() if clock is not None else time.time_ns() // 1_000_000
        return SessionHeader.new(session_id or f"session-{uuid.uuid4().hex[:12]}", now, **fields)

    def _checked(self, session_id: str | None, choices: AgentChoices) -> AgentOptions:
        """The options of the choices, when an agent of that id can be made now."""
        self._runtime.check_thread()
        self._runtime.check_active()
        options = AgentOptions.of(choices)
        parent = choices.get("parent")
        if parent is not None:
            parent.check_usable()
        if session_id is not None and self.get(session_id) is not None:
            raise LifecycleError(f'session "{session_id}" already exists', code="SESSION_ALREADY_EXISTS")
        return options


async def _announce(creation: Creation, agent: Agent, source: str) -> None:
    """Tell of the new session and agent; a listener's raise is a veto. What was announced is taken back as disposed."""
    hooks = agent.hooks
    notice = SessionNotice(agent.session, agent)
    creation.undo(lambda: hooks.notify("session/disposed", notice))
    for listener in hooks.listeners("session/created"):
        listener(notice)
        creation.check()
    creation.undo(lambda: hooks.notify("agent/disposed", AgentDisposed(agent)))
    for listener in hooks.listeners("agent/created"):
        await creation.stage(partial(listener, AgentCreated(agent, source)))


def _damaged(storage: Handle, fault: SessionError) -> StorageError:
    seq = fault.seq or 0
    # A file has its header in line 1 and the first event, seq 0, in line 2.
    where = f"session file {storage.path} is damaged in line {seq + 2}" if storage.path else f"event {seq} is damaged"
    return StorageError(
        f"{where} ({fault.message}); it is left as it is: restore it from a copy, or go on in a new session",
        code="SESSION_DAMAGED",
    )
