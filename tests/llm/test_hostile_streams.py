"""Streams that break the protocol in every way that servers, proxies and networks are known for."""

from __future__ import annotations

import itertools
import json
import random

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.cancellation import CancelSignal
from nbagent.llm.adapters import create
from nbagent.llm.adapters.chat_stream import ChatStream
from nbagent.llm.sse import SseDecoder
from nbagent.testing import read_reply, serve_bytes
from nbagent.testing.serve import Canned, serve
from nbagent.types.assembler import Assembler
from nbagent.types.stream import FINISH_KINDS
from tests.llm.test_failures import request_of
from tests.llm.test_wire import CASES, WIRE, call, chunk, reply_to, stream

pytestmark = pytest.mark.anyio

WHOLE = stream(
    chunk({"role": "assistant", "content": "h\u00e9llo 世"}),
    chunk({"content": "界 \U0001f98a"}),
    chunk({}, "stop"),
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
)


def read(*pieces: bytes) -> Assembler:
    """What the parser makes of network reads, without a network."""
    decoder, parser = SseDecoder(), ChatStream()
    chunks = []
    for piece in pieces:
        chunks += parser.feed(decoder.feed(piece))
    chunks += parser.feed(decoder.close())
    try:
        chunks += parser.close()
    except Exception as failure:
        chunks.append({"type": "finish", "reason": {"kind": "error", "error": {"code": failure.code}}})
    return Assembler(chunks)


def result_of(answer: Assembler):
    return answer.blocks(), answer.usage, answer.finish


@pytest.mark.parametrize("name", CASES)
def test_a_cut_between_reads_at_any_byte_changes_nothing(name):
    body = (WIRE / f"{name}.sse").read_bytes()
    whole = result_of(read(body))
    assert all(result_of(read(body[:at], body[at:])) == whole for at in range(len(body)))


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@settings(max_examples=100, deadline=None)
@given(cuts=st.lists(st.integers(0, len(WHOLE) + 20), max_size=30))
def test_any_reads_and_any_line_ends_give_the_same_text(newline, cuts):
    body = WHOLE.replace(b"\n", newline)
    edges = [0, *sorted(cuts), len(body)]
    pieces = [body[start:end] for start, end in itertools.pairwise(edges)]
    assert result_of(read(*pieces)) == result_of(read(WHOLE))


def test_a_stream_that_ends_at_any_byte_is_truncated_until_its_finish_reason_was_said():
    said = WHOLE.index(b'"stop"')
    complete = WHOLE.index(b"}\n\n", said) + 1
    for end in range(len(WHOLE)):
        answer = read(WHOLE[:end])
        if end < complete:
            assert answer.finish["error"]["code"] == "STREAM_TRUNCATED"
        else:
            assert answer.finish == {"kind": "stop"}
        assert "héllo 世界 \U0001f98a".startswith("".join(block["text"] for block in answer.blocks()))


@settings(max_examples=200, deadline=None)
@given(st.integers())
def test_damaged_bytes_never_raise_anything_but_a_classified_failure(seed):
    rng = random.Random(seed)
    body = bytearray(WHOLE)
    for _ in range(rng.randint(1, 8)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    assert read(bytes(body)).finish["kind"] in FINISH_KINDS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("role", "content", "reasoning", "reasoning_content", "refusal", "function_call", "reasoning_details"), JSON
    )
    | {
        "tool_calls": JSON
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional=dict.fromkeys(("index", "id", "type", "function", "name", "arguments", "extra_content"), JSON),
            ),
            max_size=3,
        )
    },
)
PAYLOADS = JSON | st.fixed_dictionaries(
    {},
    optional={
        "choices": JSON
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "delta": JSON | FIELDS,
                    "message": FIELDS,
                    "finish_reason": JSON,
                    "index": JSON,
                    "usage": JSON,
                },
            ),
            max_size=2,
        ),
        "usage": JSON,
        "error": JSON,
        "x_groq": JSON,
    },
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PAYLOADS, max_size=5))
def test_payloads_of_any_shape_give_an_answer_that_the_log_can_hold(payloads):
    answer = read("".join(f"data: {json.dumps(payload)}\n\n" for payload in payloads).encode())
    assert answer.finish["kind"] in FINISH_KINDS
    for block in answer.blocks():
        json.dumps(block, ensure_ascii=False).encode()
    answer.replay_state()


