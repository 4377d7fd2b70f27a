"""Barriers, the pool, and what reaches the log of a tool call."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent import Runtime, tool
from nbagent.testing import ScriptedAdapter, check_log, text, tool_calls
from tests.agent.floor import Floor, calls

pytestmark = pytest.mark.anyio


async def test_parallel_calls_start_in_order_before_any_ends(world):
    floor = Floor()
    async with world(calls("r1", "r2", "r3"), text("ok"), tools=floor.tools) as w:
        w.agent.followup("go")
        # Which body gets the processor first is up to the event loop.
        await floor.until("+r1", "+r2", "+r3", in_order=False)
        assert [e.data["callId"] for e in w.of("tool/call")] == ["r1", "r2", "r3"]
        for name in ("r3", "r2", "r1"):
            floor.release(name)
        await w.agent.when_idle()
        assert [e.data["message"].tool_call_id for e in w.of("tool/result")] == ["r1", "r2", "r3"]


async def test_an_exclusive_call_is_a_barrier(world):
    floor = Floor()
    async with world(calls("r1", "w", "r2"), text("ok"), tools=floor.tools) as w:
        w.agent.followup("go")
        await floor.until("+r1")
        floor.release("r1")
        await floor.until("+r1", "-r1", "+w")
        floor.release("w")
        await floor.until("+r1", "-r1", "+w", "-w", "+r2")
        floor.release("r2")
        await w.agent.when_idle()


async def test_the_pool_is_bounded_and_commits_the_settled_prefix_before_the_next_start(world):
    floor = Floor()
    async with world(
        calls("r1", "r2", "r3", "r4"), text("ok"), tools=floor.tools, runtime={"max_parallel_tool_calls": 2}
    ) as w:
        w.agent.followup("go")
        await floor.until("+r1", "+r2", in_order=False)
        floor.release("r1")
        await floor.until("+r1", "+r2", "-r1", "+r3", in_order=False)
        pairs = [
            (e.type, e.data.get("callId") or e.data["message"].tool_call_id) for e in w.of("tool/call", "tool/result")
        ]
        assert pairs == [("tool/call", "r1"), ("tool/call", "r2"), ("tool/result", "r1"), ("tool/call", "r3")]
        for name in ("r2", "r3", "r4"):
            floor.release(name)
        await w.agent.when_idle()


async def test_an_unknown_tool_is_an_error_the_model_can_read(world):
    async with world(tool_calls(("c1", "nope", {})), text("ok")) as w:
        await w.ask("go")
        result = w.of("tool/result")[0].data
        assert result["message"].text == 'Error: unknown tool "nope"'
        assert result["error"]["code"] == "UNKNOWN_TOOL"
        assert result["message"].is_error


async def test_a_body_that_raises_becomes_an_error_result_and_the_turn_goes_on(world):
    @tool
    def explode() -> str:
        """Explode."""
        raise RuntimeError("exploded")

    async with world(tool_calls(("c1", "explode", {})), text("ok"), tools=[explode]) as w:
        await w.ask("go")
        assert w.of("tool/result")[0].data["message"].text == "Error: exploded"
        assert "error" not in w.of("tool/result")[0].data
        assert w.reasons == [{"kind": "completed"}]


async def test_arguments_that_are_no_object_reach_the_model_as_an_error(world):
    floor = Floor()
    async with world(tool_calls(("c1", "write", "not json")), text("ok"), tools=floor.tools) as w:
        await w.ask("go")
        assert w.of("tool/call")[0].data["arguments"] == "not json"
        assert w.of("tool/result")[0].data["message"].is_error
        assert floor.order == []


async def test_the_same_id_twice_in_one_answer_is_told_apart(world):
    async with world(tool_calls(("c", "nope", {}), ("c", "nope", {})), text("ok")) as w:
        await w.ask("go")
        ids = [block["id"] for block in w.of("assistant/message")[0].data["message"].tool_calls]
        assert ids == ["c", "c-2"]
        assert [e.data["callId"] for e in w.of("tool/call")] == ids
        check_log(w.events)


async def test_a_denied_call_still_leaves_a_call_and_a_result(world):
    floor = Floor()
    async with world(calls("w"), text("ok"), tools=floor.tools) as w:

        @w.on("tools/pre-execute")
        async def deny(payload, next):
            return {"kind": "deny", "reason": "blocked by policy"}

        await w.ask("go")
        assert w.of("tool/result")[0].data["message"].text == "Error: blocked by policy"
        assert floor.order == []


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(5)), limit=st.integers(1, 5))
def test_any_settlement_order_gives_the_same_results_in_the_log(order, limit):
    async def run():
        events = []
        finished = {n: anyio.Event() for n in range(5)}
        rank = {n: position for position, n in enumerate(order)}

        @tool(parallel=True)
        async def work(n: int) -> str:
            """Work."""
            earlier = [m for m in range(max(0, n - limit + 1), n) if rank[m] < rank[n]]
            for m in earlier:
                await finished[m].wait()
            finished[n].set()
            return str(n)

        async with Runtime(max_parallel_tool_calls=limit) as runtime:
            script = [tool_calls(*[(f"c{n}", "work", {"n": n}) for n in range(5)]), text("ok")]
            runtime.llm.register(["scripted"], ScriptedAdapter(script))
            handle = await runtime.agents.create(provider="scripted", model="m", tools=[work])
            handle.agent.followup("go")
            with anyio.fail_after(5):
                await handle.agent.when_idle()
            events = list(handle.agent.session.events)
        return [event.data["message"].text for event in events if event.type == "tool/result"]

    assert anyio.run(run) == ["0", "1", "2", "3", "4"]
