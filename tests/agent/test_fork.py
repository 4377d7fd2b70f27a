"""Branches: another agent goes on from any point of a session, which stays as it is."""

from __future__ import annotations

import anyio
import pytest

from nbagent import Runtime
from nbagent.errors import LifecycleError, SessionError, StorageError
from nbagent.session import Session
from nbagent.storage import JsonlStore
from nbagent.testing import ScriptedAdapter, check_log, hang, text, tool_calls

pytestmark = pytest.mark.anyio


def texts(agent):
    return [m.text for m in agent.session.messages() if m.role != "system"]


async def test_a_branch_goes_on_from_a_turn_and_leaves_its_parent_alone(world):
    async with world(text("one"), text("two"), text("other")) as w:
        await w.ask("first")
        boundary = w.events[-1].seq
        await w.ask("second")
        before = list(w.events)
        handle = await w.runtime.agents.fork("s1", session_id="s2", at_seq=boundary)
        branch = handle.agent
        branch.followup("instead")
        await branch.when_idle()
        assert texts(branch) == ["first", "one", "instead", "other"]
        assert [e.data["turn"] for e in branch.session.events if e.type == "turn/start"] == [1, 2]
        assert branch.options.model == "m"
        assert w.events == before
        check_log(list(branch.session.events))


async def test_the_header_of_a_branch_tells_where_it_comes_from(world, tmp_path):
    async with world(text("one"), store=JsonlStore(tmp_path), cwd="/tmp") as w:
        await w.ask("first")
        handle = await w.runtime.agents.fork("s1")
        header = handle.agent.session.header
        assert (header.parent_session, header["isSeeded"], header.cwd) == ("s1", True, "/tmp")
        assert header.id.startswith("session-")
        inherited = len(w.events)
        assert handle.agent.session.inherited_event_count == inherited
        await handle.dispose()
        again = await w.runtime.agents.resume(header.id)
        assert again.agent.session.header == header
        assert again.agent.session.inherited_event_count == inherited


async def test_a_stored_session_is_forked_beside_its_writer(world, tmp_path):
    async with world(text("one"), store=JsonlStore(tmp_path)) as w:
        await w.ask("first")
        stored = (tmp_path / "s1.jsonl").read_bytes()
        async with Runtime(store=JsonlStore(tmp_path)) as other:
            handle = await other.agents.fork("s1", session_id="s2")
            assert texts(handle.agent) == ["first", "one"]
        assert (tmp_path / "s1.jsonl").read_bytes() == stored
        assert (tmp_path / "s2.jsonl").exists()


async def test_a_running_agent_is_forked_in_the_middle_of_its_answer(world):
    async with world(hang(), text("on")) as w:
        w.agent.followup("go")
        await anyio.sleep(0.05)
        handle = await w.runtime.agents.fork(w.agent.session)
        assert w.agent.status == "running"
        branch = handle.agent
        assert texts(branch) == ["go", "partial"]
        assert branch.session.events[-2].data["reason"] == {"kind": "forked"}
        branch.followup("next")
        await branch.when_idle()
        assert texts(branch) == ["go", "partial", "next", "on"]


async def test_pending_input_is_inherited_waits_and_is_not_shared(world):
    async with world(hang(), text("a"), text("b")) as w:
        w.agent.followup("running")
        w.agent.followup("waiting")
        await anyio.sleep(0.05)
        branch = (await w.runtime.agents.fork("s1")).agent
        assert branch.status == "idle"
        branch.inject("only here")
        assert [m.text for m in branch.inbox.next_turn] == ["waiting"]
        assert [m.text for m in w.agent.inbox.next_step] == []
        w.agent.inbox.clear()
        assert [m.text for m in branch.inbox.next_turn] == ["waiting"]


async def test_every_boundary_gives_a_branch_that_can_go_on(world):
    async with world(tool_calls(("c1", "nope", {}), ("c2", "nope", {})), text("done"), *[text("on")] * 60) as w:
        await w.ask("go")
        for boundary in range(len(w.events)):
            handle = await w.runtime.agents.fork("s1", at_seq=boundary, provider="scripted", model="m")
            handle.agent.followup("next")
            await handle.agent.when_idle()
            check_log(list(handle.agent.session.events))
            messages = w.model.requests[-1].messages
            called = [b["id"] for m in messages if m.role == "assistant" for b in m.tool_calls]
            assert [m.tool_call_id for m in messages if m.role == "tool"] == called
            assert texts(handle.agent)[-2:] == ["next", "on"]
            await handle.dispose()


