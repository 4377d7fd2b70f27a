"""When scheduling itself fails, what runs is awaited, nothing more begins, and every call is still answered."""

from __future__ import annotations

import anyio
import pytest

from nbagent.testing import check_log, text
from nbagent.tools import ToolExecution
from tests.agent.floor import Floor, calls

pytestmark = pytest.mark.anyio

UNKNOWN = (
    "The tool call was interrupted after it was recorded, but no result was durably recorded. Its outcome is unknown. "
    "Decide whether to retry from the tool semantics: retry only if the operation is read-only or idempotent; if it may "
    "have side effects, first verify external state or ask the user. Do not retry blindly."
)
NOT_STARTED = "The tool call was interrupted before the Harness recorded it as started. Retry it if it is still needed."


@pytest.fixture
def broken(monkeypatch):
    """Failures by call id. Dispatching contains whatever a tool or listener does, so the fault has to be planted."""
    failures = {}
    dispatch = ToolExecution.dispatch

    async def failing(execution):
        await dispatch(execution)
        if execution.call.call_id in failures:
            raise failures[execution.call.call_id]

    monkeypatch.setattr(ToolExecution, "dispatch", failing)
    return failures


def answers(w):
    """Id, code, sources and text of every result."""
    return [
        (
            event.data["message"].tool_call_id,
            event.data["error"]["code"],
            event.source_event_seqs,
            event.data["message"].text,
        )
        for event in w.of("tool/result")
    ]


def unknown(w, name):
    seq = next(event.seq for event in w.of("tool/call") if event.data["callId"] == name)
    return (name, "TOOL_OUTCOME_UNKNOWN", [seq], UNKNOWN)


async def test_started_bodies_are_awaited_and_their_outcomes_are_unknown(world, broken):
    floor = Floor()
    broken["r1"] = RuntimeError("scheduler broke")
    async with world(calls("r1", "r2", "r3"), text("ok"), tools=floor.tools, max_parallel_tool_calls=2) as w:
        w.agent.followup("go")
        await floor.until("+r1", "+r2", in_order=False)
        floor.release("r1")
        await floor.until("+r1", "+r2", "-r1", in_order=False)
        await anyio.sleep(0.01)
        assert w.agent.status == "running"
        assert w.of("tool/result") == []
        floor.release("r2")
        await w.agent.when_idle()
        assert "+r3" not in floor.order
        assert answers(w) == [unknown(w, "r1"), unknown(w, "r2"), ("r3", "TOOL_NOT_STARTED", None, NOT_STARTED)]
        assert w.types()[-5:] == ["tool/result", "tool/result", "tool/result", "step/end", "turn/end"]
        assert w.reasons == [{"kind": "error", "error": {"message": "scheduler broke", "code": "UNKNOWN"}}]
        check_log(w.events)


async def test_a_call_that_policy_still_weighs_counts_as_started_and_its_body_never_runs(world, broken):
    floor, weighing, decided = Floor(), anyio.Event(), anyio.Event()
    broken["r1"], broken["r2"] = RuntimeError("first"), RuntimeError("second")
    async with world(calls("r1", "r2", "r3", "r4"), text("ok"), tools=floor.tools, max_parallel_tool_calls=3) as w:

        @w.on("tools/pre-execute")
        async def policy(payload, next):
            if payload.call.call_id == "r3":
                weighing.set()
                await decided.wait()
            return await next()

        w.agent.followup("go")
        await floor.until("+r1", "+r2", in_order=False)
        await weighing.wait()
        floor.release("r1")
        await floor.until("+r1", "+r2", "-r1", in_order=False)
        floor.release("r2")
        await floor.until("+r1", "+r2", "-r1", "-r2", in_order=False)
        floor.release("r3")
        decided.set()
        await w.agent.when_idle()
        assert "+r3" not in floor.order
        started = [unknown(w, name) for name in ("r1", "r2", "r3")]
        assert answers(w) == [*started, ("r4", "TOOL_NOT_STARTED", None, NOT_STARTED)]
        assert w.reasons == [{"kind": "error", "error": {"message": "first", "code": "UNKNOWN"}}]


async def test_the_next_request_has_a_result_for_every_call(world, broken):
    floor = Floor()
    floor.release("r1")
    floor.release("r2")
    broken["r1"] = RuntimeError("scheduler broke")
    async with world(calls("r1", "r2", "w3"), text("ok"), tools=floor.tools) as w:
        await w.ask("go")
        await w.ask("again")
        kinds = [
            (message.role, message.tool_call_id) for message in w.model.requests[1].messages if message.role == "tool"
        ]
        assert kinds == [("tool", "r1"), ("tool", "r2"), ("tool", "w3")]
        assert w.reasons[1] == {"kind": "completed"}


async def test_a_call_that_cannot_be_recorded_is_not_started_and_those_before_are_unknown(world):
    floor = Floor()
    floor.release("r1")
    async with world(calls("r1", "r2"), text("ok"), tools=floor.tools) as w:

        def veto(payload):
            if payload.event.type == "tool/call" and payload.event.data["callId"] == "r2":
                raise ValueError("disk full")

        w.agent.on("session/validate", veto)
        await w.ask("go")
        assert "+r2" not in floor.order
        assert answers(w) == [unknown(w, "r1"), ("r2", "TOOL_NOT_STARTED", None, NOT_STARTED)]
        assert w.reasons[0]["error"]["message"] == "disk full"
