"""Failed model calls and the policy that tries them again."""

from __future__ import annotations

import anyio
import pytest

from nbagent.llm.retry import RetryPolicy
from nbagent.testing import check_log, fail, text

pytestmark = pytest.mark.anyio


async def test_a_provider_failure_ends_the_turn_with_its_facts(world):
    async with world(fail("no credit", code="QUOTA", status=402), text("ok")) as w:
        await w.ask("hi")
        assert w.reasons == [{"kind": "error", "error": {"message": "no credit", "code": "QUOTA", "status": 402}}]
        await w.ask("again")
        assert w.reasons[1] == {"kind": "completed"}


async def test_a_retry_repeats_neither_assembly_nor_admission(world):
    async with world(fail("busy", code="SERVER"), text("ok")) as w:
        counts = {"assemble": 0, "pre-step": 0}

        @w.on("system-prompt/assemble")
        async def assembled(payload, next):
            counts["assemble"] += 1
            return await next()

        @w.on("agent/pre-step")
        async def entered(payload, next):
            counts["pre-step"] += 1
            return await next()

        @w.on("agent/request-error")
        async def again(payload, next):
            return {"kind": "retry"}

        await w.ask("hi")
        assert counts == {"assemble": 1, "pre-step": 1}
        assert len(w.of("user/message")) == 1
        assert len(w.model.requests) == 2
        assert w.reasons == [{"kind": "completed"}]


async def test_the_text_of_a_failed_attempt_stays_in_its_frames(world):
    half = [
        {"type": "text-delta", "index": 0, "text": "half"},
        {"type": "finish", "reason": {"kind": "error", "error": {"message": "cut", "code": "STREAM_TRUNCATED"}}},
    ]
    async with world(half, text("whole")) as w:

        @w.on("agent/request-error")
        async def again(payload, next):
            return {"kind": "retry"}

        await w.ask("hi")
        assert w.of("assistant/frame")[0].data["attempt"] == 1
        assert w.of("assistant/message")[0].data["message"].text == "whole"


async def test_the_policy_logs_its_wait_and_the_new_attempt(world):
    quick = RetryPolicy(base_seconds=0.001, cap_seconds=0.002)
    async with world(fail("busy", code="SERVER"), text("ok"), retry=quick) as w:
        await w.ask("hi")
        wait, go = w.of("llm/retry")[0].data, w.of("llm/retry-started")[0].data
        assert wait["retryId"] == go["retryId"]
        assert wait["failure"]["code"] == "SERVER"
        assert w.reasons == [{"kind": "completed"}]
        check_log(w.events)


async def test_the_policy_gives_up_and_never_retries_a_bad_key(world):
    quick = RetryPolicy(base_seconds=0.001, cap_seconds=0.002)
    async with world(*[fail("busy", code="SERVER")] * 9, fail("bad key", code="AUTH"), retry=quick) as w:
        await w.ask("hi")
        assert len(w.model.requests) == 6
        assert w.reasons[0]["error"]["code"] == "SERVER"
        del w.model.script[:3]
        await w.ask("hi")
        assert w.reasons[1]["error"]["code"] == "AUTH"
        assert len(w.model.requests) == 7


async def test_a_cancel_during_the_wait_starts_no_attempt(world):
    slow = RetryPolicy(base_seconds=20, cap_seconds=30)
    async with world(fail("busy", code="SERVER"), retry=slow) as w:
        w.agent.followup("hi")
        with anyio.fail_after(5):
            while not w.of("llm/retry"):
                await anyio.sleep(0.005)
            w.agent.cancel()
            await w.agent.when_idle()
        assert w.of("llm/retry-started") == []
        assert w.reasons == [{"kind": "aborted", "reason": {"kind": "user"}}]
