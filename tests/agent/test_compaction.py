"""Older history gives way to a summary, by hand and by policy."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from nbagent import CompactionPolicy, tool
from nbagent.errors import InputError, LifecycleError, LlmError
from nbagent.testing import check_log, fail, hang, text, tool_calls

pytestmark = pytest.mark.anyio
LONG = "a long story " * 40


@tool
def look() -> str:
    """Look."""
    return "seen " * 50


def told(request):
    return [(message.role, message.text) for message in request.messages]


async def test_a_given_summary_stands_for_everything_before_the_latest_turn(world):
    async with world(text("one"), text("two"), text("three")) as w:
        await w.ask("first")
        await w.ask("second")
        message = await w.agent.compact(summary="They greeted each other.")
        assert message.text == "They greeted each other."
        await w.ask("third")
        assert told(w.model.requests[-1]) == [
            ("system", "Be brief."),
            ("user", "They greeted each other."),
            ("user", "second"),
            ("assistant", "two"),
            ("user", "third"),
        ]
        check_log(w.events)


async def test_the_log_keeps_what_was_replaced_and_says_who_asked(world):
    async with world(text("one")) as w:
        await w.ask("first")
        before = w.events
        await w.agent.compact(summary="S")
        assert w.events[: len(before)] == before
        start, end = w.of("compaction/start", "compaction/end")
        assert start.data == {"startSeq": end.data["startSeq"], "endSeq": end.data["endSeq"], "trigger": "manual"}
        assert end.data["outcome"] == "replaced"
        assert w.agent.session.events[end.data["seq"]].data["content"][0]["text"] == "S"


async def test_the_summary_begins_a_new_series_with_the_prompt_untouched(world):
    async with world(text("one"), text("two")) as w:
        await w.ask("first")
        await w.agent.compact(summary="S")
        await w.ask("second")
        assert [event.data["reason"] for event in w.of("request/header")] == ["initial", "series"]
        assert len(w.of("system/message")) == 1


async def test_the_model_writes_the_summary_when_none_is_given(world):
    async with world(tool_calls(("c1", "look", {})), text("one"), text("They looked."), tools=[look]) as w:
        await w.ask("look around")
        message = await w.agent.compact()
        assert message.text == "Summary of the earlier conversation, which it replaces:\n\nThey looked."
        asked = w.model.requests[-1]
        assert asked.tools == ()
        assert [message.role for message in asked.messages] == ["system", "user"]
        assert "look around" in asked.messages[1].text
        assert "calls look({})" in asked.messages[1].text
        assert w.of("compaction/end")[0].data["usage"] == {"inputTokens": 10, "outputTokens": 12}
        assert [message.text for message in w.agent.session.messages()] == ["Be brief.", message.text]


async def test_a_model_that_cannot_write_one_leaves_the_history_as_it_was(world):
    async with world(text("one"), fail("no credit", code="QUOTA"), text("  "), text("two")) as w:
        await w.ask("first")
        history = w.agent.session.messages()
        with pytest.raises(LlmError, match="no credit"):
            await w.agent.compact()
        with pytest.raises(LlmError, match="wrote no summary"):
            await w.agent.compact()
        assert w.agent.session.messages() == history
        assert [end.data["outcome"] for end in w.of("compaction/end")] == ["failed", "failed"]
        await w.ask("second")
        assert w.reasons[-1] == {"kind": "completed"}


async def test_a_cancel_ends_the_writing_of_a_summary(world):
    async with world(text("one"), hang()) as w:
        await w.ask("first")
        failures: list[Exception] = []

        async def compact() -> None:
            try:
                await w.agent.compact()
            except LifecycleError as failure:
                failures.append(failure)

        async with anyio.create_task_group() as group:
            group.start_soon(compact)
            while len(w.model.requests) < 2:
                await anyio.lowlevel.checkpoint()
            w.agent.cancel()
        assert [failure.code for failure in failures] == ["ABORTED"]
        assert w.of("compaction/end")[0].data["outcome"] == "aborted"
        assert w.agent.session.replace_generation == 0


async def test_a_prompt_sent_meanwhile_waits_for_the_summary(world):
    def summarise(request):
        agent.followup("second")
        return text("S")

    async with world(text("one"), summarise, text("two")) as w:
        agent = w.agent
        await w.ask("first")
        await agent.compact()
        await w.agent.when_idle()
        assert [message.text.splitlines()[-1] for message in w.model.requests[-1].messages] == [
            "Be brief.",
            "S",
            "second",
        ]


async def test_a_turn_under_way_is_not_compacted_from_outside(world):
    async with world(hang()) as w:
        w.agent.followup("hi")
        with pytest.raises(LifecycleError) as failure:
            await w.agent.compact(summary="S")
        assert failure.value.code == "ALREADY_ACTIVE"
        w.agent.cancel()
        await w.agent.when_idle()


async def test_a_listener_of_the_turn_may_compact_and_the_runtime_context_comes_back(world):
    async with world(text("one"), text("two")) as w:
        w.agent.context("mode", "Mode: read-only.")
        await w.ask("first")

        @w.on("agent/pre-step")
        async def compact(payload, next):
            await payload.agent.compact(upto_seq=len(w.events) - 1, summary="S")
            return await next()

        await w.ask("second")
        texts = [message.text for message in w.model.requests[-1].messages]
        assert texts[:3] == ["Be brief.", "S", "second"]
        assert texts[3].endswith("Mode: read-only.")


async def test_a_tool_may_compact_and_its_own_call_stays(world):
    @tool
    async def forget() -> str:
        """Forget what was before."""
        from nbagent import require_agent

        await require_agent().compact(summary="S")
        return "forgotten"

    async with world(tool_calls(("c1", "forget", {})), text("ok"), tools=[forget]) as w:
        await w.ask("forget this")
        assert told(w.model.requests[-1]) == [
            ("system", "Be brief."),
            ("user", "S"),
            ("assistant", ""),
            ("tool", "forgotten"),
        ]
        assert w.reasons == [{"kind": "completed"}]


@pytest.mark.parametrize("summary", ["", "  \n", 3])
async def test_a_summary_must_say_something(world, summary):
    async with world(text("one")) as w:
        await w.ask("first")
        with pytest.raises(InputError) as failure:
            await w.agent.compact(summary=summary)
        assert failure.value.code == "INVALID_OPTION"


@pytest.mark.parametrize("upto", [-1, 10_000, True, "3"])
async def test_a_cut_that_is_no_event_is_refused(world, upto):
    async with world(text("one")) as w:
        await w.ask("first")
        with pytest.raises(InputError) as failure:
            await w.agent.compact(upto_seq=upto, summary="S")
        assert failure.value.code == "INVALID_BOUNDARY"


async def test_where_nothing_is_older_there_is_nothing_to_compact(world):
    async with world(text("one")) as w:
        await w.ask("first")
        with pytest.raises(InputError) as failure:
            await w.agent.compact(upto_seq=0, summary="S")
        assert failure.value.code == "NOTHING_TO_COMPACT"
        assert w.of("compaction/start") == []
        assert w.agent.status == "idle"


# -- the context window ----------------------------------------------------------------------------------------------------


async def test_a_request_that_cannot_fit_is_not_sent(world):
    async with world(text("one"), adapter={"context_window": 100}) as w:
        await w.ask(LONG)
        assert w.model.requests == []
        reason = w.reasons[0]["error"]
        assert reason["code"] == "CONTEXT_WINDOW_EXCEEDED"
        assert "has 100" in reason["message"]
        assert "agent.compact()" in reason["message"]
        await w.agent.compact(summary="A story.")
        await w.ask("go on")
        assert w.reasons[-1] == {"kind": "completed"}


async def test_what_the_model_counted_is_believed(world):
    counted = [
        {"type": "text-delta", "index": 0, "text": "ok"},
        {"type": "usage", "usage": {"inputTokens": 60, "cacheReadTokens": 39, "outputTokens": 900}},
        {"type": "finish", "reason": {"kind": "stop"}},
    ]
    async with world(counted, text("two"), adapter={"context_window": 100}) as w:
        await w.ask("hi")
        await w.ask("hi!!")
        assert w.reasons[1] == {"kind": "completed"}
    async with world(counted, text("two"), adapter={"context_window": 100}) as w:
        await w.ask("hi")
        await w.ask("hi and more")
        assert w.reasons[1]["error"]["code"] == "CONTEXT_WINDOW_EXCEEDED"


async def test_a_route_that_does_not_tell_its_window_is_never_refused(world):
    async with world(text("one")) as w:
        await w.ask(LONG * 100)
        assert w.reasons == [{"kind": "completed"}]


async def test_a_listener_may_make_room_and_try_again(world):
    async with world(text("one"), text("two"), adapter={"context_window": 135}) as w:
        await w.ask(LONG)

        @w.on("agent/request-error")
        async def make_room(payload, next):
            assert payload.failure["code"] == "CONTEXT_WINDOW_EXCEEDED"
            await payload.agent.compact(summary="A story.")
            return {"kind": "retry"}

        await w.ask(LONG)
        assert w.reasons[-1] == {"kind": "completed"}
        assert told(w.model.requests[-1])[1] == ("user", "A story.")


# -- by policy -------------------------------------------------------------------------------------------------------------


async def test_a_policy_makes_room_before_the_step_that_would_need_it(world):
    script = (text("one", usage=False), text("two", usage=False), text("They told a story."), text("three"))
    async with world(*script, adapter={"context_window": 400}, compaction="auto") as w:
        await w.ask(LONG)
        await w.ask(LONG)
        await w.ask(LONG)
        assert w.reasons == [{"kind": "completed"}] * 3
        last = told(w.model.requests[-1])
        assert last[1][1].endswith("They told a story.")
        assert len(w.model.requests) == 4
        assert w.of("compaction/start")[0].data["trigger"] == "policy"
        check_log(w.events)


async def test_a_policy_tries_again_after_a_request_that_did_not_fit(world):
    script = (text("one"), fail("too long", code="CONTEXT_WINDOW_EXCEEDED"), text("Short."), text("two"))
    async with world(*script, compaction=CompactionPolicy(instructions="Keep numbers.")) as w:
        await w.ask("first")
        await w.ask("second")
        assert w.reasons == [{"kind": "completed"}] * 2
        assert w.model.requests[2].messages[0].text.endswith("Keep numbers.")
        assert told(w.model.requests[3])[1][1].endswith("Short.")


async def test_a_policy_that_cannot_make_room_lets_the_failure_stand(world):
    async with world(text("never"), adapter={"context_window": 100}, compaction="auto") as w:
        await w.ask(LONG)
        assert w.reasons[0]["error"]["code"] == "CONTEXT_WINDOW_EXCEEDED"


@pytest.mark.parametrize("given", [True, 0.5, "always", {"at": 0.5}])
async def test_an_unknown_policy_is_refused_in_one_line(world, given):
    with pytest.raises(InputError) as failure:
        async with world(compaction=given):
            pass
    assert failure.value.code == "INVALID_OPTION"


@pytest.mark.parametrize("parts", [{"at": 0}, {"at": 1.5}, {"keep": 0.9}, {"keep": -1}, {"at": float("nan")}])
def test_the_parts_of_a_policy_are_checked(parts):
    with pytest.raises(InputError, match="0 < keep < at <= 1"):
        CompactionPolicy(**parts)
