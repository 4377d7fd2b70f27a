"""Turns and steps in their exact order."""

from __future__ import annotations

import anyio
import pytest

from nbagent import tool
from nbagent.testing import as_json, check_log, sent_requests, text, tool_calls

pytestmark = pytest.mark.anyio


@tool
async def echo(x: int) -> str:
    """Say it again."""
    return f"echo {x}"


async def test_a_plain_text_turn_has_the_exact_log(world):
    async with world(text("hello there")) as w:
        message = w.agent.followup("hi")
        await w.agent.when_idle()
        types = [event.type for event in w.events if event.type != "assistant/frame"]
        assert types == [
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "step/start",
            "system/message",
            "user/message",
            "request/header",
            "request/context",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        assert w.events[0].data == {"target": "next-turn", "start": 0, "inserted": [message]}
        assert w.events[2].data == {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []}
        assert [m.role for m in w.agent.session.messages()] == ["system", "user", "assistant"]
        answer = w.of("assistant/message")[0]
        assert answer.data["usage"] == {"inputTokens": 10, "outputTokens": 11}
        assert answer.data["message"].text == "hello there"
        assert w.reasons == [{"kind": "completed"}]
        check_log(w.events)


async def test_the_turn_is_open_and_the_prompt_claimed_when_the_send_returns(world):
    async with world(text("ok")) as w:
        w.agent.followup("hi")
        assert [event.type for event in w.events] == ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced"]
        assert w.agent.status == "running"
        assert w.agent.inbox.next_turn == []
        await w.agent.when_idle()


async def test_three_prompts_at_once_are_three_turns_in_one_running_period(world):
    async with world(text("a"), text("b"), text("c")) as w:
        statuses = []
        w.agent.on("agent/status", lambda payload: statuses.append(payload.status))
        for prompt in ("1", "2", "3"):
            w.agent.followup(prompt)
        await w.agent.when_idle()
        assert [event.data["turn"] for event in w.of("turn/start")] == [1, 2, 3]
        assert [event.data.text for event in w.of("user/message")] == ["1", "2", "3"]
        assert statuses == ["running", "idle"]


async def test_inbox_notifications_come_in_order(world):
    async with world(text("ok")) as w:
        seen = []
        for kind in ("inserted", "claimed", "discarded"):
            w.agent.on(f"agent/inbox/{kind}", lambda p, kind=kind: seen.append((kind, p.message.text, p.turn)))
        await w.ask("hi")
        assert seen == [("inserted", "hi", None), ("claimed", "hi", 1)]


async def test_a_tool_round_trip_is_two_steps_and_the_second_request_holds_the_result(world):
    async with world(tool_calls(("c1", "echo", {"x": 1})), text("done"), tools=[echo]) as w:
        await w.ask("go")
        assert w.types() == [
            "turn/start",
            "step/start",
            "system/message",
            "user/message",
            "request/header",
            "request/context",
            "assistant/message",
            "tool/call",
            "tool/result",
            "step/end",
            "step/start",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        call, result = w.of("tool/call")[0], w.of("tool/result")[0]
        assert result.source_event_seqs == [call.seq]
        assert call.data == {"turn": 1, "step": 1, "callId": "c1", "name": "echo", "arguments": '{"x":1}'}
        assert [m.role for m in w.model.requests[1].messages] == ["system", "user", "assistant", "tool"]
        assert w.model.requests[1].messages[3].text == "echo 1"


async def test_requests_rebuilt_from_the_log_equal_what_was_sent(world):
    async with world(tool_calls(("c1", "echo", {"x": 1})), text("done"), text("again"), tools=[echo]) as w:
        await w.ask("go")
        await w.ask("more")
        assert [as_json(r) for r in sent_requests(w.agent.session.events)] == [as_json(r) for r in w.model.requests]


async def test_an_answer_without_content_is_logged_and_not_sent_again(world):
    async with world([{"type": "finish", "reason": {"kind": "stop"}}], text("ok")) as w:
        await w.ask("hi")
        assert w.of("assistant/message")[0].data["message"].content == []
        assert w.reasons == [{"kind": "completed"}]
        await w.ask("again")
        assert [m.role for m in w.model.requests[1].messages] == ["system", "user", "user"]


async def test_a_stream_without_a_finish_counts_as_stop(world):
    async with world([{"type": "text-delta", "index": 0, "text": "hi"}]) as w:
        await w.ask("x")
        assert w.reasons == [{"kind": "completed"}]


async def test_a_failed_turn_reports_once_and_the_agent_stays_usable(world):
    async with world(text("2"), text("3")) as w:
        failures = []
        w.agent.on("agent/error", lambda payload: failures.append(str(payload.error)))
        broken = [True]

        @w.on("agent/pre-step")
        async def explode(payload, next):
            if broken:
                raise ValueError("no entry")
            return await next()

        w.agent.followup("one")
        w.agent.followup("two")
        await w.agent.when_idle()
        assert failures == ["no entry"]
        assert w.reasons == [{"kind": "error", "error": {"message": "no entry", "code": "UNKNOWN"}}]
        assert [m.text for m in w.agent.inbox.next_turn] == ["two"]
        broken.clear()
        await w.ask("three")
        assert w.prompts == ["two", "three"]
        assert w.reasons[1:] == [{"kind": "completed"}] * 2


async def test_an_agent_without_a_model_says_what_to_do(world):
    async with world() as w:
        handle = await w.runtime.agents.create(session_id="bare")
        handle.agent.followup("hi")
        await handle.agent.when_idle()
        end = handle.agent.session.events[-1].data["reason"]
        assert end["error"]["message"].startswith('agent "bare" has no provider/model')
        assert end["error"]["code"] == "UNKNOWN"


async def test_whitespace_identity_and_frozenness_travel_from_inbox_to_request(world):
    async with world(text("ok")) as w:
        message = w.agent.followup("  keep \n me ")
        await w.agent.when_idle()
        assert w.model.requests[0].messages[1] is message
        with pytest.raises(TypeError):
            message["role"] = "system"


async def test_input_that_arrives_while_a_failed_turn_is_synced_runs(world):
    from nbagent.storage import MemoryStore
    from nbagent.testing import fail

    async with world(fail("no", code="AUTH"), text("ok"), store=MemoryStore()) as w:
        sync, runtime = anyio.Event(), w.runtime

        async def slow_flush(_notice):
            sync.set()
            await anyio.sleep(0.02)

        runtime.on("session/flush", slow_flush)
        w.agent.followup("one")
        await sync.wait()
        w.agent.followup("two")
        await w.agent.when_idle()
        assert [reason["kind"] for reason in w.reasons] == ["error", "completed"]
