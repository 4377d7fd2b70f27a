"""In which order the model is told of its tools."""

from __future__ import annotations

import pytest

from nbagent import tool
from nbagent.errors import InputError
from nbagent.testing import text

pytestmark = pytest.mark.anyio

REST = "<unlisted-tools>"


def named(*names):
    def body() -> str:
        """Work."""
        return ""

    return [tool(name=name)(body) for name in names]


def told(w):
    return [[declared.name for declared in request.tools] for request in w.model.requests]


async def test_tools_are_told_by_name(world):
    async with world(text("ok"), tools=named("b", "c", "a")) as w:
        await w.ask("hi")
        assert told(w) == [["a", "b", "c"]]


async def test_a_configured_order_puts_the_others_by_name_at_their_entry(world):
    async with world(text("1"), text("2"), tools=named("d", "b", "c", "a")) as w:
        remove = w.agent.prompt.tool_order(["c", REST, "a"])
        await w.ask("hi")
        remove()
        await w.ask("hi")
        assert told(w) == [["c", "b", "d", "a"], ["a", "b", "c", "d"]]
        assert w.header_reasons == ["initial", "change"]
        assert w.of("developer/message") == []


async def test_the_agents_order_wins_over_the_runtimes(world):
    async with world(text("1"), text("2"), tools=named("a", "b")) as w:
        w.runtime.prompt.tool_order([REST, "a"])
        await w.ask("hi")
        w.agent.prompt.tool_order(["a", REST])
        await w.ask("hi")
        assert told(w) == [["b", "a"], ["a", "b"]]


async def test_an_order_may_name_a_tool_that_this_agent_does_not_see(world):
    async with world(text("ok")) as w:
        for each in named("a", "b"):
            w.runtime.tools.register(each)
        w.agent.tools.restrict(["b"])
        w.agent.prompt.tool_order(["a", REST])
        await w.ask("hi")
        assert told(w) == [["b"]]


async def test_an_unknown_name_fails_the_turn_before_its_step(world):
    async with world(text("ok"), tools=named("a", "b")) as w:
        remove = w.agent.prompt.tool_order([REST, "z"])
        await w.ask("hi")
        assert w.types() == ["turn/start", "turn/end"]
        assert w.reasons[0]["error"]["message"] == 'the order of tools names unknown tool "z"; tools: a, b'
        remove()
        await w.ask("again")
        assert w.reasons[1] == {"kind": "completed"}


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["a"], f'the order of tools needs one "{REST}" entry'),
        ([], f'the order of tools needs one "{REST}" entry'),
        (["a", REST, "a"], 'the order of tools names "a" twice'),
        ([REST, REST], f'the order of tools names "{REST}" twice'),
    ],
)
async def test_an_order_without_exactly_one_entry_for_the_others_is_refused(world, names, says):
    async with world() as w:
        with pytest.raises(InputError) as refused:
            w.agent.prompt.tool_order(names)
        assert refused.value.code == "TOOL_ORDER"
        assert str(refused.value).startswith(says)


async def test_a_layer_has_one_order(world):
    async with world() as w:
        w.agent.prompt.tool_order([REST])
        with pytest.raises(InputError) as refused:
            w.agent.prompt.tool_order([REST])
        assert refused.value.code == "DUPLICATE_NAME"
