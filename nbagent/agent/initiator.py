"""Which agent's driver is running here: for code that is called from a turn without being handed its agent."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from nbagent.errors import LifecycleError

if TYPE_CHECKING:
    from nbagent.agent.agent import Agent

__all__ = ("current_agent", "initiating", "require_agent")

_current: ContextVar[Agent | None] = ContextVar("nbagent_initiating_agent", default=None)


def current_agent() -> Agent | None:
    """The agent whose driver runs the calling code, or none."""
    return _current.get()


def require_agent() -> Agent:
    """The agent whose driver runs the calling code.

    Raises:
        LifecycleError: `NO_INITIATING_AGENT`, called outside a turn.
    """
    agent = _current.get()
    if agent is None:
        raise LifecycleError(
            "no initiating agent is active: call this from a tool or a listener of a turn", code="NO_INITIATING_AGENT"
        )
    return agent


@contextmanager
def initiating(agent: Agent) -> Generator[None]:
    """Make `agent` the initiator of what runs inside."""
    token = _current.set(agent)
    try:
        yield
    finally:
        _current.reset(token)
