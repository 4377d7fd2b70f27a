"""The handle of a live agent: who has it decides when the agent goes away."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import anyio

from nbagent.agent.agent import Agent
from nbagent.agent.initiator import current_agent
from nbagent.agent.points import AgentDisposed, SessionNotice
from nbagent.errors import LifecycleError
from nbagent.storage import Handle

__all__ = ("AgentHandle", "raise_collected")


class AgentHandle:
    """Ownership of a live agent.

    Args:
        agent: The agent.
        storage: Its session's store handle.
        detach: What takes agent and session out of the runtime, in order.

    Attributes:
        agent: The agent.
    """

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

    @property
    def disposing(self) -> bool:
        """Whether the teardown has begun."""
        return self._started

    async def when_disposed(self) -> None:
        """Wait until nothing is left of the agent. Never raises a failure of its teardown."""
        await self._done.wait()

    async def dispose(self, *, keep_inbox: bool = False) -> None:
        """Stop the agent and those that work for it, end its turn in the log, close its file.

        Every call waits for the same teardown.

        Args:
            keep_inbox: Leave pending input in the session for whoever resumes it.

        Raises:
            LifecycleError: `DISPOSE_FROM_WITHIN`, called by the agent's own turn, or by one that works for it.
            Exception: What failed on the way; every stage was still run.
        """
        if self._started and self._done.is_set():
            raise_collected(self.agent.id, self._failures)
            return
        caller = current_agent()
        while caller is not None:
            if caller is self.agent:
                raise LifecycleError(
                    f'agent "{self.agent.id}" cannot be disposed by its own turn: cancel it, or conclude the turn first',
                    code="DISPOSE_FROM_WITHIN",
                )
            caller = caller.parent
        if self._started:
            await self._done.wait()
        else:
            self._started = True
            with anyio.CancelScope(shield=True):
                await self._tear_down(keep_inbox=keep_inbox)
            self._done.set()
        raise_collected(self.agent.id, self._failures)

    async def _tear_down(self, *, keep_inbox: bool) -> None:
        agent = self.agent
        runtime = agent.runtime
        await self._stage(lambda: runtime.agents.dispose_owned(agent, keep_inbox=keep_inbox))
        await self._stage(lambda: agent.cancel("disposed", keep_inbox=keep_inbox))
        await self._stage(agent.when_idle)
        agent.close()
        await self._stage(self._storage.close)
        runtime.agents.forget(self)
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


def raise_collected(agent_id: str, failures: Sequence[Exception]) -> None:
    """Raise what failed in a teardown: one failure as it is, several as a group."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(f'agent "{agent_id}" disposal failed', failures)
