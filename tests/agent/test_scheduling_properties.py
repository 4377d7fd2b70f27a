"""Whatever tools touch and in whichever order they end: no conflict overlaps, and the log keeps the model's order."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import anyio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent import Runtime, tool
from nbagent.testing import ScriptedAdapter, check_log, text, tool_calls

names = st.frozensets(st.sampled_from("abc"), max_size=2)


@dataclass(frozen=True)
class Call:
    """One call of a script: its tool, what it touches, and after how many rounds of the loop its body ends."""

    kind: str
    reads: frozenset
    writes: frozenset
    rounds: int
    denied: bool


@st.composite
def call(draw):
    kind = draw(st.sampled_from(["exclusive", "parallel", "keyed", "keyed", "unknown"]))
    keyed = kind == "keyed"
    reads, writes = (draw(names), draw(names)) if keyed else (frozenset(), frozenset())
    return Call(kind, reads, writes, draw(st.integers(0, 6)), draw(st.integers(0, 5)) == 0)


def conflict(one, other):
    if "exclusive" in (one.kind, other.kind):
        return True
    return bool(one.writes & (other.reads | other.writes) or other.writes & one.reads)


class Floor:
    """Tools that note which of their bodies overlap."""

    def __init__(self, script, cancel_at):
        self.script = script
        self.cancel_at = cancel_at
        self.inside = []
        self.entered = []
        self.overlaps = []
        self.agent = None
        self.most = 0

        @tool
        async def exclusive(n: int) -> int:
            """Run alone."""
            return await self.body(n)

        @tool(parallel=True)
        async def parallel(n: int) -> int:
            """Run beside others."""
            return await self.body(n)

        @tool(reads=lambda a: script[a["n"]].reads, writes=lambda a: script[a["n"]].writes)
        async def keyed(n: int) -> int:
            """Touch some things."""
            return await self.body(n)

        self.tools = [exclusive, parallel, keyed]

    async def body(self, n):
        self.overlaps += [(other, n) for other in self.inside]
        self.inside.append(n)
        self.entered.append(n)
        self.most = max(self.most, len(self.inside))
        if len(self.entered) - 1 == self.cancel_at:
            self.agent.cancel()
        for _ in range(self.script[n].rounds):
            await anyio.lowlevel.checkpoint()
        self.inside.remove(n)
        return n


async def run(script, limit, cancel_at):
    floor = Floor(script, cancel_at)
    async with Runtime(max_parallel_tool_calls=limit, retry=None) as runtime:
        answer = tool_calls(*[(f"c{n}", each.kind, {"n": n}) for n, each in enumerate(script)])
        runtime.llm.register(["scripted"], ScriptedAdapter([answer, text("ok")]))
        handle = await runtime.agents.create(provider="scripted", model="m", tools=floor.tools)
        floor.agent = handle.agent
        runtime.tools.guard(lambda each: "no" if script[each.arguments["n"]].denied else None)
        handle.agent.followup("go")
        with anyio.fail_after(10):
            await handle.agent.when_idle()
        return floor, list(handle.agent.session.events)


@settings(max_examples=80, deadline=None)
@given(
    script=st.lists(call(), min_size=1, max_size=8),
    limit=st.integers(1, 5),
    cancel_at=st.none() | st.integers(0, 5),
)
def test_nothing_that_conflicts_overlaps_and_results_are_in_the_models_order(script, limit, cancel_at):
    floor, events = anyio.run(run, script, limit, cancel_at)
    assert [pair for pair in floor.overlaps if conflict(script[pair[0]], script[pair[1]])] == []
    assert floor.most <= limit
    expected = [f"c{n}" for n in range(len(script))]
    assert [event.data["callId"] for event in events if event.type == "tool/call"] == expected
    step_end = next(event.seq for event in events if event.type == "step/end")
    results = [event for event in events if event.type == "tool/result"]
    assert [event.data["message"].tool_call_id for event in results] == expected
    assert all(event.seq < step_end for event in results)
    if cancel_at is None or cancel_at >= len(floor.entered):
        runnable = [n for n, each in enumerate(script) if each.kind != "unknown" and not each.denied]
        assert sorted(floor.entered) == runnable
        succeeded = [event.data["message"].text for event in results if not event.data["message"].is_error]
        assert succeeded == [str(n) for n in runnable]
    check_log(events)
