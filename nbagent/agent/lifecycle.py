"""How agents come: create, resume and fork publish completely or leave nothing."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from nbagent.agent.agent import Agent
from nbagent.agent.creation import Creation
from nbagent.agent.handle import AgentHandle, raise_collected
from nbagent.agent.options import AgentChoices, AgentOptions
from nbagent.agent.publication import publish
from nbagent.agent.registry import AgentTable
from nbagent.errors import LifecycleError, SessionError
from nbagent.session import Session
from nbagent.session.fork import fork_events
from nbagent.session.repair import interrupted_turn_closers
from nbagent.storage import Handle
from nbagent.storage.damage import unreadable_log
from nbagent.storage.store import check_session_id
from nbagent.types.events import Event, SessionHeader

if TYPE_CHECKING:
    from nbagent.agent.declared import DeclaredAgent
    from nbagent.agent.runtime import Runtime

__all__ = ("Agents",)


class Agents(AgentTable):
    """The agents of a runtime: create, resume, fork, start what is declared, find."""

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
            fields.update(parentSession=parent.session.id, **_delegation(parent))
        session_header = self._header(session_id, fields)

        async def begin(creation: Creation) -> tuple[Handle, Session, int]:
            storage = await creation.opened(lambda: self._runtime.store.create(session_header))
            return storage, self._session(session_header, None, None), 0

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
            return storage, self._session(storage.header, stored, storage.path), len(stored)

        return await self._make(session_id, "resume", options, choices, begin)

    async def fork(
        self,
        source: str | Session,
        *,
        session_id: str | None = None,
        at_seq: int | None = None,
        **choices: Unpack[AgentChoices],
    ) -> AgentHandle:
        """An agent on a new session that begins with the log of another one, which stays as it is.

        A turn that is open at the boundary is closed in the branch. Input that was pending there is pending in the
        branch, and does not wake the agent by itself. Without `provider` and `model` the last ones of the log are used.

        Args:
            source: Id of a live or stored session, also one that another process writes; or a live session.
            session_id: Id of the branch; a fresh one by default.
            at_seq: Seq of the last inherited event; the last one of the log by default.
            **choices: See `AgentChoices`.

        Raises:
            SessionError: `INVALID_BOUNDARY`.
            LifecycleError: `SESSION_NOT_LIVE`, and as `create`.
            InputError, StorageError: As `create` and `resume`.
        """
        options = self._checked(session_id, choices)
        live = self._runtime.sessions.get(source) if isinstance(source, str) else source
        if live is not None and self._runtime.sessions.get(live.id) is not live:
            raise LifecycleError(
                f'session "{live.id}" is not live in this runtime: fork it by its id', code="SESSION_NOT_LIVE"
            )
        child_id = session_id if session_id is not None else _fresh_id()

        async def begin(creation: Creation) -> tuple[Handle, Session, int]:
            if live is not None:
                origin, events = live, list(live.events)
            else:
                origin = await creation.opened(lambda: self._runtime.store.open(str(source), "read"))
                events = await creation.stage(origin.read)
                await origin.close()
            header = self._header(child_id, _branch_fields(origin.header, choices.get("parent")))
            storage = await creation.opened(lambda: self._runtime.store.create(header))
            session = self._session(header, fork_events(events, at_seq), origin.path, inherited=True)
            return storage, session, 0

        return await self._make(child_id, "fork", options, choices, begin)

    async def start(self, declared: Iterable[DeclaredAgent | Mapping[str, Any]]) -> list[AgentHandle]:
        """Start the agents of a configuration, as `read_agents` reads it from a file; answers those that started.

        An agent that cannot be started is logged and told to `agent-loop/config-start-failed` listeners. One whose
        session is being closed waits for that.

        Args:
            declared: See `DeclaredAgent`.

        Raises:
            InputError: `INVALID_CONFIG`, `INVALID_OPTION`, `INVALID_SESSION_ID`; nothing was started.
            LifecycleError: `RUNTIME_CLOSED`, `WRONG_THREAD`.
        """
        # Imported here because whoever declares nothing needs no validation library.
        from nbagent.agent.declared import declared_agents
        from nbagent.agent.startup import start_declared

        self._runtime.check_thread()
        self._runtime.check_active()
        return await start_declared(self._runtime, declared_agents(declared))

    def handle(self, agent_id: str) -> AgentHandle | None:
        """The handle of a live agent, or none."""
        return self._handles.get(agent_id)

    def keep(self, handle: AgentHandle) -> None:
        """Know the handle of a new agent."""
        self._handles[handle.agent.id] = handle

    def forget(self, handle: AgentHandle) -> None:
        """Forget exactly this handle."""
        if self._handles.get(handle.agent.id) is handle:
            del self._handles[handle.agent.id]

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
                return await publish(self._runtime, creation, storage, session, stored, source, options, choices)
        finally:
            self._creations.remove(creation)

    def _session(
        self, header: SessionHeader, events: Sequence[Event] | None, path: Path | None, *, inherited: bool = False
    ) -> Session:
        """The session of a stored log, or a fresh one; `path` is where the log is kept."""
        runtime = self._runtime
        try:
            return Session(
                header,
                events,
                clock=runtime.clock,
                inherited=inherited,
                message_projections=runtime.message_projections,
            )
        except SessionError as fault:
            raise unreadable_log(path, fault) from fault

    def _header(self, session_id: str | None, fields: Mapping[str, Any]) -> SessionHeader:
        clock = self._runtime.clock
        now = clock() if clock is not None else time.time_ns() // 1_000_000
        return SessionHeader.new(session_id if session_id is not None else _fresh_id(), now, **fields)

    def _checked(self, session_id: str | None, choices: AgentChoices) -> AgentOptions:
        """The options of the choices, when an agent of that id can be made now."""
        self._runtime.check_thread()
        self._runtime.check_active()
        options = AgentOptions.of(choices)
        parent = choices.get("parent")
        if parent is not None:
            parent.check_usable()
        if session_id is not None:
            check_session_id(session_id)
            if self.get(session_id) is not None:
                raise LifecycleError(f'session "{session_id}" already exists', code="SESSION_ALREADY_EXISTS")
        return options


def _fresh_id() -> str:
    return f"session-{uuid.uuid4().hex[:12]}"


def _delegation(parent: Agent) -> dict[str, Any]:
    """The header fields of a session whose agent works for `parent`."""
    return {"origin": "subagent", "delegationDepth": parent.session.header.get("delegationDepth", 0) + 1}


def _branch_fields(source: SessionHeader, parent: Agent | None) -> dict[str, Any]:
    kept = {name: source[name] for name in source if name not in {"version", "id", "createdAt"}}
    lineage = {"parentSession": source.id, "isSeeded": True}
    return {**kept, **lineage, **(_delegation(parent) if parent is not None else {})}
