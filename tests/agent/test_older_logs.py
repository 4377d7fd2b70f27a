"""Sessions of older programs, whose closed turns have calls without a result, are taken up."""

from __future__ import annotations

import pytest

from nbagent import Runtime
from nbagent.storage import JsonlStore
from nbagent.testing import ScriptedAdapter, check_log, text
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
