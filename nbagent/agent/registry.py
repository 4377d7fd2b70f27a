"""The live agents and sessions of a runtime, by id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nbagent.errors import LifecycleError
from nbagent.session import Session

if TYPE_CHECKING:
    from nbagent.agent.agent import Agent

__all__ = ("AgentTable", "SessionTable")


class SessionTable:
    """The sessions that are live in this runtime."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

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