CALLS = {
    "an index as text": (
        [
            call("0", "a", "f", '{"x"'),
            call("1", "b", "g", "{"),
            call("0", None, None, ":1}"),
            call("1", None, None, "}"),
        ],
        [("a", "f", {"x": 1}), ("b", "g", {})],
    ),
    "a new id with every piece": ([call(0, "a", "f", '{"x"'), call(0, "b", None, ":1}")], [("a", "f", {"x": 1})]),
    "the name with every piece": ([call(0, "a", "f", '{"x"'), call(0, None, "f", ":1}")], [("a", "f", {"x": 1})]),
    "an id that is a number": ([call(0, 7, "f", "{}")], [("7", "f", {})]),
    "the whole call once more at its end": (
        [call(0, "a", "f", '{"x"'), call(0, None, None, ":1}"), call(0, "a", "f", '{"x":1}')],
        [("a", "f", {"x": 1})],
    ),
    "one id for all, without an index": (
        [call(None, "a", "f", '{"x":1}'), call(None, "a", "f", '{"x":2}')],
        [("a", "f", {"x": 1}), ("a", "f", {"x": 2})],
    ),
    "calls in one list without index and id": (
        [
            {
                "tool_calls": [
                    {"function": {"name": "f", "arguments": "{}"}},
                    {"function": {"name": "g", "arguments": "{}"}},
                ]
            }
        ],
        [("call-0", "f", {}), ("call-1", "g", {})],
    ),
    "a legacy call beside the real one": (
        [{**call(0, "a", "f", "{}"), "function_call": {"name": "f", "arguments": "{}"}}],
        [("a", "f", {})],
    ),
    "whitespace before and a null between": (
        [
            {"content": "\n\n"},
            call(0, "a", "f", "{"),
            {"tool_calls": None},
            {"tool_calls": [None]},
            call(0, None, None, "}"),
        ],
        [("a", "f", {})],
    ),
}


@pytest.mark.parametrize("kind", CALLS)
async def test_tool_calls_survive(kind):
    deltas, wanted = CALLS[kind]
    reply = await reply_to(stream(*[chunk(delta) for delta in deltas], chunk({}, "tool_calls")))
    assert [(each["id"], each["name"], each["arguments"]) for each in reply["tool_calls"]] == wanted


@pytest.mark.parametrize("last", [{}, {"tool_calls": [{"index": 0, "extra_content": {"signature": "S"}}]}])
async def test_what_a_server_attached_to_a_call_is_kept_also_when_it_comes_late(last):
    first = call(0, "a", "f", "{}")
    if not last:
        first["tool_calls"][0]["extra_content"] = {"signature": "S"}
    reply = await reply_to(stream(chunk({"content": "hm"}), chunk(first), chunk(last), chunk({}, "stop")))
    assert reply["tool_calls"] == [
        {"id": "a", "name": "f", "arguments": {}, "provider_extra": {"extra_content": {"signature": "S"}}}
    ]


async def test_a_whole_call_at_the_token_limit_is_a_call_and_a_cut_one_is_not():
    whole = await reply_to(stream(chunk(call(0, "a", "f", '{"x":1}')), chunk({}, "length")))
    assert whole["finish"] == "tool_calls"
    cut = await reply_to(stream(chunk(call(0, "a", "f", '{"x":')), chunk({}, "length")))
    assert cut["finish"] == "length"


async def test_a_character_in_two_halves_is_one_character():
    halves = b'data: {"choices":[{"delta":{"content":"a\\ud83e"}}]}\n\ndata: {"choices":[{"delta":{"content":"\\udd8a!"}}]}\n\n'
    assert (await reply_to(halves + stream(chunk({}, "stop"))))["text"] == "a\U0001f98a!"


