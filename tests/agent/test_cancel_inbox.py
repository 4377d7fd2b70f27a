"""What a cancel does to pending input, and which cause is recorded."""

from __future__ import annotations

import pytest

from nbagent.testing import check_log, hang, text

pytestmark = pytest.mark.anyio


def canceled(w):
    return [event.data["target"] for event in w.of("agent/inbox/spliced") if event.data.get("outcome") == "canceled"]


async def test_the_claimed_prompt_is_gone_and_the_one_behind_it_is_canceled(world):
    async with world() as w:
        gone = w.hear("agent/inbox/discarded", lambda p: p.message.text)
        w.agent.followup("first")
        w.agent.followup("second")
        w.agent.cancel()
        await w.agent.when_idle()
        assert len(w.of("turn/start")) == 1
        assert gone == ["second"]
        assert w.prompts == []
        assert w.agent.inbox.pending is False


async def test_keeping_the_inbox_does_not_bring_the_claimed_prompt_back(world):
    async with world(text("ok")) as w:
        w.agent.followup("first")
        w.agent.cancel(keep_inbox=True)
        await w.agent.when_idle()
        assert canceled(w) == []
        assert w.agent.inbox.pending is False
        await w.ask("second")
        assert w.prompts == ["second"]
        assert [reason["kind"] for reason in w.reasons] == ["aborted", "completed"]


async def test_steering_of_a_cancelled_turn_never_becomes_a_turn(world):
    async with world(hang(), text("ok")) as w:
        await w.answering("a")
        w.agent.steer("steering")
        w.agent.cancel()
        await w.agent.when_idle()
        assert canceled(w) == ["next-step"]
        assert len(w.of("turn/start")) == 1
        await w.ask("b")
        assert w.prompts == ["a", "b"]


async def test_kept_steering_enters_with_the_next_prompt(world):
    async with world(hang(), text("ok")) as w:
        await w.answering("a")
        w.agent.steer("steering")
        w.agent.cancel(keep_inbox=True)
        await w.agent.when_idle()
        assert len(w.of("turn/start")) == 1
        await w.ask("b")
        assert w.prompts == ["a", "steering", "b"]


async def test_the_inbox_is_cleared_before_the_signal_aborts(world):
    async with world(hang()) as w:
        order = []

        @w.on("agent/request")
        async def remember(payload, next):
            payload.signal.subscribe(lambda: order.append(("abort", w.agent.inbox.pending)))
            return await next()

        w.agent.on("agent/inbox/discarded", lambda p: order.append(("discarded", p.message.text)))
        await w.answering("a")
        w.agent.followup("b")
        w.agent.steer("s")
        w.agent.cancel()
        await w.agent.when_idle()
        assert order == [("discarded", "s"), ("discarded", "b"), ("abort", False)]


async def test_a_cancel_inside_a_publication_aborts_now_and_clears_when_it_has_unwound(world):
    async with world(text("ok")) as w:
        seen = []

        def stop(payload):
            if payload.event.type == "assistant/message":
                w.agent.cancel()
                seen.append(w.waiting("next-turn"))

        w.agent.on("session/event", stop)
        w.agent.followup("a")
        w.agent.followup("b")
        await w.agent.when_idle()
        assert seen == [["b"]]
        assert canceled(w) == ["next-turn"]
        assert [reason["kind"] for reason in w.reasons] == ["aborted"]


async def test_a_cancel_while_the_turn_opens_leaves_the_prompt_pending_or_clears_it(world):
    for keep in (True, False):
        async with world() as w:

            def stop(payload, w=w, keep=keep):
                if payload.event.type == "turn/start":
                    w.agent.cancel(keep_inbox=keep)

            w.agent.on("session/event", stop)
            await w.ask("a")
            assert w.types() == ["turn/start", "turn/end"]
            assert w.waiting("next-turn") == (["a"] if keep else [])


async def test_the_live_signal_has_the_callers_cause_and_the_log_a_copy(world):
    async with world(hang()) as w:
        cause = {"kind": "hook", "reason": "too long", "detail": object()}
        signals = []

        @w.on("agent/request")
        async def remember(payload, next):
            signals.append(payload.signal)
            return await next()

        await w.answering("a")
        w.agent.cancel(cause)
        w.agent.cancel("user")
        await w.agent.when_idle()
        assert signals[0].reason is cause
        assert w.reasons == [{"kind": "aborted", "reason": {"kind": "hook", "reason": "too long"}}]


async def test_a_users_cancel_that_a_disposal_follows_stays_the_users(world):
    async with world(hang()) as w:
        await w.answering("a")
        w.agent.cancel("user")
        await w.handle.dispose()
        assert w.reasons == [{"kind": "aborted", "reason": {"kind": "user"}}]
        check_log(w.events)


async def test_the_next_turn_has_a_signal_of_its_own(world):
    async with world(text("1"), text("2")) as w:
        signals = []

        @w.on("agent/request")
        async def remember(payload, next):
            signals.append(payload.signal)
            return await next()

        w.agent.followup("a")
        w.agent.followup("b")
        await w.agent.when_idle()
        assert signals[0] is not signals[1]
        assert not signals[0].aborted
