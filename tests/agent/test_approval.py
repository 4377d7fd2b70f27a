"""Calls that wait for somebody's approval, as the log tells of them."""

from __future__ import annotations

import anyio
import pytest

from nbagent import tool
from nbagent.session import Session
from nbagent.testing import as_json, check_log, sent_requests, text, tool_calls

pytestmark = pytest.mark.anyio


@tool
async def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


CALL = tool_calls(("c1", "delete", {"path": "/data/x"}))


def asks(w, reason="it cannot be undone"):
    @w.on("tools/pre-execute")
    async def ask(payload, next):
        return {"kind": "ask", "reason": reason}


def told(w):
    """The events of the call and its approval, without what every one of them has."""
    shown = []
    for event in w.of("tool/call", "approval/requested", "approval/answered", "tool/result"):
        data = {key: event.data[key] for key in ("reason", "outcome") if key in event.data}
        shown.append((event.type, data) if data else event.type)
    return shown


async def test_question_and_answer_stand_between_call_and_result(world):
    async with world(CALL, text("ok"), tools=[delete]) as w:
        asks(w)

        async def service(request):
            assert request.agent is w.agent
            return "allowed-once"

        w.agent.tools.approve_with(service)
        await w.ask("go")
        assert told(w) == [
            "tool/call",
            ("approval/requested", {"reason": "it cannot be undone"}),
            ("approval/answered", {"outcome": "allowed-once"}),
            "tool/result",
        ]
        place = {"turn": 1, "step": 1, "callId": "c1", "name": "delete"}
        asked, answered = w.of("approval/requested", "approval/answered")
        assert (asked.data, asked.ignorable) == ({**place, "reason": "it cannot be undone"}, True)
        assert (answered.data, answered.ignorable) == ({**place, "outcome": "allowed-once"}, True)
        assert w.of("tool/result")[0].data["message"].text == "deleted /data/x"


async def test_a_log_with_approvals_is_whole_and_rebuilds_its_requests(world):
    async with world(CALL, text("ok"), tools=[delete]) as w:
        asks(w, reason=None)

        async def service(request):
            return "rejected"

        w.runtime.tools.approve_with(service)
        await w.ask("go")
        assert "reason" not in w.of("approval/requested")[0].data
        check_log(w.events)
        assert as_json(sent_requests(w.agent.session)) == as_json(w.model.requests)
        assert Session("s1", [event.to_json() for event in w.events]).messages() == w.agent.session.messages()


async def test_without_a_service_nothing_is_asked(world):
    async with world(CALL, text("ok"), tools=[delete]) as w:
        asks(w)
        await w.ask("go")
        assert told(w) == ["tool/call", "tool/result"]
        assert w.of("tool/result")[0].data["message"].text == "Error: it cannot be undone"


async def test_a_cancelled_turn_takes_its_question_back(world):
    async with world(CALL, tools=[delete]) as w:
        asks(w)
        asked = anyio.Event()

        async def service(request):
            asked.set()
            await anyio.sleep(60)

        w.agent.tools.approve_with(service)
        w.agent.followup("go")
        with anyio.fail_after(2):
            await asked.wait()
            w.agent.cancel()
            await w.agent.when_idle()
        assert told(w)[2:] == [("approval/answered", {"outcome": "cancelled"}), "tool/result"]
        assert w.of("tool/result")[0].data["error"]["code"] == "ABORTED_BEFORE_DISPATCH"
        assert w.reasons == [{"kind": "aborted", "reason": {"kind": "user"}}]


@pytest.mark.parametrize("failure", [ConnectionError("nobody at the desk"), "yes"])
async def test_a_service_that_fails_is_recorded_as_unavailable(world, failure):
    async with world(CALL, text("ok"), tools=[delete]) as w:
        asks(w)

        async def service(request):
            if isinstance(failure, Exception):
                raise failure
            return failure

        w.agent.tools.approve_with(service)
        await w.ask("go")
        assert told(w)[2:] == [("approval/answered", {"outcome": "unavailable"}), "tool/result"]
        assert w.of("tool/result")[0].data["message"].is_error
        assert w.reasons == [{"kind": "completed"}]


async def test_a_question_that_cannot_be_recorded_is_not_asked(world):
    async with world(CALL, text("ok"), tools=[delete]) as w:
        asks(w)

        async def service(request):
            raise AssertionError

        def veto(payload):
            if payload.event.type == "approval/requested":
                raise ValueError("no approvals here")

        w.agent.on("session/validate", veto)
        w.agent.tools.approve_with(service)
        await w.ask("go")
        assert w.of("tool/result")[0].data["message"].text == "Error: no approvals here"


async def test_an_approval_holds_back_later_starts_and_no_running_body(world):
    started, ended = [], []

    @tool(parallel=True)
    async def read(n: int) -> int:
        """Read."""
        started.append(n)
        await anyio.sleep(0.005)
        ended.append(n)
        return n

    calls = tool_calls(*[(f"c{n}", "read", {"n": n}) for n in (1, 2, 3)])
    async with world(calls, text("ok"), tools=[read]) as w:

        @w.on("tools/pre-execute")
        async def ask(payload, next):
            return {"kind": "ask"} if payload.call.call_id == "c2" else await next()

        async def service(request):
            with anyio.fail_after(2):
                while ended != [1]:
                    await anyio.sleep(0.002)
            assert started == [1]
            return "allowed-once"

        w.agent.tools.approve_with(service)
        await w.ask("go")
        assert [event.data["message"].text for event in w.of("tool/result")] == ["1", "2", "3"]
