"""The agents of this kernel by name. Survives a reload of the extension, because agents do."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from nbagent.errors import InputError
from nbagent.notebook.parser import near

if TYPE_CHECKING:
    from nbagent.notebook.notebook_agent import NotebookAgent

__all__ = ("Roster", "roster")


class Roster:
    """Names and who has them. Any thread may use it.

    Attributes:
        current: Name of the agent used last, which is meant when no name is given.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._agents: dict[str, NotebookAgent] = {}
        self.current: str | None = None

    @property
    def names(self) -> list[str]:
        """Names of the live agents, oldest first."""
        with self._lock:
            return list(self._agents)

    def all(self) -> list[NotebookAgent]:
        """The live agents, oldest first."""
        with self._lock:
            return list(self._agents.values())

    def get(self, name: str) -> NotebookAgent | None:
        """The live agent of that name, or none."""
        with self._lock:
            return self._agents.get(name)

    def add(self, agent: NotebookAgent) -> None:
        """Give an agent its name, and make it the one used last."""
        with self._lock:
            self._agents[agent.name] = agent
            self.current = agent.name

    def remove(self, agent: NotebookAgent) -> None:
        """Free the name of an agent, unless another one has it by now."""
        with self._lock:
            if self._agents.get(agent.name) is agent:
                del self._agents[agent.name]
            if self.current == agent.name and agent.name not in self._agents:
                self.current = next(reversed(self._agents), None)

    def find(self, name: str | None) -> NotebookAgent:
        """The agent of a name, or the one used last; it becomes the one used last.

        Raises:
            InputError: `UNKNOWN_AGENT`.
        """
        with self._lock:
            wanted = name if name is not None else self.current
            agent = self._agents.get(wanted) if wanted is not None else None
            if agent is not None:
                self.current = agent.name
                return agent
            live = list(self._agents)
        if name is None:
            raise InputError("there is no agent yet: %agent create NAME makes one", code="UNKNOWN_AGENT")
        there = f"Live: {', '.join(live)}." if live else "There is none yet."
        raise InputError(
            f'no agent is named "{name}".{near(name, live)} {there} %agent create NAME makes one.', code="UNKNOWN_AGENT"
        )


roster = Roster()
"""The agents of this process."""
