"""Input that enters a running turn, and what keeps a turn going."""

from __future__ import annotations

import pytest

from nbagent import tool
from nbagent.testing import check_log, text, tool_calls
from nbagent.tools import current_call

pytestmark = pytest.mark.anyio


@tool
def echo() -> str:
    """Say it again."""
    return "echo"


async def test_steering_during_a_tool_enters_after_the_result_at_the_second_step(world):
    @tool
    async def steers() -> str:
        """Steer."""
        w.agent.steer("steered")
        w.agent.inject("injected")
        assert w.prompts == ["go"]
        return "done"

    async with world(tool_calls(("c1", "steers", {})), text("ok"), tools=[steers]) as w:
        await w.ask("go")
        second_step = w.of("step/start")[1]
        assert [event.data.text for event in w.of("user/message") if event.seq > second_step.seq] == [
            "steered",
            "injected",
        ]
        assert [m.text for m in w.model.requests[1].messages][-3:] == ["done", "steered", "injected"]
        assert len(w.of("turn/start")) == 1


async def test_injections_of_several_calls_enter_in_call_order(world):
    @tool
    async def injects(name: str) -> str:
        """Inject."""
        w.agent.inject(f"context {name}")
        return name

    calls = tool_calls(*[(name, "injects", {"name": name}) for name in "abc"])
    async with world(calls, text("ok"), tools=[injects]) as w:
        await w.ask("go")
        assert [m.text for m in w.model.requests[1].messages][-3:] == ["context a", "context b", "context c"]


async def test_injected_content_is_sent_verbatim(world):
    async with world(text("ok")) as w:
        w.agent.inject("  <context>\n\n{{model}} ")
        await w.ask("hi")
        assert w.sent("user") == [["  <context>\n\n{{model}} ", "hi"]]


async def test_a_listener_keeps_the_turn_going_until_it_is_satisfied(world):
    async with world(text("1"), text("2"), text("3")) as w:

        @w.on("agent/turn-stopping")
        async def go_on(payload):
            if len(w.model.requests) < 3:
                payload.agent.steer("again")

        await w.ask("hi")
        assert len(w.of("step/start")) == 3
        assert len(w.of("turn/end")) == 1


async def test_listeners_are_asked_one_after_another(world):
    async with world(text("1"), text("2")) as w:
        seen = []

        def asking(name):
            async def ask(payload):
                seen.append((name, payload.turn, w.waiting("next-step")))
                if name == "first" and len(w.model.requests) == 1:
                    w.agent.steer("more")

            return ask

        w.agent.on("agent/turn-stopping", asking("first"))
        w.agent.on("agent/turn-stopping", asking("second"))
        await w.ask("hi")
        assert seen == [("first", 1, []), ("second", 1, ["more"]), ("first", 1, []), ("second", 1, [])]


async def test_a_listener_that_fails_ends_the_turn_with_its_error(world):
    async with world(text("1"), text("2")) as w:
        broken = [ValueError("no end")]

        @w.on("agent/turn-stopping")
        async def fails(payload):
            if broken:
                raise broken.pop()

        await w.ask("hi")
        await w.ask("hi")
        assert w.reasons == [
            {"kind": "error", "error": {"message": "no end", "code": "UNKNOWN"}},
            {"kind": "completed"},
        ]


async def test_nobody_is_asked_while_steering_waits_or_tools_go_on(world):
    def steers(_request):
        w.agent.steer("more")
        return text("2")

    async with world(tool_calls(("c1", "echo", {})), steers, text("3"), tools=[echo]) as w:
        asked = []

        @w.on("agent/turn-stopping")
        async def ask(payload):
            asked.append(len(w.model.requests))

        await w.ask("hi")
        assert asked == [3]


async def test_steering_outweighs_a_tool_that_concludes_the_turn(world):
    @tool
    async def concludes() -> str:
        """Conclude."""
        current_call().conclude_turn()
        w.agent.steer("one more")
        return "done"

    async with world(tool_calls(("c1", "concludes", {})), text("ok"), tools=[concludes]) as w:
        await w.ask("go")
        assert len(w.model.requests) == 2
        assert w.reasons == [{"kind": "completed"}]


async def test_a_tool_that_concludes_the_turn_ends_it_without_another_request(world):
    @tool
    async def concludes() -> str:
        """Conclude."""
        current_call().conclude_turn()
        return "done"

    calls = tool_calls(("c1", "concludes", {}), ("c2", "echo", {}))
    async with world(calls, text("next"), tools=[concludes, echo]) as w:
        await w.ask("go")
        assert len(w.model.requests) == 1
        assert len(w.of("tool/result")) == 2
        assert w.reasons == [{"kind": "completed"}]
        await w.ask("again")
        assert w.sent("tool")[1] == ["done", "echo"]


async def test_steering_during_the_request_proposal_joins_the_next_request(world):
    async with world(text("1"), text("2")) as w:
        once = []

        @w.on("agent/request")
        async def late(payload, next):
            if not once:
                once.append(True)
                w.agent.inject("late")
            return await next()

        await w.ask("hi")
        assert w.sent("user") == [["hi"], ["hi", "late"]]
        check_log(w.events)


async def test_a_turn_that_hit_the_token_limit_goes_on_when_steered_and_keeps_its_reason(world):
    cut = [{"type": "text-delta", "index": 0, "text": "hal"}, {"type": "finish", "reason": {"kind": "max-tokens"}}]
    async with world(cut, text("rest"), text("next")) as w:
        once = []

        @w.on("agent/turn-stopping")
        async def go_on(payload):
            if not once:
                once.append(w.agent.steer("go on"))

        await w.ask("hi")
        await w.ask("next")
        assert w.sent("assistant")[1] == ["hal"]
        assert w.reasons == [{"kind": "max-tokens"}, {"kind": "completed"}]
