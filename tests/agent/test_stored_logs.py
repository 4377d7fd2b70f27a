"""Stored sessions that were cut, or whose closed turns have calls without a result, are taken up."""

from __future__ import annotations

import pytest

from nbagent import Runtime
from nbagent.session import Session
from nbagent.session.repair import interrupted_turn_closers
from nbagent.storage import JsonlStore
from nbagent.storage.repaired_copy import read_log
from nbagent.testing import ScriptedAdapter, check_log, text
from nbagent.types.messages import user_message
from tests.session.logs import answer, call, calls, close_step, end_turn, open_step, say, session

pytestmark = pytest.mark.anyio


async def stored(log, folder):
    handle = await JsonlStore(folder).create(log.header)
    handle.append(list(log.events))
    await handle.close()


async def test_the_next_request_answers_every_call_right_behind_its_message_and_the_log_is_left_alone(tmp_path):
    log = session()
    open_step(log)
    say(log, "go")
    answer(log, *calls("c1", "c2"))
    call(log, "c1")
    close_step(log)
    end_turn(log)
    await stored(log, tmp_path)
    async with Runtime(store=JsonlStore(tmp_path)) as runtime:
        model = ScriptedAdapter([text("on")])
        runtime.llm.register(["scripted"], model)
        agent = (await runtime.agents.resume("s", provider="scripted", model="m")).agent
        agent.followup("next")
        await agent.when_idle()
        events = list(agent.session.events)
    assert events[: len(log.events)] == list(log.events)
    assert events[len(log.events)].type == "session/end-seed"
    assert not any(event.type == "tool/result" for event in events)
    check_log(events)
    (request,) = model.requests
    sent = [(message.role, message.tool_call_id) for message in request.messages if message.role != "system"]
    assert sent == [("user", None), ("assistant", None), ("tool", "c1"), ("tool", "c2"), ("user", None)]
    assert all(message.is_error for message in request.messages if message.role == "tool")


async def test_they_are_compacted_and_the_summary_is_written_from_a_history_with_every_call_answered(tmp_path):
    log = session()
    open_step(log)
    say(log, "go")
    answer(log, *calls("c1", "c2"))
    close_step(log)
    end_turn(log)
    await stored(log, tmp_path)
    async with Runtime(store=JsonlStore(tmp_path)) as runtime:
        model = ScriptedAdapter([text("All is lost.")])
        runtime.llm.register(["scripted"], model)
        agent = (await runtime.agents.resume("s", provider="scripted", model="m")).agent
        summary = await agent.compact()
        (request,) = model.requests
        assert request.messages[-1].text.count("interrupted before the Harness recorded it as started") == 2
        assert agent.session.messages() == [summary]


async def test_a_turn_that_was_cut_is_closed_by_events_stored_behind_it_and_turns_count_on(tmp_path):
    log = session()
    log.append("agent/inbox/spliced", {"target": "next-step", "start": 0, "inserted": [user_message("wait", id="w")]})
    open_step(log)
    say(log, "go")
    answer(log, *calls("c1", "c2"))
    call(log, "c1")
    events = list(log.events)
    for length in range(1, len(events) + 1):
        folder = tmp_path / str(length)
        cut = Session(log.header)
        for event in events[:length]:
            cut.restore(event)
        await stored(cut, folder)
        before = (folder / "s.jsonl").read_bytes()
        async with Runtime(store=JsonlStore(folder)) as runtime:
            runtime.llm.register(["scripted"], ScriptedAdapter([text("on")]))
            agent = (await runtime.agents.resume("s", provider="scripted", model="m")).agent
            assert [message.text for message in agent.inbox.next_step] == ["wait"]
            closers = interrupted_turn_closers(events[:length])
            assert agent.session.events[length : length + len(closers)] == closers
            agent.followup("next")
            await agent.when_idle()
            turns = [event.data["turn"] for event in agent.session.events if event.type == "turn/start"]
            assert turns == list(range(1, len(turns) + 1))
        assert (folder / "s.jsonl").read_bytes().startswith(before)
        check_log(read_log(folder / "s.jsonl").events)
