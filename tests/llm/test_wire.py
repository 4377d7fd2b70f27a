"""Exact bytes of real faults: every case gives the same result however the network cuts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nbagent.testing import read_reply, serve_bytes

pytestmark = pytest.mark.anyio

WIRE = Path(__file__).parent.parent / "wire"
CASES = sorted(path.stem for path in WIRE.glob("*.json"))


@pytest.mark.parametrize("size", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("name", CASES)
async def test_a_wire_case_reads_as_expected(name, size):
    case = json.loads((WIRE / f"{name}.json").read_text())
    expected = case["expect"]
    body = (WIRE / f"{name}.sse").read_bytes()
    http = case["http"]
    async with serve_bytes(
        body,
        status=http["status"],
        content_type=http["content_type"],
        chunk_size=size,
        keep_open=http["keep_open_after_body"],
    ) as base_url:
        reply = await read_reply(case["protocol"], base_url)
    ids = [call["id"] for call in reply["tool_calls"]]
    assert len(set(ids)) == len(ids)
    for call, wanted in zip(reply["tool_calls"], expected["tool_calls"], strict=True):
        if wanted["id"] == "*":
            call["id"] = "*"
    assert reply == expected


def chunk(delta, finish=None, **more):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def stream(*chunks, end="data: [DONE]\n\n", newline="\n"):
    lines = [f"data: {json.dumps(each)}{newline}{newline}" for each in chunks]
    return ("".join(lines) + end).encode()


async def reply_to(body, **options):
    async with serve_bytes(body, **options) as base_url:
        return await read_reply("openai-chat", base_url, idle_seconds=1)


def call(index=None, id=None, name=None, arguments=None):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fields = {"index": index, "id": id, "function": function}
    return {"tool_calls": [{key: value for key, value in fields.items() if value is not None}]}


NEAR_LEGAL = {
    "arguments as an object": ([call(0, "a", "f", {"x": 1})], [("f", {"x": 1})]),
    "id only on a later delta": ([call(0, None, "f", "{"), call(0, "a", None, "}")], [("f", {})]),
    "name only on a later delta": ([call(0, "a", None, ""), call(0, None, "f", "{}")], [("f", {})]),
    "whole calls without id or index": (
        [call(None, None, "f", "{}"), call(None, None, "g", "{}")],
        [("f", {}), ("g", {})],
    ),
    "id repeated on every delta": ([call(0, "a", "f", '{"x"'), call(0, "a", "f", ": 1}")], [("f", {"x": 1})]),
    "same id under two indexes": ([call(0, "a", "f", "{}"), call(1, "a", "g", "{}")], [("f", {}), ("g", {})]),
    "interleaved by index": (
        [call(0, "a", "f", "{"), call(1, "b", "g", "{"), call(0, None, None, "}"), call(1, None, None, "}")],
        [("f", {}), ("g", {})],
    ),
    "legacy function call": ([{"function_call": {"name": "f", "arguments": "{}"}}], [("f", {})]),
    "no arguments at all": ([call(0, "a", "f")], [("f", {})]),
}


@pytest.mark.parametrize("kind", NEAR_LEGAL)
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
async def test_near_legal_tool_calls_are_understood(kind, finish):
    deltas, wanted = NEAR_LEGAL[kind]
    reply = await reply_to(stream(*[chunk(delta) for delta in deltas], chunk({}, finish)))
    assert [(each["name"], each["arguments"]) for each in reply["tool_calls"]] == wanted
    assert reply["finish"] == "tool_calls"
    assert reply["error"] is None


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "hi"},
        {"content": [{"type": "text", "text": "hi"}]},
        {"content": "hi", "tool_calls": None, "role": None, "refusal": None},
        {"content": "hi", "tool_calls": [], "reasoning_content": None},
    ],
)
async def test_text_in_any_shape_is_read(delta):
    assert (await reply_to(stream(chunk(delta), chunk({}, "stop"))))["text"] == "hi"


@pytest.mark.parametrize("end", ["", "data: [DONE]", "data: [DONE]\n", "data:[DONE]\r\n\r\n"])
async def test_a_missing_end_mark_after_a_finish_reason_is_no_fault(end):
    reply = await reply_to(stream(chunk({"content": "hi"}), chunk({}, "stop"), end=end))
    assert (reply["text"], reply["finish"]) == ("hi", "stop")


async def test_a_socket_left_open_after_the_answer_is_left():
    reply = await reply_to(stream(chunk({"content": "hi"}), chunk({}, "stop"), end=""), keep_open=True)
    assert reply["finish"] == "stop"


async def test_a_json_body_in_place_of_a_stream_is_read():
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]})
    reply = await reply_to(body.encode(), content_type="application/json")
    assert (reply["text"], reply["finish"]) == ("hi", "stop")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (stream(chunk({"content": "half"}), end=""), "stream_truncated"),
        (stream(chunk({}, "stop")), "empty_response"),
        (stream(chunk({"content": "x"}, "content_filter")), "content_filter"),
        (stream(chunk({"content": "x"}, "insufficient_system_resource")), "server_error"),
        (b"<html><title>Bad gateway</title></html>", "server_error"),
        (b"data: {not json}\n\n", "server_error"),
        (b"data: 17\n\n", "server_error"),
        (b"", "stream_truncated"),
        (b'{"error": {"message": "boom", "type": "server_error"}}', "server_error"),
        (b'data: {"object": "error", "message": "too big", "code": 400}\n\n', "invalid_request"),
        (b'data: {"error": "rate limit reached"}\n\n', "rate_limit"),
        (b'data: [{"error": {"message": "overloaded", "code": 503}}]\n\n', "overloaded"),
    ],
)
async def test_anything_else_is_a_classified_failure(body, error):
    reply = await reply_to(body)
    assert (reply["finish"], reply["error"]) == ("error", error)


async def test_bytes_that_are_no_utf8_and_lone_surrogates_are_replaced():
    body = b'data: {"choices":[{"delta":{"content":"a\xff"}}]}\n\n' + stream(
        chunk({"content": "\ud800b"}), chunk({}, "stop")
    )
    reply = await reply_to(body)
    assert reply["text"] == "a\ufffd\ufffdb"


async def test_the_token_limit_is_told():
    assert (await reply_to(stream(chunk({"content": "x"}, "length"))))["finish"] == "length"


async def test_cached_tokens_are_not_counted_twice_and_unknown_stays_unknown():
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_cache_hit_tokens": 64}
    reply = await reply_to(stream(chunk({"content": "x"}, "stop"), {"choices": [], "usage": usage}))
    assert reply["usage"] == {"input": 36, "output": 7, "cache_read": 64, "reasoning": None}
