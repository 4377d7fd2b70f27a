"""Turns that fail: what the log says, who is told once, and that the agent goes on."""

from __future__ import annotations

import pytest

from nbagent import tool
from nbagent.errors import LlmError
from nbagent.testing import check_log, text, tool_calls

pytestmark = pytest.mark.anyio


def refuse(w, kind, says, times=1):
    """Refuse the next appends of an event type."""
    left = [says] * times

    def veto(payload):
        if payload.event.type == kind and left:
            raise ValueError(left.pop())

    w.agent.on("session/validate", veto)


def failures(w):
    return w.hear("agent/error", lambda p: (p.turn, p.step, str(p.error)))


@pytest.mark.parametrize(
    ("point", "step"),
    [("system-prompt/assemble", 0), ("agent/pre-step", 0), ("agent/request", 1), ("llm/stream", 1)],
)
async def test_a_listener_that_raises_ends_the_turn_with_its_message(world, point, step):
    async with world(text("ok")) as w:
        told = failures(w)
        broken = [ValueError("exploded")]

        @w.on(point)
        async def fails(payload, next):
            if broken:
                raise broken.pop()
            return await next()

        await w.ask("hi")
        assert told == [(1, step, "exploded")]
        assert w.reasons == [{"kind": "error", "error": {"message": "exploded", "code": "UNKNOWN"}}]
        assert len(w.of("step/start")) == len(w.of("step/end")) == step
        assert w.model.requests == []
        await w.ask("again")
        assert w.reasons[1] == {"kind": "completed"}
        check_log(w.events)


async def test_causes_are_part_of_the_message(world):
    async with world() as w:

        @w.on("agent/request")
        async def fails(payload, next):
            try:
                raise KeyError("inner")
            except KeyError as inner:
                raise ValueError("outer") from inner

        await w.ask("hi")
        assert w.reasons[0]["error"]["message"] == "outer: 'inner'"


async def test_the_facts_of_a_model_failure_that_a_listener_raises_are_kept_and_not_offered_to_recovery(world):
    async with world() as w:
        offered = []

        @w.on("agent/request-error")
        async def offer(payload, next):
            offered.append(payload)

        @w.on("agent/request")
        async def fails(payload, next):
            raise LlmError("slow down", code="RATE_LIMIT", status=429, provider_retry_after_ms=50, request_id="r1")

        await w.ask("hi")
        assert w.reasons[0]["error"] == {
            "message": "slow down",
            "code": "RATE_LIMIT",
            "status": 429,
            "providerRetryAfterMs": 50,
            "requestId": "r1",
        }
        assert (offered, w.model.requests) == ([], [])


async def test_a_turn_start_that_is_refused_starts_nothing_and_the_prompt_waits(world):
    async with world(text("ok")) as w:
        told, statuses = failures(w), w.hear("agent/status", lambda p: p.status)
        refuse(w, "turn/start", "disk full")
        await w.ask("hi")
        assert told == [(1, 0, "disk full")]
        assert w.types() == []
        assert w.waiting("next-turn") == ["hi"]
        assert statuses == ["running", "idle"]
        await w.ask("again")
        assert w.prompts == ["hi", "again"]


async def test_a_refused_claim_fails_the_turn_and_the_prompt_waits(world):
    async with world(text("ok"), text("ok")) as w:
        refused = []

        def veto(payload):
            event = payload.event
            if event.type == "agent/inbox/spliced" and event.data.get("removedCount") and not refused:
                refused.append(event)
                raise ValueError("disk full")

        w.agent.on("session/validate", veto)
        await w.ask("hi")
        assert w.reasons[0]["error"]["message"] == "disk full"
        assert w.waiting("next-turn") == ["hi"]
        await w.ask("again")
        assert w.prompts == ["hi", "again"]


async def test_a_step_end_that_is_refused_leaves_the_turn_open_and_the_agent_idle(world):
    async with world(text("ok")) as w:
        told = failures(w)
        refuse(w, "step/end", "disk full")
        await w.ask("hi")
        assert told[0][2] == "disk full"
        assert "turn/end 1 while step 1 is still open" in told[1][2]
        assert len(told) == 2
        assert w.of("turn/end") == []
        assert w.agent.status == "idle"


async def test_a_turn_end_that_is_refused_is_reported_and_not_tried_again(world):
    async with world(text("ok")) as w:
        told = failures(w)
        refuse(w, "turn/end", "disk full")
        w.agent.followup("hi")
        w.agent.followup("queued")
        await w.agent.when_idle()
        assert told == [(1, 1, "disk full")]
        assert w.of("turn/end") == []
        assert w.waiting("next-turn") == ["queued"]
        assert w.agent.status == "idle"


@pytest.mark.parametrize("kind", ["system/message", "user/message", "request/header", "request/context"])
async def test_an_admission_that_is_refused_sends_nothing(world, kind):
    async with world(text("ok")) as w:
        refuse(w, kind, "disk full")
        await w.ask("hi")
        assert w.model.requests == []
        assert w.reasons[0]["error"]["message"] == "disk full"
        await w.ask("again")
        assert w.reasons[1] == {"kind": "completed"}
        assert w.header_reasons == ["initial"]
        check_log(w.events)


async def test_a_frame_that_is_refused_is_no_failure_of_the_model(world):
    async with world(text("ok")) as w:
        offered = []

        @w.on("agent/request-error")
        async def offer(payload, next):
            offered.append(payload)

        refuse(w, "assistant/frame", "disk full")
        await w.ask("hi")
        assert offered == []
        assert w.of("assistant/message") == []
        assert w.reasons[0]["error"] == {"message": "disk full", "code": "UNKNOWN"}


async def test_a_failed_turn_leaves_queued_prompts_until_the_next_wake(world):
    async with world(text("2"), text("3")) as w:
        refuse(w, "step/start", "disk full")
        w.agent.followup("1")
        w.agent.followup("2")
        await w.agent.when_idle()
        assert w.waiting("next-turn") == ["2"]
        await w.ask("3")
        assert w.prompts == ["2", "3"]


async def test_a_recovery_that_the_log_refuses_is_told_with_what_failed_first(world):
    @tool
    def echo() -> str:
        """Say it again."""
        return "echo"

    async with world(tool_calls(("c1", "echo", {})), tools=[echo]) as w:
        said = ["second", "first"]

        def veto(payload):
            if payload.event.type == "tool/result" and said:
                raise ValueError(said.pop())

        w.agent.on("session/validate", veto)
        await w.ask("go")
        summary = "Step failed and its pending tool results could not be recorded"
        assert w.reasons[0]["error"] == {"message": f"{summary} [first; second]: first", "code": "UNKNOWN"}
