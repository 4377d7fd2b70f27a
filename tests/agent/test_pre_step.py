"""The decision before a step: what enters, what is turned away, and what becomes of the rest."""

from __future__ import annotations

import anyio
import pytest

from nbagent import tool
from nbagent.agent.points import Enter, Reject
from nbagent.testing import check_log, text, tool_calls
from nbagent.types.messages import user_message

pytestmark = pytest.mark.anyio


@tool
def echo() -> str:
    """Say it again."""
    return "echo"


async def test_without_a_listener_messages_enter_unchanged(world):
    async with world(text("ok")) as w:
        sent = w.agent.followup("hi")
        await w.agent.when_idle()
        assert w.of("user/message")[0].data is sent


async def test_listeners_see_frozen_messages_and_the_coordinates_of_the_step(world):
    async with world(tool_calls(("c1", "echo", {})), text("ok"), tools=[echo]) as w:
        seen = []

        @w.on("agent/pre-step")
        async def look(payload, next):
            seen.append((payload.turn, payload.step, [m.text for m in payload.messages]))
            for message in payload.messages:
                with pytest.raises(TypeError):
                    message["role"] = "system"
            return await next()

        await w.ask("hi")
        assert seen == [(1, 1, ["hi"]), (1, 2, [])]


async def test_it_comes_before_the_step_starts(world):
    async with world(text("ok")) as w:
        last = []

        @w.on("agent/pre-step")
        async def look(payload, next):
            last.append(w.events[-1].type)
            return await next()

        await w.ask("hi")
        assert last == ["agent/inbox/spliced"]


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "mapping"])
async def test_a_listener_may_rewrite_drop_and_add_messages(world, typed):
    async with world(text("ok")) as w:

        @w.on("agent/pre-step")
        async def rewrite(payload, next):
            decision = await next()
            (prompt,) = decision.messages
            messages = [user_message("before"), prompt.replace(content=[{"type": "text", "text": "rewritten"}])]
            if typed:
                return Enter([dict(message) for message in messages])
            return {"kind": "enter", "messages": [dict(message) for message in messages]}

        await w.ask("original")
        assert w.prompts == ["before", "rewritten"]
        assert w.sent("user") == [["before", "rewritten"]]


async def test_an_outer_listener_has_the_last_word(world):
    async with world(text("ok")) as w:

        def adding(name):
            async def add(payload, next):
                decision = await next()
                return Enter([*decision.messages, user_message(name)])

            return add

        w.runtime.on("agent/pre-step", adding("outer"))
        w.agent.on("agent/pre-step", adding("inner"))
        await w.ask("hi")
        assert w.prompts == ["hi", "inner", "outer"]


@pytest.mark.parametrize("answer", [None, "enter", {"kind": "other"}, {}])
async def test_another_answer_fails_the_turn(world, answer):
    async with world() as w:

        @w.on("agent/pre-step")
        async def wrong(payload, next):
            return answer

        await w.ask("hi")
        assert w.reasons[0]["error"]["message"].startswith('an "agent/pre-step" listener must answer enter or reject')
        assert w.types() == ["turn/start", "turn/end"]


async def test_a_rejected_prompt_is_gone_and_the_others_wait_for_the_next_send(world):
    async with world(text("a"), text("b")) as w:
        verdicts = [Reject()]

        @w.on("agent/pre-step")
        async def gate(payload, next):
            return verdicts.pop() if verdicts else await next()

        w.agent.followup("one")
        w.agent.followup("two")
        await w.agent.when_idle()
        assert w.reasons == [{"kind": "blocked"}]
        assert w.waiting("next-turn") == ["two"]
        await w.ask("three")
        assert w.prompts == ["two", "three"]
        assert [event.data["turn"] for event in w.of("turn/end")] == [1, 2, 3]


async def test_nothing_left_to_enter_ends_the_first_step_completed_and_stops_the_driver(world):
    async with world(text("b")) as w:
        verdicts = [Enter([])]

        @w.on("agent/pre-step")
        async def drop(payload, next):
            return verdicts.pop() if verdicts else await next()

        w.agent.followup("one")
        w.agent.followup("two")
        await w.agent.when_idle()
        assert w.types() == ["turn/start", "turn/end"]
        assert w.reasons == [{"kind": "completed"}]
        assert w.waiting("next-turn") == ["two"]


