"""Cancelling in every phase."""

from __future__ import annotations

import anyio
import pytest

from nbagent import tool
from nbagent.testing import check_log, hang, text, tool_calls

pytestmark = pytest.mark.anyio


async def until(condition):
    with anyio.fail_after(5):
        while not condition():
            await anyio.sleep(0.005)


def shown(w):
    return lambda: bool(w.of("assistant/frame"))


async def test_cancelling_a_stream_keeps_the_text_that_was_shown(world):
    async with world(hang(), text("ok")) as w:
        w.agent.followup("hi")
        await until(shown(w))
        w.agent.cancel()
        await w.agent.when_idle()
        message = w.of("assistant/message")[0]
        assert message.data["interrupted"] is True
        assert message.data["message"].text == "partial"
        assert w.types()[-3:] == ["assistant/message", "step/end", "turn/end"]
        assert w.reasons == [{"kind": "aborted", "reason": {"kind": "user"}}]
        await w.ask("go on")
        assert "partial" in [m.text for m in w.model.requests[1].messages]
        check_log(w.events)


async def test_cancelling_right_after_the_send_opens_and_ends_a_turn_without_step(world):
    async with world(text("never"), text("ok")) as w:
        w.agent.followup("hi")
        w.agent.cancel()
        await w.agent.when_idle()
        assert w.types() == ["turn/start", "turn/end"]
        assert w.model.requests == []


async def test_cancelling_in_the_running_notification_opens_no_turn(world):
    async with world(text("ok")) as w:
        once = [True]

        def cancel(payload):
            if payload.status == "running" and once:
                once.clear()
                w.agent.cancel()

        w.agent.on("agent/status", cancel)
        w.agent.followup("hi")
        await w.agent.when_idle()
        assert w.of("turn/start") == []
        await w.ask("again")
        assert w.reasons == [{"kind": "completed"}]


async def test_a_cancel_clears_the_inbox_and_keep_inbox_parks_it(world):
    async with world(hang(), text("b"), text("c")) as w:
        w.agent.followup("a")
        w.agent.followup("b")
        await until(shown(w))
        w.agent.cancel(keep_inbox=True)
        await w.agent.when_idle()
        assert [m.text for m in w.agent.inbox.next_turn] == ["b"]
        assert len(w.model.requests) == 1
        await w.ask("c")
        assert [event.data.text for event in w.of("user/message")] == ["a", "b", "c"]


async def test_input_after_the_abort_runs_without_another_wake(world):
    async with world(hang(), text("b")) as w:
        w.agent.followup("a")
        await until(shown(w))
        w.agent.cancel(keep_inbox=True)
        w.agent.steer("b")
        assert [m.text for m in w.agent.inbox.next_turn] == ["b"]
        await w.agent.when_idle()
        assert [reason["kind"] for reason in w.reasons] == ["aborted", "completed"]


async def test_a_second_cancel_drops_the_latched_input(world):
    async with world(hang(), text("c")) as w:
        w.agent.followup("a")
        await until(shown(w))
        w.agent.cancel(keep_inbox=True)
        w.agent.followup("b")
        w.agent.cancel()
        await w.agent.when_idle()
        assert len(w.model.requests) == 1
        await w.ask("c")
        assert len(w.model.requests) == 2


async def test_cancel_from_the_answer_runs_no_tool_and_answers_every_call(world):
    @tool
    async def never() -> str:
        """Never run."""
        raise AssertionError

    async with world(tool_calls(("c1", "never", {}), ("c2", "never", {})), tools=[never]) as w:

        def stop(payload):
            if payload.event.type == "assistant/message":
                w.agent.cancel()

        w.agent.on("session/event", stop)
        await w.ask("go")
        assert [e.type for e in w.of("tool/call", "tool/result")] == ["tool/call", "tool/result"] * 2
        assert {e.data["error"]["code"] for e in w.of("tool/result")} == {"ABORTED_BEFORE_DISPATCH"}
        assert w.of("tool/result")[0].data["message"].text == "Error: tool call aborted before dispatch"


async def test_a_cancelled_pool_drains_and_the_rest_is_answered_in_order(world):
    started = []

    @tool(parallel=True)
    async def work(n: int) -> str:
        """Work."""
        started.append(n)
        await anyio.sleep(10)
        return "never"

    calls = tool_calls(*[(f"c{n}", "work", {"n": n}) for n in range(4)])
    async with world(calls, tools=[work], runtime={"max_parallel_tool_calls": 2}) as w:
        w.agent.followup("go")
        await until(lambda: len(started) == 2)
        w.agent.cancel()
        with anyio.fail_after(2):
            await w.agent.when_idle()
        codes = [event.data["error"]["code"] for event in w.of("tool/result")]
        assert codes == ["ABORTED", "ABORTED", "ABORTED_BEFORE_DISPATCH", "ABORTED_BEFORE_DISPATCH"]
        assert [event.data["message"].tool_call_id for event in w.of("tool/result")] == ["c0", "c1", "c2", "c3"]
        check_log(w.events)


async def test_disposal_in_a_stream_ends_the_turn_as_disposed(world):
    async with world(hang()) as w:
        w.agent.followup("hi")
        await until(shown(w))
        await w.handle.dispose()
        assert w.reasons == [{"kind": "aborted", "reason": {"kind": "disposed"}}]
        assert w.events[-1].type == "turn/end"


async def test_leaving_the_runtime_ends_the_turn_and_keeps_the_inbox(world):
    async with world(hang()) as w:
        w.agent.followup("hi")
        w.agent.followup("later")
        await until(shown(w))
    assert w.reasons == [{"kind": "aborted", "reason": {"kind": "disposed"}}]
    assert [m.text for m in w.agent.inbox.next_turn] == ["later"]
    check_log(w.events)


async def test_a_cancelled_host_task_still_ends_the_turn_in_the_log(world):
    kept = []

    async def host():
        async with world(hang()) as w:
            kept.append(w)
            w.agent.followup("hi")
            await anyio.sleep(10)

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        await until(lambda: kept and kept[0].of("assistant/frame"))
        group.cancel_scope.cancel()
    w = kept[0]
    assert w.events[-1].type == "turn/end"
    assert w.of("assistant/message")[0].data["message"].text == "partial"
    check_log(w.events)


async def test_a_stuck_listener_does_not_hold_up_a_cancel(world):
    async with world(text("ok")) as w:

        @w.on("agent/request")
        async def stuck(payload, next):
            await anyio.sleep(30)
            return await next()

        w.agent.followup("hi")
        await until(lambda: w.of("step/start"))
        w.agent.cancel()
        with anyio.fail_after(2):
            await w.agent.when_idle()
        assert w.types() == ["turn/start", "step/start", "step/end", "turn/end"]
