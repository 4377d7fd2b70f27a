"""What starts a driver, what waits for the present one to end, and maintenance."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from nbagent.errors import LifecycleError
from nbagent.testing import check_log, hang, text

pytestmark = pytest.mark.anyio


async def test_an_injection_wakes_nobody_and_enters_with_the_next_prompt(world):
    async with world(text("ok")) as w:
        w.agent.inject("context")
        assert w.agent.status == "idle"
        await w.ask("prompt")
        assert w.prompts == ["context", "prompt"]
        assert len(w.of("turn/start")) == 1


async def test_steering_an_idle_agent_opens_a_turn(world):
    async with world(text("ok")) as w:
        w.agent.steer("go")
        assert w.types() == ["turn/start"]
        await w.agent.when_idle()
        assert w.prompts == ["go"]


async def test_a_prompt_that_the_model_call_sends_gets_the_next_turn(world):
    def first(_request):
        w.agent.followup("second")
        return text("1")

    async with world(first, text("2")) as w:
        statuses = w.hear("agent/status", lambda p: p.status)
        await w.ask("first")
        assert [event.data["turn"] for event in w.of("turn/end")] == [1, 2]
        assert w.prompts == ["first", "second"]
        assert statuses == ["running", "idle"]


async def test_a_wake_on_an_idle_agent_opens_its_turn_even_when_its_message_is_taken_back(world):
    async with world(text("ok")) as w:
        w.agent.on("agent/inbox/inserted", lambda p: w.agent.inbox.remove(p.message.id))
        await w.ask("hi")
        assert w.types() == ["turn/start", "turn/end"]
        assert w.reasons == [{"kind": "completed"}]
        assert w.model.requests == []


async def test_steering_after_the_abort_becomes_a_prompt_and_runs_when_the_turn_has_ended(world):
    async with world(hang(), text("ok")) as w:
        statuses = w.hear("agent/status", lambda p: p.status)
        await w.answering("a")
        w.agent.cancel()
        w.agent.steer("b")
        assert w.waiting("next-turn") == ["b"]
        assert w.waiting("next-step") == []
        await w.agent.when_idle()
        assert [reason["kind"] for reason in w.reasons] == ["aborted", "completed"]
        assert statuses == ["running", "idle", "running", "idle"]


async def test_an_injection_after_the_abort_waits_without_a_turn(world):
    async with world(hang(), text("ok")) as w:
        await w.answering("a")
        w.agent.cancel()
        w.agent.inject("b")
        await w.agent.when_idle()
        assert w.waiting("next-step") == ["b"]
        assert len(w.of("turn/start")) == 1


async def test_late_input_that_is_taken_back_opens_no_turn(world):
    async with world(hang()) as w:
        await w.answering("a")
        w.agent.cancel(keep_inbox=True)
        late = w.agent.steer("b")
        assert w.agent.inbox.remove(late.id)
        await w.agent.when_idle()
        assert len(w.of("turn/start")) == 1


async def test_a_second_cancel_forgets_that_late_input_wanted_a_turn(world):
    async with world(hang()) as w:
        await w.answering("a")
        w.agent.cancel(keep_inbox=True)
        w.agent.followup("b")
        w.agent.cancel()
        w.agent.inject("context")
        await w.agent.when_idle()
        assert len(w.of("turn/start")) == 1
        assert w.waiting("next-step") == ["context"]


async def test_an_observer_of_the_abort_may_send(world):
    async with world(hang(), text("ok")) as w:
        turn = []

        @w.on("agent/request")
        async def remember(payload, next):
            if not turn:
                turn.append(payload.signal.subscribe(lambda: w.agent.followup("after")))
            return await next()

        await w.answering("a")
        w.agent.cancel()
        await w.agent.when_idle()
        assert [reason["kind"] for reason in w.reasons] == ["aborted", "completed"]
        assert w.prompts == ["a", "after"]


async def test_a_cancel_from_an_idle_agent_logs_nothing_and_arms_nothing(world):
    async with world(text("ok")) as w:
        w.agent.cancel()
        assert w.events == []
        await w.ask("hi")
        assert w.reasons == [{"kind": "completed"}]


async def test_a_send_and_cancel_in_the_idle_notification_are_a_turn_of_their_own(world):
    async with world(text("1"), text("2")) as w:
        once = []

        def on_status(payload):
            if payload.status == "idle" and not once:
                once.append(True)
                w.agent.followup("second")
                w.agent.cancel()

        w.agent.on("agent/status", on_status)
        with anyio.fail_after(5):
            await w.ask("first")
        assert [reason["kind"] for reason in w.reasons] == ["completed", "aborted"]
        assert len(w.model.requests) == 1
        await w.ask("third")
        assert w.prompts == ["first", "third"]


async def test_input_in_the_idle_notification_is_part_of_the_wait(world):
    async with world(text("1"), text("2")) as w:
        once = []

        def on_status(payload):
            if payload.status == "idle" and not once:
                once.append(w.agent.followup("second"))

        w.agent.on("agent/status", on_status)
        await w.ask("first")
        assert w.prompts == ["first", "second"]
        assert w.agent.status == "idle"


async def test_input_that_arrives_while_a_disposal_waits_for_the_turn_is_not_run(world):
    async with world(hang()) as w:
        refused = []

        def late():
            try:
                w.agent.followup("late")
            except LifecycleError as error:
                refused.append(error.code)

        @w.on("agent/request")
        async def remember(payload, next):
            payload.signal.subscribe(late)
            return await next()

        await w.answering("a")
        await w.handle.dispose()
        assert len(w.model.requests) == 1
        assert len(w.of("turn/start")) == 1
        assert refused in ([], ["AGENT_DISPOSED"])


# -- maintenance -------------------------------------------------------------------------------------------------------


async def test_maintenance_shows_as_idle_and_holds_back_waking_input(world):
    async with world(text("ok")) as w:
        statuses = w.hear("agent/status", lambda p: p.status)
        go = anyio.Event()

        async def job(signal):
            await go.wait()

        w.agent.run_maintenance(job)
        assert w.agent.status == "idle"
        w.agent.followup("hi")
        assert w.of("turn/start") == []
        go.set()
        await w.agent.when_idle()
        assert w.prompts == ["hi"]
        assert statuses == ["running", "idle"]


async def test_a_cancel_stops_the_job_and_drops_only_earlier_input(world):
    async with world(text("ok")) as w:
        stopped = []

        async def job(signal):
            await signal.wait()
            stopped.append(signal.reason["kind"])

        w.agent.run_maintenance(job)
        w.agent.followup("A")
        w.agent.cancel()
        w.agent.followup("B")
        await w.agent.when_idle()
        assert stopped == ["user"]
        assert w.prompts == ["B"]


async def test_input_that_was_taken_back_during_maintenance_opens_no_turn(world):
    async with world() as w:

        async def job(signal):
            await anyio.lowlevel.checkpoint()

        w.agent.run_maintenance(job)
        w.agent.inbox.remove(w.agent.followup("A").id)
        await w.agent.when_idle()
        assert w.of("turn/start") == []


async def test_a_job_that_fails_is_reported_and_the_agent_goes_on(world):
    async with world(text("ok")) as w:
        failures = w.hear("agent/error", lambda p: str(p.error))

        async def job(signal):
            raise ValueError("no")

        w.agent.run_maintenance(job)
        w.agent.followup("hi")
        await w.agent.when_idle()
        assert failures == ["no"]
        assert w.prompts == ["hi"]


async def test_one_thing_at_a_time(world):
    async with world(hang()) as w:

        async def job(signal):
            await signal.wait()

        def refused():
            with pytest.raises(LifecycleError, match='agent "s1" already has active work') as error:
                w.agent.run_maintenance(job)
            return error.value.code

        w.agent.run_maintenance(job)
        assert refused() == "ALREADY_ACTIVE"
        w.agent.cancel()
        await w.agent.when_idle()
        await w.answering("a")
        assert refused() == "ALREADY_ACTIVE"
        w.agent.cancel()
        await w.agent.when_idle()
        check_log(w.events)
