"""The system prompt against its nodes in the log: what turns write so that the surface says what was rendered."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from nbagent import tool
from nbagent.testing import as_json, check_log, fail, sent_requests, text, tool_calls

pytestmark = pytest.mark.anyio

PLAIN: dict[str, object] = {}
CAPABLE = {"system_prompt_update": "in-history"}
ROUTES = pytest.mark.parametrize("route", [PLAIN, CAPABLE], ids=["plain", "capable"])


class Stage:
    """A world whose prompt is told before each turn, on a route that is told likewise."""

    def __init__(self, w, version, series):
        self.w = w
        self._version = version
        self._series = series

    async def turn(self, prompt, route=CAPABLE, *, series=False):
        """Run one turn; answers what it wrote: `(text, seq of the node that it replaces or None)`."""
        w = self.w
        seen = len(w.events)
        self._version[0], self._series[0] = prompt, series
        w.model.system_prompt_update = route.get("system_prompt_update")
        await w.ask("hi")
        assert w.reasons[-1] == {"kind": "completed"}
        assert rebuilt(w) == sent(w)
        return [node(event) for event in w.of("system/message") if event.seq >= seen]

    @property
    def seqs(self):
        return [event.seq for event in self.w.of("system/message")]

    @property
    def prompts(self):
        """The system messages of the last request."""
        return self.w.sent("system")[-1]


def node(event):
    if event.surface_op == "append":
        assert event.source_event_seqs is None
        return event.data["message"].text, None
    assert event.source_event_seqs == [event.surface_op["startSeq"]] == [event.surface_op["endSeq"]]
    return event.data["message"].text, event.surface_op["startSeq"]


def rebuilt(w):
    return [as_json(request) for request in sent_requests(w.agent.session.events)]


def sent(w):
    return [as_json(request) for request in w.model.requests]


@pytest.fixture
def stage(world):
    """Enter it as `async with stage() as s`."""

    @asynccontextmanager
    async def make(*script, **options):
        version, series = [""], [False]
        async with world(*(script or [text("ok")] * 9), system=lambda: version[0], **options) as w:

            @w.on("agent/pre-step")
            async def decide(payload, next):
                decision = await next()
                return {"kind": "enter", "messages": decision.messages, "startsRequestSeries": series[0]}

            yield Stage(w, version, series)
            check_log(w.events)

    return make


# Each case: the versions that turns on a capable route wrote first, the prompt of the turn that is looked at, whether
# it starts a series, and what it writes on a plain and on a capable route. `n` stands for the n-th node written so far.
TABLE = [
    ("no node, no prompt", [], "", False, [("", None)], [("", None)]),
    ("no node, a prompt", [], "a", False, [("a", None)], [("a", None)]),
    ("no node, a prompt, new series", [], "a", True, [("a", None)], [("a", None)]),
    ("one node, equal", ["a"], "a", False, [], []),
    ("one node, equal, new series", ["a"], "a", True, [], []),
    ("one node, different", ["a"], "b", False, [("b", 0)], [("b", None)]),
    ("one node, different, new series", ["a"], "b", True, [("b", 0)], [("b", 0)]),
    ("one empty node, restored", [""], "b", False, [("b", 0)], [("b", None)]),
    ("one empty node, restored, new series", [""], "b", True, [("b", 0)], [("b", 0)]),
    ("two versions, as the last", ["a", "b"], "b", False, [("", 1), ("b", 0)], []),
    ("two versions, as the last, new series", ["a", "b"], "b", True, [("", 1), ("b", 0)], [("", 1), ("b", 0)]),
    ("two versions, as the first", ["a", "b"], "a", False, [("", 1)], [("a", None)]),
    ("two versions, as the first, new series", ["a", "b"], "a", True, [("", 1)], [("", 1)]),
    ("two versions, a third", ["a", "b"], "c", False, [("", 1), ("c", 0)], [("c", None)]),
    ("two versions, a third, new series", ["a", "b"], "c", True, [("", 1), ("c", 0)], [("", 1), ("c", 0)]),
    ("one node, cleared", ["a"], "", False, [("", 0)], [("", 0)]),
    ("one empty node, still empty", [""], "", False, [], []),
    ("one empty node, still empty, new series", [""], "", True, [], []),
    ("three versions, cleared", ["a", "b", "c"], "", False, [("", 1), ("", 2), ("", 0)], [("", 1), ("", 2), ("", 0)]),
    ("an empty head with a later version, as it", ["", "b"], "b", False, [("", 1), ("b", 0)], []),
    ("an empty head with a later version, cleared", ["", "b"], "", False, [("", 1)], [("", 1)]),
]


@ROUTES
@pytest.mark.parametrize("case", TABLE, ids=[case[0] for case in TABLE])
async def test_what_a_turn_writes(stage, case, route):
    _name, before, prompt, series, on_plain, on_capable = case
    async with stage() as s:
        for version in before:
            await s.turn(version)
        seqs = s.seqs
        expected = on_capable if route is CAPABLE else on_plain
        wrote = await s.turn(prompt, route, series=series)
        assert wrote == [(written, None if n is None else seqs[n]) for written, n in expected]
        effective = [prompt] if prompt else []
        assert s.prompts[-1:] == effective
        if route is PLAIN or series:
            assert s.prompts == effective
        assert await s.turn(prompt, route) == []


@ROUTES
async def test_emptied_versions_are_dormant_and_never_touched_again(stage, route):
    async with stage() as s:
        for version in ("a", "b", ""):
            await s.turn(version)
        later = s.seqs[2]
        assert [node(event) for event in s.w.of("system/message")][2:] == [("", s.seqs[1]), ("", s.seqs[0])]
        head = s.seqs[3]
        assert await s.turn("b", route) == [("b", None if route is CAPABLE else head)]
        assert await s.turn("b", route) == []
        replaced = [event.surface_op["startSeq"] for event in s.w.of("system/message") if event.surface_op != "append"]
        assert later not in replaced


async def test_a_replaced_prompt_makes_the_request_a_new_series_and_an_appended_one_does_not(stage):
    async with stage() as s:
        await s.turn("a", PLAIN)
        await s.turn("b", PLAIN)
        await s.turn("b", PLAIN)
        assert s.w.header_reasons == ["initial", "series"]
        assert all("startsSeries" not in event.data for event in s.w.of("request/header"))
        await s.turn("c", CAPABLE)
        assert s.w.header_reasons == ["initial", "series"]
        assert s.prompts == ["b", "c"]


async def test_three_versions_stand_in_the_history_where_they_began(stage):
    async with stage() as s:
        for version in ("a", "b", "b", "c"):
            await s.turn(version)
        roles = [message.role for message in s.w.model.requests[-1].messages]
        assert roles == ["system", *["user", "assistant"], "system", *["user", "assistant"] * 2, "system", "user"]
        assert s.prompts == ["a", "b", "c"]


async def test_a_cleared_prompt_stays_cleared_after_a_resume(stage):
    async with stage() as s:
        for version in ("a", "b", "c", ""):
            await s.turn(version)
        await s.w.resume(system=None)
        await s.w.ask("hi")
        assert len(s.w.of("system/message")) == 6
        assert s.prompts == []


async def test_a_resume_alone_is_no_new_series_for_the_prompt(stage):
    async with stage() as s:
        await s.turn("a")
        await s.turn("b")
        await s.w.resume(system="b")
        await s.w.ask("hi")
        assert s.prompts == ["a", "b"]
        assert s.w.header_reasons == ["initial", "resume"]
        assert "startsSeries" not in s.w.of("request/header")[1].data


async def test_a_replacement_in_the_first_step_after_a_resume_is_a_new_series(stage):
    async with stage() as s:
        await s.turn("a")
        await s.turn("b")
        await s.w.resume(system="b")

        @s.w.on("agent/pre-step")
        async def compact(payload, next):
            s.w.shadow(s.w.of("user/message")[0].seq)
            return await next()

        await s.w.ask("hi")
        assert s.prompts == ["b"]
        header = s.w.of("request/header")[-1].data
        assert (header["reason"], header["startsSeries"]) == ("resume", True)


async def test_replacements_before_a_resume_start_no_series(stage):
    async with stage() as s:
        await s.turn("a", PLAIN)
        await s.turn("b", PLAIN)
        await s.w.resume(system="b")
        await s.w.ask("hi")
        assert "startsSeries" not in s.w.of("request/header")[-1].data


async def test_a_retry_reconciles_again_and_consolidates_after_a_replacement(stage):
    async with stage(text("ok"), fail("full", code="CONTEXT_WINDOW_EXCEEDED"), text("ok")) as s:
        await s.turn("a")

        @s.w.on("agent/request-error")
        async def compact(payload, next):
            s.w.shadow(s.w.of("user/message")[0].seq)
            return {"kind": "retry"}

        first, wrote = s.seqs[0], await s.turn("b")
        appended = s.seqs[1]
        assert wrote == [("b", None), ("", appended), ("b", first)]
        assert s.w.sent("system")[1:] == [["a", "b"], ["b"]]
        assert s.w.prompts == ["hi", "hi", "summary"]
        assert s.w.header_reasons == ["initial", "series"]


async def test_a_retry_without_a_replacement_writes_nothing(stage):
    async with stage(fail("busy"), text("ok")) as s:

        @s.w.on("agent/request-error")
        async def again(payload, next):
            return {"kind": "retry"}

        assert await s.turn("a") == [("a", None)]
        assert s.w.header_reasons == ["initial"]


async def test_a_tool_on_a_capable_route_that_takes_no_tool_updates_consolidates(stage):
    async with stage() as s:
        await s.turn("a")
        await s.turn("b")
        head, later = s.seqs
        s.w.agent.tools.register(search)
        assert await s.turn("b") == [("", later), ("b", head)]
        header = s.w.of("request/header")[-1].data
        assert (header["reason"], header["startsSeries"]) == ("change", True)


async def test_a_tool_with_a_single_up_to_date_prompt_replaces_nothing(stage):
    async with stage() as s:
        await s.turn("a")
        s.w.agent.tools.register(search)
        assert await s.turn("a") == []
        header = s.w.of("request/header")[-1].data
        assert (header["reason"], "startsSeries" in header) == ("change", False)


async def test_a_tool_on_a_route_that_takes_tool_updates_consolidates_nothing(stage):
    async with stage(adapter={"tool_update": True}) as s:
        await s.turn("a")
        await s.turn("b")
        s.w.agent.tools.register(search)
        assert await s.turn("c") == [("c", None)]
        header = s.w.of("request/header")[-1].data
        assert (header["reason"], "startsSeries" in header) == ("change", False)


async def test_a_later_version_that_compaction_took_away_is_written_again(stage):
    async with stage() as s:
        await s.turn("a")
        await s.turn("b")
        first, later = s.seqs

        @s.w.on("agent/pre-step")
        async def compact(payload, next):
            if payload.turn == 3:
                s.w.shadow(later)
            return await next()

        assert await s.turn("b") == [("b", first)]
        assert s.prompts == ["b"]


async def test_system_messages_come_before_the_batch_and_headers_after_it(stage):
    async with stage() as s:
        s.w.agent.context("mode", "Mode: calm.")
        await s.turn("a")
        s.w.agent.tools.register(search)
        s.w.model.context_window = 1000
        await s.turn("b")
        types = s.w.types()
        step = types[types.index("step/start", 8) + 1 :]
        assert step[:5] == ["system/message", "user/message", "request/header", "developer/message", "request/context"]


async def test_the_second_step_of_a_turn_reconciles_too(stage):
    async with stage(tool_calls(("c1", "search", {})), text("ok")) as s:
        version = s._version

        @tool
        def search() -> str:
            """Search."""
            version[0] = "b"
            return "found"

        s.w.agent.tools.register(search)
        wrote = await s.turn("a")
        assert wrote == [("a", None), ("b", None)]
        roles = [message.role for message in s.w.model.requests[1].messages]
        assert roles == ["system", "user", "assistant", "tool", "system"]


async def test_a_cancel_before_admission_writes_no_system_message(stage):
    async with stage() as s:

        @s.w.on("agent/request")
        async def stop(payload, next):
            s.w.agent.cancel()
            return await next()

        s._version[0] = "a"
        await s.w.ask("hi")
        assert s.w.of("system/message") == []


@tool
def search() -> str:
    """Search."""
    return ""
