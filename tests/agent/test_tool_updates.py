"""The tool catalogue as it changes between requests: what the model is told, and what the history of tools holds."""

from __future__ import annotations

import pytest

from nbagent import tool
from nbagent.agent.points import Enter
from nbagent.testing import as_json, sent_requests, text, tool_calls

pytestmark = pytest.mark.anyio


def named(name, about="Work."):
    def body() -> str:
        return "done"

    body.__doc__ = about
    return tool(name=name)(body)


def changes(w):
    """Added names, removed names and the header that defines the added ones, per developer message."""
    told = []
    for event in w.of("developer/message"):
        blocks = event.data["message"].content
        kinds = [block["type"] for block in blocks]
        assert kinds == sorted(kinds)
        added = [block["toolName"] for block in blocks if block["type"] == "tool-addition"]
        removed = [block["toolName"] for block in blocks if block["type"] == "tool-removal"]
        told.append((added, removed, event.data.get("headerSeq")))
    return told


def catalogues(w):
    return [[declared["name"] for declared in e.data["header"].get("tools", ())] for e in w.of("request/header")]


def histories(w):
    """Baseline names and the names that each update adds, as each request had them."""
    return [
        (
            [declared["name"] for declared in request.tool_history["tools"]],
            [[declared["name"] for declared in update["additions"]] for update in request.tool_history["updates"]],
        )
        for request in w.model.requests
    ]


def rebuilt(w):
    return [as_json(r) for r in sent_requests(w.agent.session)] == [as_json(r) for r in w.model.requests]


@pytest.mark.parametrize(
    "route", [{}, {"system_prompt_update": "in-history", "tool_update": True}], ids=["plain", "able"]
)
async def test_tools_that_come_and_go_are_told_by_name(world, route):
    async with world(*[text("x")] * 4, adapter=route) as w:
        remove = w.agent.tools.register(named("search"))
        await w.ask("1")
        w.agent.tools.register(named("fetch"))
        await w.ask("2")
        remove()
        await w.ask("3")
        await w.ask("4")
        header = w.of("request/header")
        assert changes(w) == [(["fetch"], [], header[1].seq), ([], ["search"], None)]
        assert catalogues(w) == [["search"], ["fetch", "search"], ["fetch"]]
        assert w.header_reasons == ["initial", "change", "change"]
        assert histories(w) == [
            (["search"], []),
            (["search"], [["fetch"]]),
            (["search"], [["fetch"], []]),
            (["search"], [["fetch"], []]),
        ]
        assert rebuilt(w)


async def test_additions_and_removals_of_one_change_are_one_message(world):
    async with world(text("1"), text("2")) as w:
        removers = [w.agent.tools.register(named(name)) for name in ("b", "a")]
        await w.ask("1")
        for remove in removers:
            remove()
        for name in ("d", "c"):
            w.agent.tools.register(named(name))
        await w.ask("2")
        assert changes(w) == [(["c", "d"], ["a", "b"], w.of("request/header")[1].seq)]


async def test_the_message_stands_behind_the_header_that_defines_the_tools(world):
    async with world(text("1"), text("2")) as w:
        await w.ask("1")
        w.agent.tools.register(named("search"))
        await w.ask("2")
        types = w.types()
        at = types.index("developer/message")
        assert types[at - 2 : at] == ["user/message", "request/header"]
        assert [m.role for m in w.model.requests[1].messages][-2:] == ["user", "developer"]


async def test_the_first_catalogue_is_no_change(world):
    async with world(text("1"), tools=[named("search")]) as w:
        await w.ask("1")
        assert changes(w) == []


async def test_a_changed_definition_is_a_new_baseline_and_told_to_nobody(world):
    async with world(text("1"), text("2"), text("3")) as w:
        remove = w.agent.tools.register(named("search", "Search."))
        await w.ask("1")
        w.agent.tools.register(named("fetch"))
        await w.ask("2")
        remove()
        w.agent.tools.register(named("search", "Search better."))
        await w.ask("3")
        assert w.header_reasons == ["initial", "change", "change"]
        assert len(changes(w)) == 1
        assert histories(w)[2] == (["fetch", "search"], [])
        assert w.model.requests[2].tool_history["tools"][1]["description"] == "Search better."
        assert rebuilt(w)


async def test_a_removed_tool_that_comes_back_unchanged_goes_on_with_the_series(world):
    async with world(text("1"), text("2"), text("3")) as w:
        remove = w.agent.tools.register(named("search"))
        w.agent.tools.register(named("fetch"))
        await w.ask("1")
        remove()
        await w.ask("2")
        w.agent.tools.register(named("search"))
        await w.ask("3")
        assert changes(w) == [([], ["search"], None), (["search"], [], w.of("request/header")[2].seq)]
        assert histories(w)[2] == (["fetch", "search"], [[], ["search"]])


async def test_a_new_series_begins_with_the_present_tools(world):
    async with world(text("1"), text("2"), text("3")) as w:

        @w.on("agent/pre-step")
        async def begin(payload, next):
            return Enter((await next()).messages, starts_request_series=payload.turn == 3)

        w.agent.tools.register(named("search"))
        await w.ask("1")
        w.agent.tools.register(named("fetch"))
        await w.ask("2")
        await w.ask("3")
        assert w.header_reasons == ["initial", "change", "series"]
        assert histories(w)[1:] == [(["search"], [["fetch"]]), (["fetch", "search"], [])]
        assert len(changes(w)) == 1


async def test_a_resumed_agent_tells_what_changed_meanwhile(world):
    async with world(text("1"), text("2")) as w:
        w.agent.tools.register(named("search"))
        await w.ask("1")
        await w.resume(tools=[named("fetch")])
        await w.ask("2")
        assert changes(w) == [(["fetch"], ["search"], w.of("request/header")[1].seq)]
        assert rebuilt(w)


async def test_a_tool_that_appears_during_a_turn_is_told_before_its_next_step(world):
    @tool
    async def learn() -> str:
        """Learn."""
        w.agent.tools.register(named("search"))
        return "learned"

    async with world(tool_calls(("c1", "learn", {})), tool_calls(("c2", "search", {})), text("3"), tools=[learn]) as w:
        await w.ask("1")
        assert changes(w) == [(["search"], [], w.of("request/header")[1].seq)]
        assert w.sent("tool")[2] == ["learned", "done"]


async def test_the_last_tool_may_go(world):
    async with world(text("1"), text("2")) as w:
        remove = w.agent.tools.register(named("search"))
        await w.ask("1")
        remove()
        await w.ask("2")
        assert "tools" not in w.of("request/header")[1].data["header"]
        assert changes(w) == [([], ["search"], None)]