async def test_steering_that_arrives_during_the_decision_enters_the_second_step(world):
    async with world(text("1"), text("2")) as w:

        @w.on("agent/pre-step")
        async def late(payload, next):
            if payload.step == 1:
                w.agent.inject("injected")
                w.agent.steer("steered")
            return await next()

        await w.ask("hi")
        assert w.sent("user") == [["hi"], ["hi", "injected", "steered"]]
        assert len(w.of("turn/start")) == 1


async def test_steering_that_arrives_during_a_rejection_waits_for_the_next_turn(world):
    async with world(text("2")) as w:

        @w.on("agent/pre-step")
        async def late(payload, next):
            if payload.turn > 1:
                return await next()
            w.agent.inject("injected")
            w.agent.steer("steered")
            return Reject()

        await w.ask("hi")
        assert w.waiting("next-step") == ["injected", "steered"]
        await w.ask("again")
        assert w.prompts == ["injected", "steered", "again"]


async def test_a_listener_that_fails_reports_once_and_keeps_the_steering_it_sent(world):
    async with world(text("2")) as w:
        failures = w.hear("agent/error", lambda p: (p.turn, p.step, str(p.error)))

        @w.on("agent/pre-step")
        async def fails(payload, next):
            if payload.turn > 1:
                return await next()
            w.agent.steer("steered")
            raise ValueError("no entry")

        await w.ask("hi")
        assert failures == [(1, 0, "no entry")]
        assert w.types() == ["turn/start", "turn/end"]
        assert w.waiting("next-step") == ["steered"]
        await w.ask("again")
        assert w.prompts == ["steered", "again"]


async def test_a_completed_turn_whose_next_batch_is_empty_has_no_second_step(world):
    async with world(text("1")) as w:

        @w.on("agent/turn-stopping")
        async def go_on(payload):
            w.agent.inject("more")

        @w.on("agent/pre-step")
        async def drop(payload, next):
            return await next() if payload.step == 1 else Enter([])

        await w.ask("hi")
        assert len(w.of("step/start")) == 1
        assert w.reasons == [{"kind": "completed"}]
        assert len(w.model.requests) == 1


async def test_a_rejected_second_step_ends_the_turn_blocked(world):
    async with world(tool_calls(("c1", "echo", {})), text("2"), tools=[echo]) as w:

        @w.on("agent/pre-step")
        async def gate(payload, next):
            return await next() if payload.turn == 2 or payload.step == 1 else Reject()

        await w.ask("hi")
        assert w.reasons == [{"kind": "blocked"}]
        await w.ask("again")
        assert w.sent("tool")[1] == ["echo"]
        check_log(w.events)


async def test_an_empty_batch_after_a_tool_still_opens_the_next_step(world):
    async with world(tool_calls(("c1", "echo", {})), text("2"), tools=[echo]) as w:

        @w.on("agent/pre-step")
        async def drop(payload, next):
            return await next() if payload.step == 1 else Enter([])

        await w.ask("hi")
        assert len(w.of("step/start")) == 2
        assert w.reasons == [{"kind": "completed"}]


@pytest.mark.parametrize("point", ["system-prompt/assemble", "agent/pre-step"])
async def test_a_cancel_before_the_step_ends_the_turn_without_one(world, point):
    async with world(text("b")) as w:

        @w.on(point)
        async def stop(payload, next):
            if len(w.of("turn/start")) == 1:
                w.agent.cancel(keep_inbox=True)
            return await next()

        w.agent.followup("a")
        await w.agent.when_idle()
        assert w.types() == ["turn/start", "turn/end"]
        assert w.reasons == [{"kind": "aborted", "reason": {"kind": "user"}}]
        assert w.agent.inbox.pending is False
        await w.ask("b")
        assert w.prompts == ["b"]


async def test_a_disposal_before_the_step_calls_no_model(world):
    async with world(text("never")) as w:
        waiting = anyio.Event()

        @w.on("system-prompt/assemble")
        async def slow(payload, next):
            waiting.set()
            await payload.signal.wait()
            return await next()

        notices = w.hear("agent/assistant-stream", lambda p: p.type)
        w.agent.followup("hi")
        await waiting.wait()
        await w.handle.dispose()
        assert w.types() == ["turn/start", "turn/end"]
        assert w.reasons == [{"kind": "aborted", "reason": {"kind": "disposed"}}]
        assert (w.model.requests, notices) == ([], [])
