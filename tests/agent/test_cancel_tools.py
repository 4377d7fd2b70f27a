"""A cancel while tools run: started calls drain and commit, the others are answered, contexts wait."""

from __future__ import annotations

import anyio
import pytest

from nbagent import tool
from nbagent.testing import check_log, text, tool_calls
from nbagent.tools import current_call
from nbagent.types.messages import user_message

pytestmark = pytest.mark.anyio


def answered(w):
    """Every call and result in log order: `(call id, error code)` for results, `(call id, None)` for calls."""
    pairs = []
    for event in w.of("tool/call", "tool/result"):
        if event.type == "tool/call":
            pairs.append((event.data["callId"], "call"))
        else:
            pairs.append((event.data["message"].tool_call_id, event.data.get("error", {}).get("code")))
    return pairs


class Bench:
    """Tools that wait in their bodies until the turn is cancelled, then succeed."""

    def __init__(self):
        self.started = []

        @tool(parallel=True)
        async def read(name: str) -> str:
            """Read."""
            return await self.body(name)

        @tool
        async def write(name: str) -> str:
            """Write."""
            return await self.body(name)

        self.tools = [read, write]

    async def body(self, name):
        self.started.append(name)
        call = current_call()
        call.attach_context(user_message(f"context of {name}"))
        await call.signal.wait()
        return "success"


def calls(*names):
    return tool_calls(*[(name, "read" if name.startswith("r") else "write", {"name": name}) for name in names])


async def run_and_cancel(w, bench, started):
    w.agent.followup("go")
    await w.until(lambda: len(bench.started) == started)
    w.agent.inject("before the cancel")
    w.agent.cancel()
    with anyio.fail_after(5):
        await w.agent.when_idle()
    assert w.reasons == [{"kind": "aborted", "reason": {"kind": "user"}}]
    check_log(w.events)


async def test_a_success_after_the_cancel_is_an_aborted_result_and_its_context_waits(world):
    bench = Bench()
    async with world(calls("w1"), text("ok"), tools=bench.tools) as w:

        @w.on("tools/post-execute")
        async def attach(payload, next):
            await next()
            return {"kind": "accept", "contexts": [user_message("context of the listener")]}

        await run_and_cancel(w, bench, 1)
        assert answered(w) == [("w1", "call"), ("w1", "ABORTED")]
        result = w.of("tool/result")[0].data
        assert result["message"].text == "Error: tool call aborted"
        assert result["error"] == {"name": "AbortError", "code": "ABORTED"}
        waiting = ["context of w1", "context of the listener"]
        assert w.waiting("next-step") == waiting
        assert len(w.of("turn/start")) == 1
        await w.ask("again")
        assert w.prompts == ["go", *waiting, "again"]


async def test_the_exclusive_call_behind_it_is_answered_without_running(world):
    bench = Bench()
    async with world(calls("w1", "w2"), tools=bench.tools) as w:
        await run_and_cancel(w, bench, 1)
        assert answered(w) == [("w1", "call"), ("w1", "ABORTED"), ("w2", "call"), ("w2", "ABORTED_BEFORE_DISPATCH")]
        assert bench.started == ["w1"]


async def test_a_full_pool_drains_first_then_the_rest_is_answered_in_model_order(world):
    bench = Bench()
    async with world(calls("r1", "r2", "r3", "r4"), tools=bench.tools, runtime={"max_parallel_tool_calls": 2}) as w:
        await run_and_cancel(w, bench, 2)
        assert answered(w) == [
            ("r1", "call"),
            ("r2", "call"),
            ("r1", "ABORTED"),
            ("r2", "ABORTED"),
            ("r3", "call"),
            ("r3", "ABORTED_BEFORE_DISPATCH"),
            ("r4", "call"),
            ("r4", "ABORTED_BEFORE_DISPATCH"),
        ]
        assert w.waiting("next-step") == ["context of r1", "context of r2"]


async def test_an_exclusive_call_behind_a_cancelled_group_never_runs(world):
    bench = Bench()
    async with world(calls("r1", "r2", "w"), tools=bench.tools) as w:
        await run_and_cancel(w, bench, 2)
        assert answered(w)[-2:] == [("w", "call"), ("w", "ABORTED_BEFORE_DISPATCH")]
        assert sorted(bench.started) == ["r1", "r2"]


async def test_a_cancel_while_policy_decides_dispatches_nothing(world):
    bench = Bench()
    async with world(calls("w1", "w2"), tools=bench.tools) as w:

        @w.on("tools/pre-execute")
        async def stop(payload, next):
            w.agent.cancel()
            return await next()

        await w.ask("go")
        assert answered(w) == [
            ("w1", "call"),
            ("w1", "ABORTED_BEFORE_DISPATCH"),
            ("w2", "call"),
            ("w2", "ABORTED_BEFORE_DISPATCH"),
        ]
        assert bench.started == []


async def test_a_disposal_parks_the_contexts_and_starts_no_other_turn(world):
    bench = Bench()
    async with world(calls("w1"), tools=bench.tools) as w:
        w.agent.followup("go")
        await w.until(lambda: bench.started == ["w1"])
        await w.handle.dispose()
        assert w.waiting("next-step") == ["context of w1"]
        assert len(w.of("turn/start")) == 1
        assert w.reasons == [{"kind": "aborted", "reason": {"kind": "disposed"}}]
        check_log(w.events)


async def test_the_next_request_pairs_every_call_with_a_result(world):
    bench = Bench()
    async with world(calls("w1", "w2"), text("ok"), tools=bench.tools) as w:
        await run_and_cancel(w, bench, 1)
        await w.ask("again")
        roles = [m.role for m in w.model.requests[1].messages]
        assert roles == ["system", "user", "assistant", "tool", "tool", "user", "user"]
