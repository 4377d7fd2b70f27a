"""The live agents and sessions of a runtime, by id."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from nbagent.agent.points import SessionNotice
from nbagent.errors import LifecycleError
from nbagent.hooks import Hooks
from nbagent.session import Session
from nbagent.storage import Handle

if TYPE_CHECKING:
    from nbagent.agent.agent import Agent

__all__ = ("AgentTable", "SessionTable")


class SessionTable:
    """The sessions that are live in this runtime.

    Args:
        hooks: Whose `session/flush` listeners take part in the flush of a session without listeners of its own.
    """

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._sessions: dict[str, Session] = {}
        self._storage: dict[Session, Handle] = {}

    def get(self, session_id: str) -> Session | None:
        """The live session of this id, or none."""
        return self._sessions.get(session_id)

    def list(self) -> list[Session]:
        """The live sessions, oldest first."""
        return list(self._sessions.values())

    def enter(self, session: Session) -> Callable[[], None]:
        """Make a session known; answers a function that takes exactly this object out again.

        Raises:
            LifecycleError: `SESSION_ALREADY_EXISTS`, another session of that id is live.
        """
        if session.id in self._sessions:
            raise LifecycleError(f'session "{session.id}" already exists', code="SESSION_ALREADY_EXISTS")
        self._sessions[session.id] = session
        return lambda: self.detach(session)

    def detach(self, session: Session) -> None:
        """Take a session out; does nothing when another object has its id by now."""
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]

    def keep(self, session: Session, storage: Handle) -> Callable[[], None]:
        """Know where a session is kept, to flush it; answers a function that forgets it."""
        self._storage[session] = storage

        def forget() -> None:
            self._storage.pop(session, None)

        return forget

    async def flush(self, session: Session) -> bool:
        """Make a session safe against a power failure: its storage and all `session/flush` listeners, side by side.

        Answers whether anybody took part.

        Raises:
            Exception: The first failure, once all of them have ended.
        """
        notice = SessionNotice(session)
        work: list[Callable[[], Any]] = [
            partial(listener, notice) for listener in (session.hooks or self._hooks).listeners("session/flush")
        ]
        storage = self._storage.get(session)
        if storage is not None:
            work.insert(0, storage.flush)
        failures: list[Exception] = []

        async def take_part(flush: Callable[[], Any]) -> None:
            try:
                answer = flush()
                if inspect.isawaitable(answer):
                    await answer
            except Exception as failure:
                failures.append(failure)

        if len(work) == 1:
            await take_part(work[0])
        else:
            async with anyio.create_task_group() as group:
                for each in work:
                    group.start_soon(take_part, each)
        if failures:
            raise failures[0]
        return bool(work)


class AgentTable:
    """The agents that are live in this runtime."""

    def __init__(self) -> None:
        self._agents: dict[str, Agent] = {}

    def get(self, agent_id: str) -> Agent | None:
        """The live agent of this id, or none."""
        return self._agents.get(agent_id)

    def list(self) -> list[Agent]:
        """The live agents, oldest first."""
        return list(self._agents.values())

    def enter(self, agent: Agent) -> Callable[[], None]:
        """Make an agent known; answers a function that takes exactly this object out again."""
        self._agents[agent.id] = agent

        def detach() -> None:
            if self._agents.get(agent.id) is agent:
                del self._agents[agent.id]

        return detach