async def test_created_listeners_hear_that_it_is_a_branch(world):
    async with world(text("one")) as w:
        sources = []

        async def created(payload):
            sources.append(payload.source)

        w.runtime.on("agent/created", created)
        await w.runtime.agents.fork("s1")
        assert sources == ["fork"]


async def test_a_fork_that_cannot_be_leaves_nothing_and_says_why(world, tmp_path):
    async with world(text("one"), store=JsonlStore(tmp_path)) as w:
        await w.ask("first")

        async def refused(error, source, **choices):
            with pytest.raises(error) as failure:
                await w.runtime.agents.fork(source, **choices)
            return failure.value.code

        assert await refused(StorageError, "nope") == "SESSION_NOT_FOUND"
        assert await refused(LifecycleError, Session("s1")) == "SESSION_NOT_LIVE"
        assert await refused(SessionError, "s1", session_id="s2", at_seq=999) == "INVALID_BOUNDARY"
        # Whether the id is free is looked at before the boundary.
        assert await refused(LifecycleError, "s1", session_id="s1", at_seq=999) == "SESSION_ALREADY_EXISTS"
        stored = await w.runtime.agents.fork("s1", session_id="s3")
        await stored.dispose()
        assert await refused(StorageError, "s1", session_id="s3", at_seq=999) == "SESSION_ALREADY_EXISTS"
        assert [each.id for each in w.runtime.agents.list()] == ["s1"]
        assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["s1.jsonl", "s3.jsonl"]
        assert (await w.runtime.agents.fork("s1", session_id="s2")).agent.id == "s2"


async def test_a_damaged_parent_is_named_by_its_own_file(world, tmp_path):
    async with world(text("one"), store=JsonlStore(tmp_path)) as w:
        await w.ask("first")
    path = tmp_path / "s1.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"turn":1', b'"turn":7', 1))
    async with Runtime(store=JsonlStore(tmp_path)) as runtime:
        with pytest.raises(StorageError, match=r"s1\.jsonl is damaged in line") as failure:
            await runtime.agents.fork("s1", session_id="s2")
        assert failure.value.code == "SESSION_DAMAGED"
        assert runtime.agents.list() == []
    assert [each.name for each in tmp_path.glob("*.jsonl")] == ["s1.jsonl"]


async def test_a_branch_of_a_branch_names_its_own_parent(world):
    async with world(text("one")) as w:
        await w.ask("first")
        await w.runtime.agents.fork("s1", session_id="s2")
        third = (await w.runtime.agents.fork("s2", session_id="s3")).agent
        assert third.session.header.parent_session == "s2"
        assert third.session.inherited_event_count == len(third.session.events) - 1
        assert texts(third) == ["first", "one"]


async def test_a_branch_for_another_agent_is_its_delegate(world):
    async with world(text("one")) as w:
        await w.ask("first")
        child = await w.runtime.agents.fork("s1", parent=w.agent)
        header = child.agent.session.header
        assert (header["origin"], header["delegationDepth"], header.parent_session) == ("subagent", 1, "s1")
        await w.handle.dispose()
        assert w.runtime.agents.list() == []


async def test_a_model_is_asked_with_the_history_of_the_branch_and_a_resumed_header(world):
    async with world(text("one"), text("two")) as w:
        await w.ask("first")
        other = ScriptedAdapter([text("three")])
        w.runtime.llm.register(["other"], other)
        handle = await w.runtime.agents.fork("s1", provider="other", model="x", system="Be brief.")
        handle.agent.followup("second")
        await handle.agent.when_idle()
        assert [m.text for m in other.requests[0].messages] == ["Be brief.", "first", "one", "second"]
        headers = [e.data for e in handle.agent.session.events if e.type == "request/header"]
        assert [each["reason"] for each in headers] == ["initial", "resume"]
