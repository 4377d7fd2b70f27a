"""Projections of a runtime's sessions, with and without agents."""

from __future__ import annotations

import pytest

from nbagent import Runtime
from nbagent.storage import JsonlStore

pytestmark = pytest.mark.anyio


def waiting(states):
    return [message.text for message in states["inbox"]["next-step"]]


async def test_the_inbox_of_a_stored_session_is_read_without_an_agent(tmp_path):
    async with Runtime(store=JsonlStore(tmp_path)) as runtime:
        handle = await runtime.agents.create(session_id="s")
        handle.agent.inject("wait")
        await handle.dispose(keep_inbox=True)
    async with Runtime(store=JsonlStore(tmp_path)) as runtime:
        stored = await runtime.store.open("s", "read")
        events = await stored.read()
        cold = runtime.projections.restore({}, events, 0, stored.header)
        assert waiting(cold.states) == ["wait"]
        assert cold.snapshot["asOfSeq"] == events[-1].seq
        floor = runtime.projections.restore_floor(cold.checkpoint)
        again = runtime.projections.restore(cold.checkpoint, await stored.read(floor), floor, stored.header)
        assert again == cold
        await stored.close()


async def test_it_is_read_after_all_agents_have_gone_and_after_the_runtime_was_left():
    async with Runtime() as runtime:
        handle = await runtime.agents.create(session_id="s")
        agent = handle.agent
        agent.inject("wait")
        await handle.dispose(keep_inbox=True)
        assert runtime.agents.list() == []
        assert waiting(runtime.projections.snapshot(agent.session)["values"]) == ["wait"]
    assert waiting(runtime.projections.snapshot(agent.session)["values"]) == ["wait"]
    cold = runtime.projections.restore({}, list(agent.session.events), 0, agent.session.header)
    assert waiting(cold.states) == ["wait"]
