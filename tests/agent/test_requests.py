"""Header, context, tool changes, system prompt and runtime context: what the log says before a request is sent."""

from __future__ import annotations

import pytest

from nbagent import tool
from nbagent.agent.reconcile import PromptNode, PromptWrite, reconcile
from nbagent.testing import text

pytestmark = pytest.mark.anyio


@tool
def search() -> str:
    """Search."""
    return ""


@tool
def fetch() -> str:
    """Fetch."""
    return ""


async def test_unchanged_turns_log_one_header_and_one_context(world):
    async with world(text("a"), text("b")) as w:
        await w.ask("1")
        await w.ask("2")
        assert [e.data["reason"] for e in w.of("request/header")] == ["initial"]
        assert len(w.of("request/context")) == 1
        first, second = w.model.requests
        assert list(second.messages[: len(first.messages)]) == list(first.messages)


async def test_a_listener_chooses_another_model(world):
    async with world(text("a"), text("b")) as w:

        @w.on("agent/request")
        async def choose(payload, next):
            with pytest.raises(TypeError):
                payload.config["model"] = "x"
            config = await next()
            return {**config, "model": "other"} if payload.turn == 2 else config

        await w.ask("1")
        await w.ask("2")
        assert [e.data["reason"] for e in w.of("request/header")] == ["initial", "change"]
        assert w.model.requests[1].config.model == "other"


async def test_tools_that_come_and_go_are_told_by_name(world):
    async with world(*[text("x")] * 4) as w:
        w.runtime.tools.register(search)
        await w.ask("1")
        w.runtime.tools.register(fetch)
        await w.ask("2")
        w.agent.tools.restrict(["fetch"])
        await w.ask("3")
        await w.ask("4")
        changes = [(e.data["message"].content, e.data.get("headerSeq")) for e in w.of("developer/message")]
        headers = w.of("request/header")
        assert changes == [
            ([{"type": "tool-addition", "toolName": "fetch"}], headers[1].seq),
            ([{"type": "tool-removal", "toolName": "search"}], None),
        ]
        assert [[t["name"] for t in e.data["header"]["tools"]] for e in headers] == [
            ["search"],
            ["fetch", "search"],
            ["fetch"],
        ]
        assert [len(r.tool_history["updates"]) for r in w.model.requests] == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("nodes", "rendering", "in_history", "new_series", "writes"),
    [
        ([], "", False, False, [PromptWrite("")]),
        ([], "p", True, True, [PromptWrite("p")]),
        ([(0, "p")], "p", False, True, []),
        ([(0, "p")], "q", False, False, [PromptWrite("q", 0)]),
        ([(0, "")], "q", True, True, [PromptWrite("q", 0)]),
        ([(0, "")], "q", True, False, [PromptWrite("q")]),
        ([(0, "p"), (5, "q")], "q", False, False, [PromptWrite("", 5), PromptWrite("q", 0)]),
        ([(0, "p"), (5, "q")], "p", True, True, [PromptWrite("", 5)]),
        ([(0, "p"), (5, "q")], "q", True, False, []),
        ([(0, "p"), (5, "q")], "r", True, False, [PromptWrite("r")]),
        ([(0, "p"), (5, "q"), (7, "r")], "", True, False, [PromptWrite("", 5), PromptWrite("", 7), PromptWrite("", 0)]),
        ([(0, ""), (5, "")], "", False, False, []),
        ([(0, "p"), (5, "")], "q", True, False, [PromptWrite("q")]),
        ([(0, "p"), (5, "")], "p", False, True, []),
        ([(0, None)], "q", False, False, [PromptWrite("q", 0)]),
        ([(0, "p"), (5, None)], "p", True, False, [PromptWrite("p")]),
    ],
)
def test_prompt_reconciliation_follows_the_table(nodes, rendering, in_history, new_series, writes):
    present = [PromptNode(seq, node_text) for seq, node_text in nodes]
    assert reconcile(present, rendering, in_history=in_history, new_series=new_series) == writes
