"""The last stretch of every creation: a session and an agent become visible together, or not at all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from nbagent.agent.agent import Agent
from nbagent.agent.budget import check_price
from nbagent.agent.compaction import CompactionPolicy, compact_by_policy
from nbagent.agent.creation import Creation
from nbagent.agent.handle import AgentHandle
from nbagent.agent.options import AgentChoices, AgentOptions
from nbagent.agent.points import AgentCreated, AgentDisposed, SessionNotice
from nbagent.agent.scope import Scope
from nbagent.session import Session
from nbagent.storage import Handle
from nbagent.tools import as_tool

if TYPE_CHECKING:
    from nbagent.agent.runtime import Runtime

__all__ = ("publish",)


async def publish(
    runtime: Runtime,
    creation: Creation,
    storage: Handle,
    session: Session,
    stored: int,
    source: str,
    options: AgentOptions,
    choices: AgentChoices,
) -> AgentHandle:
    """Set an agent up on a session, make both known, and let it take up what waits for it.

    Args:
        runtime: Where the agent will live.
        creation: Takes back what was done when a later stage fails.
        storage: Where the session is kept.
        session: The session.
        stored: How many of its events `storage` has.
        source: `create`, `resume` or `fork`.
        options: How the agent calls its model.
        choices: What else it was asked for with.
    """
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
    compaction = CompactionPolicy.of(choices.get("compaction"))
    if compaction is not None:
        compact_by_policy(scope, compaction)
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
    detach_agent = runtime.agents.enter(agent)
    creation.undo(detach_agent)
    await _announce(creation, agent, source)
    handle = AgentHandle(agent, storage, [runtime.sessions.keep(session, storage), detach_agent, detach_session])
    runtime.agents.keep(handle)
    agent.converge(maintenance)
    return handle


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
