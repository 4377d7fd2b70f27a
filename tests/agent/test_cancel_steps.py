"""Where a cancel lands in a step, and what it leaves in the log."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from nbagent.testing import check_log, fail, hang, text
from nbagent.testing.scripted import ScriptedAdapter
from nbagent.types.stream import block_end, block_start, reasoning_delta, text_delta, tool_call_delta, usage_chunk

pytestmark = pytest.mark.anyio

USER = [{"kind": "aborted", "reason": {"kind": "user"}}]


async def cancelled(w):
    """A turn that is cancelled once its whole scripted answer is in the log; the stream ends of the notifications."""
    ends = w.hear("agent/assistant-stream", lambda p: p.type == "end" and p.outcome["kind"])
    expected = len(w.model.script[0].chunks)
    w.agent.followup("hi")
    await w.until(lambda: sum(len(event.data["chunks"]) for event in w.of("assistant/frame")) == expected)
    w.agent.cancel()
    await w.agent.when_idle()
    assert w.reasons == USER
    check_log(w.events)
    return [end for end in ends if end]


SHOWN = {
    "open text": ([text_delta(0, "partial")], [{"type": "text", "text": "partial"}]),
    "closed text": (
        [block_start(0, "text"), text_delta(0, "a"), block_end(0, {"type": "text", "text": "a"})],
        [{"type": "text", "text": "a"}],
    ),
    "reasoning": ([reasoning_delta(0, "hmm")], [{"type": "reasoning", "text": "hmm"}]),
    "reasoning and text": (
        [reasoning_delta(0, "hmm"), text_delta(1, "so")],
        [{"type": "reasoning", "text": "hmm"}, {"type": "text", "text": "so"}],
    ),
    "blank and text": ([text_delta(0, " \n"), text_delta(1, "so")], [{"type": "text", "text": "so"}]),
    "text and half a call": (
        [text_delta(0, "let me see"), tool_call_delta(1, '{"x', id="c1", name="echo")],
        [{"type": "text", "text": "let me see"}],
    ),
}
NOT_SHOWN = {
    "blank text": [text_delta(0, "  \n")],
    "a whole call": [tool_call_delta(0, "{}", id="c1", name="echo")],
    "usage alone": [usage_chunk({"inputTokens": 1, "outputTokens": 0})],
}


@pytest.mark.parametrize("case", SHOWN)
async def test_what_was_shown_is_kept_as_an_interrupted_message(world, case):
    chunks, content = SHOWN[case]
    async with world(hang(*chunks), text("ok")) as w:
        assert await cancelled(w) == ["committed"]
        message = w.of("assistant/message")[0]
        assert message.data["interrupted"] is True
        assert message.data["message"].content == content
        assert "usage" not in message.data
        assert w.of("tool/call") == []
        assert w.types()[-3:] == ["assistant/message", "step/end", "turn/end"]
        await w.ask("go on")
        assert w.model.requests[1].messages[2] is message.data["message"]


async def test_usage_that_arrived_is_kept_with_it(world):
    usage = {"inputTokens": 7, "outputTokens": 2}
    async with world(hang(reasoning_delta(0, "hmm"), usage_chunk(usage))) as w:
        await cancelled(w)
        assert w.of("assistant/message")[0].data["usage"] == usage


@pytest.mark.parametrize("case", NOT_SHOWN)
async def test_nothing_shown_leaves_no_message(world, case):
    async with world(hang(*NOT_SHOWN[case])) as w:
        assert await cancelled(w) == ["aborted"]
        assert w.of("assistant/message", "tool/call") == []
        assert w.types()[-2:] == ["step/end", "turn/end"]


async def test_an_interrupted_message_that_the_log_refuses_is_not_tried_again(world):
    async with world(hang()) as w:

        def veto(payload):
            if payload.event.type == "assistant/message":
                raise ValueError("disk full")

        w.agent.on("session/validate", veto)
        assert await cancelled(w) == ["aborted"]
        assert w.of("assistant/message") == []


async def test_an_answer_that_is_refused_while_the_turn_is_cancelled_is_not_logged_as_interrupted(world):
    async with world(text("whole")) as w:
        refused = []

        def veto(payload):
            if payload.event.type == "assistant/message" and not refused:
                refused.append(payload.event)
                w.agent.cancel()
                raise ValueError("disk full")

        w.agent.on("session/validate", veto)
        await w.ask("hi")
        assert w.of("assistant/message") == []
        assert w.reasons == USER


async def test_a_cancel_from_the_start_of_the_step_leaves_only_its_edges(world):
    async with world(text("never")) as w:
        w.agent.on("session/event", lambda p: p.event.type == "step/start" and w.agent.cancel())
        await w.ask("hi")
        assert w.types() == ["turn/start", "step/start", "step/end", "turn/end"]
        assert w.reasons == USER
        assert w.model.requests == []


async def test_a_cancel_while_the_request_is_proposed_leaves_only_the_edges_of_the_step(world):
    async with world(text("never")) as w:

        @w.on("agent/request")
        async def stop(payload, next):
            w.agent.cancel()
            return await next()

        await w.ask("hi")
        assert w.types() == ["turn/start", "step/start", "step/end", "turn/end"]
        assert w.model.requests == []


async def test_a_cancel_while_the_route_is_asked_leaves_only_the_edges_of_the_step(world):
    async with world() as w:

        class Slow(ScriptedAdapter):
            async def facts(self, model):
                w.agent.cancel()
                await anyio.lowlevel.checkpoint()
                return ScriptedAdapter.facts(self, model)

        w.agent.llm.register(["scripted"], Slow([text("never")]))
        await w.ask("hi")
        assert w.types() == ["turn/start", "step/start", "step/end", "turn/end"]
        assert w.reasons == USER


async def test_a_cancel_wins_over_a_retry(world):
    async with world(fail("busy", after=[text_delta(0, "half")]), text("never")) as w:

        @w.on("agent/request-error")
        async def stop(payload, next):
            w.agent.cancel()
            return {"kind": "retry"}

        await w.ask("hi")
        assert len(w.model.requests) == 1
        assert w.of("assistant/message") == []
        assert w.reasons == USER


async def test_a_cancel_while_the_turn_is_stopping_aborts_it(world):
    async with world(text("1"), text("2")) as w:

        @w.on("agent/turn-stopping")
        async def stop(payload):
            w.agent.steer("more")
            w.agent.cancel()

        await w.ask("hi")
        assert len(w.of("step/start")) == 1
        assert w.reasons == USER
        assert w.agent.inbox.pending is False


async def test_the_models_own_abort_is_an_error_of_the_turn(world):
    async with world([{"type": "finish", "reason": {"kind": "aborted"}}]) as w:
        failures = w.hear("agent/error", lambda p: p.error.code)
        await w.ask("hi")
        assert w.reasons[0]["kind"] == "error"
        assert w.reasons[0]["error"]["code"] == "ABORTED"
        assert failures == ["ABORTED"]


async def test_a_cancelled_turn_reports_no_failure(world):
    async with world(hang()) as w:
        failures = w.hear("agent/error", lambda p: p.error)
        await w.answering("hi")
        w.agent.cancel()
        await w.agent.when_idle()
        assert failures == []
