"""Answers that the token limit cut."""

from __future__ import annotations

import pytest

from nbagent import tool
from nbagent.testing import check_log, text
from nbagent.types.stream import block_end, block_start, finish, text_delta, tool_call_delta, usage_chunk

pytestmark = pytest.mark.anyio

WHOLE_CALL = [
    block_start(0, "tool-call"),
    tool_call_delta(0, "{}", id="c1", name="never"),
    block_end(0, {"type": "tool-call", "id": "c1", "name": "never", "arguments": "{}"}),
]


@tool
def never() -> str:
    """Never run."""
    raise AssertionError


async def test_a_cut_text_ends_the_turn_as_cut_and_the_next_one_is_judged_alone(world):
    async with world([text_delta(0, "hal"), finish("max-tokens")], text("ok")) as w:
        await w.ask("hi")
        await w.ask("go on")
        assert w.reasons == [{"kind": "max-tokens"}, {"kind": "completed"}]
        assert w.sent("assistant")[1] == ["hal"]


async def test_even_a_whole_call_never_runs(world):
    usage = {"inputTokens": 3, "outputTokens": 4}
    async with world([*WHOLE_CALL, usage_chunk(usage), finish("max-tokens")], tools=[never]) as w:
        await w.ask("hi")
        answer = w.of("assistant/message")[0].data
        assert answer["message"].content == []
        assert answer["usage"] == usage
        assert w.of("tool/call") == []
        assert w.reasons == [{"kind": "max-tokens"}]
        check_log(w.events)


async def test_what_the_route_attached_to_a_dropped_call_goes_with_it(world):
    state = {"blocks": [{"signature": "of the text"}, {"signature": "of the call"}]}
    cut = [
        text_delta(0, "let me"),
        tool_call_delta(1, '{"x', id="c1", name="never"),
        finish("max-tokens", replay_state=state),
    ]
    async with world(cut, text("ok"), tools=[never]) as w:
        await w.ask("hi")
        message = w.of("assistant/message")[0].data["message"]
        assert message.text == "let me"
        assert message.source["replayState"]["blocks"] == [{"signature": "of the text"}]
        await w.ask("go on")
        assert w.model.requests[1].messages[2] is message
