"""The start of declared agents: side by side, one that cannot be started does not keep the others from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio

from nbagent.agent.declared import DeclaredAgent
from nbagent.agent.handle import AgentHandle
from nbagent.agent.points import ConfigStartFailed
from nbagent.errors import StorageError, error_chain
from nbagent.logs import logger

if TYPE_CHECKING:
    from nbagent.agent.runtime import Runtime

__all__ = ("start_declared",)

_log = logger(__name__)


async def start_declared(runtime: Runtime, entries: Sequence[DeclaredAgent]) -> list[AgentHandle]:
    """Start agents; answers the handles of those that started, in order of declaration.

    A failure is logged and told to `agent-loop/config-start-failed`, unless the runtime is being left meanwhile. When
    the start itself is cancelled, what it had started is disposed again.
    """
    started: dict[int, AgentHandle] = {}

    async def start(position: int, entry: DeclaredAgent) -> None:
        session_id = entry.start_session_id()
        try:
            started[position] = await _start(runtime, entry, session_id)
        except Exception as failure:
            if runtime.closing:
                return
            _log.warning('the declared agent "%s" was not started: %s', entry.id, error_chain(failure))
            runtime.hooks.notify("agent-loop/config-start-failed", ConfigStartFailed(session_id, failure))

    try:
        async with anyio.create_task_group() as group:
            for position, entry in enumerate(entries):
                group.start_soon(start, position, entry)
    except BaseException:
        with anyio.CancelScope(shield=True):
            for handle in started.values():
                await handle.dispose(keep_inbox=True)
        raise
    return [started[position] for position in sorted(started)]


async def _start(runtime: Runtime, entry: DeclaredAgent, session_id: str) -> AgentHandle:
    agents = runtime.agents
    draining = agents.handle(session_id)
    if draining is not None and draining.disposing:
        await draining.when_disposed()
    choices = entry.choices()
    if entry.exact_session_id is None:
        return await agents.create(session_id, cwd=entry.cwd, **choices)
    try:
        return await agents.resume(session_id, **choices)
    except StorageError as failure:
        # Only a session that is not there is made; a damaged or foreign one must stay loud.
        if failure.code != "SESSION_NOT_FOUND" or entry.resume_session_id is not None:
            raise
    return await agents.create(session_id, cwd=entry.cwd, **choices)