@pytest.mark.parametrize(
    ("body", "options", "text"),
    [
        (
            json.dumps({"choices": [{"message": {"content": "x" * 9000}, "finish_reason": "stop"}]}, indent=1).encode(),
            {},
            "x" * 9000,
        ),
        (WHOLE, {"content_type": "application/json"}, "héllo 世界 \U0001f98a"),
        (WHOLE, {"content_type": "text/html"}, "héllo 世界 \U0001f98a"),
        (b"\xef\xbb\xbf" + WHOLE, {"chunk_size": 1}, "héllo 世界 \U0001f98a"),
        (
            b'{"choices":[{"delta":{"content":"a"}}]}\n{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}\n',
            {},
            "ab",
        ),
        (
            stream(chunk({"content": "hi"}), {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}),
            {},
            "hi",
        ),
        (
            stream(
                {"choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]},
                chunk({}, "stop"),
            ),
            {},
            "yes",
        ),
        (stream(chunk({"content": "x"}, "stop"), end="data: {broken\n\n"), {}, "x"),
        (b"data: null\n\n" + stream(chunk({"content": "x"}, "stop")), {}, "x"),
    ],
)
async def test_an_answer_in_another_wrapping_is_read(body, options, text):
    reply = await reply_to(body, **options)
    assert (reply["text"], reply["finish"], reply["error"]) == (text, "stop", None)


async def test_the_first_finish_reason_and_the_last_usage_that_says_something_count():
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    zero = {"prompt_tokens": 0, "completion_tokens": 0}
    reply = await reply_to(
        stream(chunk({"content": "x"}, "length"), chunk({}, "stop"), {"usage": usage}, {"usage": zero})
    )
    assert reply["finish"] == "length"
    assert reply["usage"]["output"] == 2


@pytest.mark.parametrize("size", [None, 1])
async def test_an_abort_ends_the_stream_at_once_and_closes_the_connection(size):
    body = stream(chunk({"content": "half"}), end="")
    async with serve([Canned(body, chunk_size=size, keep_open=True)]) as server:
        adapter = create("openai-chat", base_url=server.base_url, api_key=None)
        signal = CancelSignal()
        received = []
        async with anyio.create_task_group() as tasks:

            async def cancel_when_text_came():
                while not any(each["type"] == "text-delta" for each in received):
                    await anyio.sleep(0.005)
                signal.cancel()

            tasks.start_soon(cancel_when_text_came)
            with anyio.fail_after(5):
                async for each in adapter.stream(request_of(), signal):
                    received.append(each)
        assert received[-1]["reason"]["kind"] == "aborted"
        with anyio.fail_after(0.25):
            while not server.closed:
                await anyio.sleep(0.005)
        await adapter.aclose()


async def test_an_abort_before_the_answer_begins_is_as_quick():
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener:
        adapter = create("openai-chat", base_url=f"http://127.0.0.1:{port}", api_key=None)
        signal = CancelSignal()
        async with anyio.create_task_group() as tasks:

            async def cancel_soon():
                await anyio.sleep(0.1)
                signal.cancel()

            tasks.start_soon(cancel_soon)
            with anyio.fail_after(2):
                (last,) = [each async for each in adapter.stream(request_of(), signal)]
        assert last["reason"] == {"kind": "aborted", "error": {"message": "the call was cancelled", "code": "ABORTED"}}
        await adapter.aclose()


async def test_a_consumer_that_leaves_early_leaves_nothing_open():
    async with serve([Canned(WHOLE, chunk_size=20, keep_open=True)]) as server:
        adapter = create("openai-chat", base_url=server.base_url, api_key=None)
        answer = adapter.stream(request_of(), CancelSignal())
        await anext(answer)
        await answer.aclose()
        with anyio.fail_after(0.25):
            while not server.closed:
                await anyio.sleep(0.005)
        await adapter.aclose()


def test_an_adapter_serves_one_event_loop_after_the_other():
    async def once():
        async with serve_bytes(WHOLE) as base_url:
            return (await read_reply("openai-chat", base_url))["text"]

    assert {anyio.run(once, backend=backend) for backend in ("asyncio", "trio", "asyncio")} == {"héllo 世界 \U0001f98a"}
