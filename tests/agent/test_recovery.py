"""A failed step leaves every tool call answered."""

from __future__ import annotations

import pytest

from nbagent import tool
from nbagent.testing import check_log, text, tool_calls

pytestmark = pytest.mark.anyio

UNKNOWN = "The tool call was interrupted after it was recorded, but no result was durably recorded."
NOT_STARTED = "The tool call was interrupted before the Harness recorded it as started. Retry it if it is still needed."


async def test_a_refused_result_gives_recovery_results_in_order_and_keeps_the_failure(world):
    @tool(parallel=True)
    async def work(n: int) -> str:
        """Work."""
        return str(n)

    calls = tool_calls(*[(f"c{n}", "work", {"n": n}) for n in (1, 2, 3)])
    async with world(calls, text("ok"), tools=[work], runtime={"max_parallel_tool_calls": 2}) as w:
        refused = []

        def veto(payload):
            if payload.event.type == "tool/result" and not refused:
                refused.append(payload.event)
                raise ValueError("result refused")

        w.agent.on("session/validate", veto)
        await w.ask("go")
        results = w.of("tool/result")
        assert [e.data["message"].tool_call_id for e in results] == ["c1", "c2", "c3"]
        assert [e.data["error"]["code"] for e in results] == [
            "TOOL_OUTCOME_UNKNOWN",
            "TOOL_OUTCOME_UNKNOWN",
            "TOOL_NOT_STARTED",
        ]
        assert results[0].data["message"].text.startswith(UNKNOWN)
        assert results[2].data["message"].text == NOT_STARTED
        assert results[0].source_event_seqs == [w.of("tool/call")[0].seq]
        assert results[2].source_event_seqs is None
        assert w.reasons[0]["error"]["message"] == "result refused"
        check_log(w.events)
        await w.ask("again")
        answered = {m.tool_call_id for m in w.model.requests[1].messages if m.role == "tool"}
        assert answered == {"c1", "c2", "c3"}


async def test_a_turn_start_that_cannot_be_stored_leaves_the_prompt_pending(world):
    async with world(text("ok")) as w:
        failures = []
        w.agent.on("agent/error", lambda p: failures.append(str(p.error)))

        def veto(payload):
            if payload.event.type == "turn/start" and not failures:
                raise ValueError("disk full")

        w.agent.on("session/validate", veto)
        w.agent.followup("hi")
        await w.agent.when_idle()
        assert failures == ["disk full"]
        assert w.types() == []
        assert [m.text for m in w.agent.inbox.next_turn] == ["hi"]


async def test_a_frame_that_cannot_be_stored_is_shown_to_nobody(world):
    async with world(text("hello")) as w:
        notices = []
        w.agent.on("agent/assistant-stream", lambda p: notices.append(p.type))

        def veto(payload):
            if payload.event.type == "assistant/frame":
                raise ValueError("disk full")

        w.agent.on("session/validate", veto)
        await w.ask("hi")
        assert notices == ["start", "end"]
        assert w.reasons[0]["error"]["message"] == "disk full"


async def test_every_stream_chunk_is_durable_before_it_is_told(world):
    async with world(text("hello")) as w:
        seen = []

        def notice(payload):
            if payload.type == "chunk":
                frames = [c for e in w.of("assistant/frame") for c in e.data["chunks"]]
                assert frames[payload.index] is payload.chunk
            seen.append((payload.type, payload.index))

        w.agent.on("agent/assistant-stream", notice)
        await w.ask("hi")
        assert [kind for kind, _ in seen] == ["start", *["chunk"] * 9, "end"]
        assert [index for kind, index in seen if kind == "chunk"] == list(range(9))
        assert seen[-1] == ("end", 9)
