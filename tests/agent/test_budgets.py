"""What a turn may use: steps, tokens, cost and time, each ending the turn with a cause of its own."""

from __future__ import annotations

import pytest

from nbagent import tool
from nbagent.errors import InputError
from nbagent.storage import MemoryStore
from nbagent.testing import VirtualClock, check_log, text, tool_calls

pytestmark = pytest.mark.anyio


@tool
def echo() -> str:
    """Say it again."""
    return "echo"


def calling(*usages):
    """Answers that call a tool, with this usage each."""
    script = []
    for number, usage in enumerate(usages):
        *chunks, finish = [c for c in tool_calls((f"c{number}", "echo", {})).chunks if c["type"] != "usage"]
        script.append([*chunks, {"type": "usage", "usage": usage}, finish])
    return script


def spent(what):
    return {"kind": "aborted", "reason": {"kind": "hook", "reason": f"budget: {what}"}}


USED = {"inputTokens": 10, "outputTokens": 5}


async def test_steps_are_counted_and_pending_input_is_kept(world):
    async with world(*calling(*[USED] * 3), text("later"), tools=[echo], max_steps=3) as w:
        w.agent.on("tools/result", lambda p: p.call.call_id == "c2" and w.agent.inject("context"))
        w.agent.followup("go")
        w.agent.followup("queued")
        await w.agent.when_idle()
        assert len(w.model.requests) == 3
        assert w.reasons == [spent("steps")]
        assert w.waiting("next-turn") == ["queued"]
        assert w.waiting("next-step") == ["context"]
        check_log(w.events)
        w.agent.steer("go on")
        await w.agent.when_idle()
        assert w.prompts == ["go", "context", "go on", "queued"]
        assert w.reasons[1] == {"kind": "completed"}


async def test_a_turn_that_needs_no_more_steps_completes_within_its_budget(world):
    async with world(text("ok"), tools=[echo], max_steps=1, max_turn_tokens=1) as w:
        await w.ask("hi")
        assert w.reasons == [{"kind": "completed"}]


async def test_every_turn_has_the_whole_budget(world):
    async with world(*calling(USED), text("a"), *calling(USED), text("b"), tools=[echo], max_steps=2) as w:
        await w.ask("1")
        await w.ask("2")
        assert w.reasons == [{"kind": "completed"}] * 2


async def test_tokens_of_every_kind_count(world):
    usages = [{"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 30, "cacheWriteTokens": 7}, USED]
    async with world(*calling(*usages), tools=[echo], max_turn_tokens=55) as w:
        await w.ask("go")
        assert len(w.model.requests) == 2
        assert w.reasons == [spent("tokens")]


async def test_cost_is_what_the_runtimes_price_says(world):
    asked = []

    def price(provider, model, usage):
        asked.append((provider, model, dict(usage)))
        return 0.3

    async with world(*calling(USED, USED), tools=[echo], max_cost=0.5, runtime={"price": price}) as w:
        await w.ask("go")
        assert len(w.model.requests) == 2
        assert w.reasons == [spent("cost")]
        assert asked[-1] == ("scripted", "m", USED)


async def test_a_limited_cost_without_a_known_price_is_refused_before_anything_exists(world):
    store = MemoryStore()
    with pytest.raises(InputError) as refused:
        async with world(store=store, max_cost=1, runtime={"price": lambda *_: None}):
            pass
    assert refused.value.code == "UNKNOWN_PRICE"
    assert await store.list() == []


async def test_a_model_without_a_price_that_a_listener_chose_fails_the_turn_and_keeps_the_inbox(world):
    def price(_provider, model, _usage):
        return 0.1 if model == "m" else None

    async with world(*calling(USED), tools=[echo], max_cost=1, runtime={"price": price}) as w:

        @w.on("agent/request")
        async def choose(payload, next):
            return {**await next(), "model": "unpriced"}

        w.agent.followup("go")
        w.agent.followup("queued")
        await w.agent.when_idle()
        assert w.reasons[0]["kind"] == "error"
        assert "max_cost needs a price for scripted/unpriced" in w.reasons[0]["error"]["message"]
        assert w.waiting("next-turn") == ["queued"]


async def test_time_is_counted_from_the_start_of_the_turn(world):
    clock = VirtualClock()

    @tool
    async def slow() -> str:
        """Take a minute."""
        clock.advance(60_000)
        return "done"

    script = [tool_calls((f"c{n}", "slow", {})) for n in range(3)]
    async with world(*script, tools=[slow], max_seconds=100, runtime={"clock": clock}) as w:
        clock.advance(1_000_000)
        await w.ask("go")
        assert len(w.model.requests) == 2
        assert w.reasons == [spent("time")]


async def test_steering_does_not_lift_a_budget(world):
    async with world(text("1"), text("2"), max_steps=1) as w:

        @w.on("agent/turn-stopping")
        async def go_on(payload):
            w.agent.steer("more")

        await w.ask("go")
        assert w.reasons == [spent("steps")]
        assert w.waiting("next-step") == ["more"]


async def test_a_users_cancel_comes_before_a_spent_budget(world):
    async with world(*calling(USED), tools=[echo], max_steps=1) as w:
        w.agent.on("tools/result", lambda p: w.agent.cancel())
        await w.ask("go")
        assert w.reasons == [{"kind": "aborted", "reason": {"kind": "user"}}]


async def test_listeners_may_set_limits_of_their_own(world):
    async with world(*calling(USED, USED), tools=[echo]) as w:

        @w.on("agent/pre-step")
        async def limit(payload, next):
            if payload.step == 2:
                payload.agent.cancel("hook", reason="enough", keep_inbox=True)
            return await next()

        await w.ask("go")
        assert w.reasons == [{"kind": "aborted", "reason": {"kind": "hook", "reason": "enough"}}]
