"""The scripted model: exact chunks, one item a request, and clear words when the script does not fit."""

from __future__ import annotations

import anyio
import pytest

from nbagent import CancelSignal, user_message
from nbagent.errors import LlmError
from nbagent.llm.adapter import Adapter
from nbagent.testing import ScriptedAdapter, as_json, fail, hang, reasoning, text, tool_calls
from nbagent.types.assembler import Assembler
from nbagent.types.config import CallConfig, Request, ToolHistory

pytestmark = pytest.mark.anyio


def request(prompt="hi") -> Request:
    return Request(
        config=CallConfig.of({"provider": "scripted", "model": "m"}),
        messages=(user_message(prompt),),
        tools=(),
        tool_history=ToolHistory.of({"tools": [], "updates": []}),
        session_id="s1",
    )


async def played(model, signal=None, asked=None):
    return [as_json(chunk) async for chunk in model.stream(asked or request(), signal or CancelSignal())]


async def test_it_is_an_adapter():
    assert isinstance(ScriptedAdapter([]), Adapter)


async def test_a_text_is_a_delta_a_character():
    assert await played(ScriptedAdapter([text("hø")])) == [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "text-delta", "index": 0, "text": "h"},
        {"type": "text-delta", "index": 0, "text": "ø"},
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": "hø"}},
        {"type": "usage", "usage": {"inputTokens": 10, "outputTokens": 2}},
        {"type": "finish", "reason": {"kind": "stop"}},
    ]


async def test_tool_calls_are_blocks_with_their_arguments_as_objects_or_raw():
    chunks = await played(ScriptedAdapter([tool_calls(("c1", "echo", {"x": 1}), ("c2", "echo", "not json"))]))
    assert chunks[:6] == [
        {"type": "block-start", "index": 0, "blockType": "tool-call"},
        {"type": "tool-call-delta", "index": 0, "id": "c1", "name": "echo", "argumentsDelta": '{"x":1}'},
        {
            "type": "block-end",
            "index": 0,
            "block": {"type": "tool-call", "id": "c1", "name": "echo", "arguments": '{"x":1}'},
        },
        {"type": "block-start", "index": 1, "blockType": "tool-call"},
        {"type": "tool-call-delta", "index": 1, "id": "c2", "name": "echo", "argumentsDelta": "not json"},
        {
            "type": "block-end",
            "index": 1,
            "block": {"type": "tool-call", "id": "c2", "name": "echo", "arguments": "not json"},
        },
    ]
    assert chunks[-1] == {"type": "finish", "reason": {"kind": "tool-calls"}}


@pytest.mark.parametrize(
    ("item", "types"),
    [
        (text("ab"), ["text"]),
        (reasoning("hm"), ["reasoning"]),
        (reasoning("hm", "yes"), ["reasoning", "text"]),
        (tool_calls(("c1", "echo", {})), ["tool-call"]),
        (tool_calls(("c1", "echo", {}), ("c2", "echo", {}), before="Let me see."), ["text", "tool-call", "tool-call"]),
    ],
)
async def test_deltas_alone_give_the_same_blocks_as_the_closed_ones(item, types):
    whole, deltas = Assembler(), Assembler()
    async for chunk in ScriptedAdapter([item]).stream(request(), CancelSignal()):
        whole.feed(chunk)
        if not chunk["type"].startswith("block-"):
            deltas.feed(chunk)
    assert whole.blocks() == deltas.blocks()
    assert [block["type"] for block in whole.blocks()] == types


async def test_a_hang_waits_for_the_abort_and_ends_as_an_adapter_does():
    signal = CancelSignal()
    seen = []
    with anyio.fail_after(5):
        async for chunk in ScriptedAdapter([hang()]).stream(request(), signal):
            seen.append(as_json(chunk))
            signal.cancel()
    assert seen[0] == {"type": "text-delta", "index": 0, "text": "partial"}
    assert seen[1]["reason"]["kind"] == "aborted"
    assert len(seen) == 2


async def test_a_failure_carries_the_providers_facts():
    model = ScriptedAdapter([fail("slow down", "RATE_LIMIT", status=429, provider_retry_after_ms=50, request_id="r1")])
    with pytest.raises(LlmError) as failure:
        await played(model)
    assert failure.value.facts() == {
        "message": "slow down",
        "code": "RATE_LIMIT",
        "status": 429,
        "providerRetryAfterMs": 50,
        "requestId": "r1",
    }


async def test_a_failure_may_come_after_chunks():
    seen = []
    with pytest.raises(LlmError, match="cut"):
        async for chunk in ScriptedAdapter([fail("cut", after=text("ab").chunks[:2])]).stream(
            request(), CancelSignal()
        ):
            seen.append(chunk["type"])
    assert seen == ["block-start", "text-delta"]


async def test_an_item_may_be_chunks_or_a_function_of_the_request():
    raw = [{"type": "text-delta", "index": 0, "text": "x"}, {"type": "finish", "reason": {"kind": "stop"}}]
    model = ScriptedAdapter([raw, lambda asked: text(asked.messages[-1].text.upper()), lambda asked: raw])
    assert await played(model) == raw
    assert (await played(model, asked=request("a")))[1]["text"] == "A"
    assert await played(model) == raw
    assert [asked.messages[-1].text for asked in model.requests] == ["hi", "a", "hi"]


async def test_a_script_that_has_run_out_says_so():
    model = ScriptedAdapter([text("x")])
    await played(model)
    with pytest.raises(LlmError, match="the script has 1 answers and was asked for answer 2") as failure:
        await played(model)
    assert failure.value.code == "SCRIPT_EXHAUSTED"
    model.script += [None, text("y")]
    assert await played(model)


@pytest.mark.parametrize("item", ["text", 3, ["chunk"], {"type": "finish"}])
async def test_an_item_that_is_no_answer_says_so(item):
    with pytest.raises(LlmError, match="a script is made of") as failure:
        await played(ScriptedAdapter([item]))
    assert failure.value.code == "SCRIPT_INVALID"


async def test_facts_are_those_given():
    facts = ScriptedAdapter([], system_prompt_update="in-history", tool_update=True, default_max_tokens=9).facts("m")
    assert (facts.system_prompt_update, facts.tool_update, facts.default_max_tokens) == ("in-history", True, 9)
    assert ScriptedAdapter([], context_window=7, efforts=["low"], default_effort="low").facts("m").efforts == ("low",)
