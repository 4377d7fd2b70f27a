"""What users see when a model cannot be reached or says no: one clear line with a code, and no key in it."""

from __future__ import annotations

import contextlib
import json

import anyio
import pytest

from nbagent.cancellation import CancelSignal
from nbagent.errors import InputError
from nbagent.llm.adapters import create
from nbagent.llm.failures import failure_of_body, failure_of_error
from nbagent.llm.routes import connect, default_model, known_routes, parse_model
from nbagent.testing.serve import Canned, serve
from nbagent.types.config import CallConfig, Request, ToolHistory
from nbagent.types.messages import user_message

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"


def request_of(*messages, **config):
    return Request(
        config=CallConfig.of({"provider": "p", "model": "m", **config}),
        messages=messages or [user_message("hi")],
        tools=(),
        tool_history=ToolHistory.of({"tools": [], "updates": []}),
        session_id="s",
    )


async def ask(base_url, *, key=KEY, signal=None, **options):
    adapter = create("openai-chat", base_url=base_url, api_key=key, **options)
    chunks = [chunk async for chunk in adapter.stream(request_of(), signal or CancelSignal())]
    await adapter.aclose()
    return chunks


async def failure_from(base_url, **options):
    return (await ask(base_url, **options))[-1]["reason"]["error"]


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"message": "bad", "type": "invalid_request_error"}, "INVALID_REQUEST"),
        (
            400,
            {"message": "This model's maximum context length is 8 tokens", "type": "invalid_request_error"},
            "CONTEXT_WINDOW_EXCEEDED",
        ),
        (
            400,
            {"code": 400, "message": "request exceeds", "type": "exceed_context_size_error"},
            "CONTEXT_WINDOW_EXCEEDED",
        ),
        (401, {"message": "Incorrect API key provided", "code": "invalid_api_key"}, "AUTH"),
        (402, {"message": "Insufficient Balance"}, "QUOTA"),
        (403, {"message": "no"}, "AUTH"),
        (404, {"message": "The model `x` does not exist", "code": "model_not_found"}, "INVALID_REQUEST"),
        (422, {"message": "n must be positive"}, "INVALID_REQUEST"),
        (429, {"message": "Rate limit reached for requests"}, "RATE_LIMIT"),
        (429, {"message": "You exceeded your current quota", "type": "insufficient_quota"}, "QUOTA"),
        (500, {"message": "oops", "type": "server_error"}, "SERVER"),
        (502, "bad gateway", "SERVER"),
        (503, {"message": "Loading model", "type": "unavailable_error"}, "SERVER"),
        (529, {"message": "Overloaded", "type": "overloaded_error"}, "OVERLOADED"),
    ],
)
async def test_an_error_answer_has_its_code_and_the_servers_words(status, error, code):
    failure = failure_of_body(status, json.dumps({"error": error}).encode(), {}, host="h")
    assert failure.code == code
    assert failure.message == (error if isinstance(error, str) else error["message"])
    assert failure.status == status


async def test_a_number_inside_a_200_stands_in_for_the_status():
    assert failure_of_error({"code": 429, "message": "slow down"}).code == "RATE_LIMIT"


@pytest.mark.parametrize(("given", "wait"), [("2", 2000), ("0.5", 500), ("never", None)])
async def test_the_wait_that_a_server_asks_for_is_read(given, wait):
    failure = failure_of_body(429, b"{}", {"retry-after": given}, host="h")
    assert failure.provider_retry_after_ms == wait


async def test_a_date_as_wait_is_read():
    failure = failure_of_body(429, b"{}", {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, host="h")
    assert failure.provider_retry_after_ms == 0


async def test_a_wrong_key_is_told_without_the_key():
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}.", "code": "invalid_api_key"}}).encode()
    async with serve([Canned(body, 401, "application/json")]) as server:
        failure = await failure_from(server.base_url)
    assert failure["code"] == "AUTH"
    assert failure["message"] == "Incorrect API key provided: [masked key] (check the API key)"
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_a_refused_or_absent_key_is_told_by_the_name_of_its_variable():
    body = json.dumps({"error": {"message": "No access."}}).encode()
    async with serve([Canned(body, 401, "application/json")]) as server:
        for key, told in ((KEY, "check"), ("", "it was asked without a key: set")):
            adapter = connect("custom", base_url=server.base_url, environ={"NBAGENT_CUSTOM_API_KEY": key})
            *_, last = [chunk async for chunk in adapter.stream(request_of(), CancelSignal())]
            assert last["reason"]["error"]["message"] == f"No access ({told} NBAGENT_CUSTOM_API_KEY)"
            await adapter.aclose()


async def test_a_web_page_is_told_by_its_title():
    page = b"<!DOCTYPE html><html><head><title>502 Bad\nGateway</title></head><body>" + b"x" * 9000 + b"</body></html>"
    async with serve([Canned(page, 502, "text/html")]) as server:
        failure = await failure_from(server.base_url)
    assert failure["code"] == "SERVER"
    assert failure["message"].endswith("answered 502: a web page (502 Bad Gateway)")


async def test_a_refused_connection_says_which_server():
    failure = await failure_from("http://127.0.0.1:9/v1")
    assert failure["code"] == "TRANSPORT"
    assert failure["message"].startswith("cannot reach 127.0.0.1:9")


async def test_an_unknown_host_says_so():
    failure = await failure_from("http://no-such-host.invalid/v1")
    assert failure["code"] == "TRANSPORT"
    assert "no-such-host.invalid" in failure["message"]


async def test_a_silent_server_times_out():
    async with serve([Canned(b": hello\n\n", keep_open=True)]) as server:
        failure = await failure_from(server.base_url, idle_seconds=0.2)
    assert failure["code"] == "TIMEOUT"
    assert "sent nothing for 0.2 s" in failure["message"]


async def test_comments_keep_a_waiting_stream_alive():
    body = (
        b": wait\n\n" * 6 + b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    async with serve([Canned(body, chunk_size=8, pause_seconds=0.06)]) as server:
        chunks = await ask(server.base_url, idle_seconds=0.5)
    assert chunks[-1]["reason"] == {"kind": "stop"}


async def test_a_connection_that_breaks_in_the_answer_is_a_cut_stream():
    body = b'data: {"choices":[{"delta":{"content":"half"}}]}\n\n'
    async with serve([Canned(body, cut=True)]) as server:
        chunks = await ask(server.base_url)
    assert [chunk["type"] for chunk in chunks] == ["block-start", "text-delta", "finish"]
    assert chunks[-1]["reason"]["error"]["code"] == "STREAM_TRUNCATED"


async def test_a_kept_connection_that_the_server_has_left_is_replaced_without_a_word():
    body = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    connections = []

    async def handle(client):
        connections.append(client)
        async with client:
            await client.receive()
            await client.send(head + body)
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await client.receive()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        adapter = create("openai-chat", base_url=f"http://127.0.0.1:{port}", api_key=None)
        for _ in range(3):
            *_, last = [chunk async for chunk in adapter.stream(request_of(), CancelSignal())]
            assert last["reason"] == {"kind": "stop"}
        assert len(connections) == 3
        await adapter.aclose()
        tasks.cancel_scope.cancel()


async def test_a_server_that_hangs_up_on_every_request_is_a_failure():
    async def hang_up(client):
        async with client:
            await client.receive()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, hang_up)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        failure = await failure_from(f"http://127.0.0.1:{port}")
        tasks.cancel_scope.cancel()
    assert failure["code"] == "TRANSPORT"


async def test_a_redirection_says_what_to_do():
    async with serve([Canned(b"", 307)]) as server:
        failure = await failure_from(server.base_url)
    assert failure["code"] == "INVALID_REQUEST"
    assert "base URL" in failure["message"]


async def test_cancelling_closes_the_connection_quickly():
    body = b'data: {"choices":[{"delta":{"content":"half"}}]}\n\n'
    async with serve([Canned(body, keep_open=True)]) as server:
        adapter = create("openai-chat", base_url=server.base_url, api_key=None)
        seen = anyio.Event()

        async def consume():
            async for _ in adapter.stream(request_of(), CancelSignal()):
                seen.set()

        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            await seen.wait()
            began = anyio.current_time()
            group.cancel_scope.cancel()
        with anyio.fail_after(2.5):
            while not server.closed:
                await anyio.sleep(0.005)
        assert anyio.current_time() - began < 2.5
        await adapter.aclose()


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("", "INVALID_MODEL"),
        ("nope/x", "UNKNOWN_PROVIDER"),
        ("custom/", "INVALID_MODEL"),
        ("demo/big", "UNKNOWN_MODEL"),
        ("gpt", "UNKNOWN_PROVIDER"),
    ],
)
async def test_a_bad_model_name_says_what_is_known(model, code):
    with pytest.raises(InputError) as failure:
        parse_model(model)
    assert failure.value.code == code
    assert "\n" not in failure.value.message


async def test_model_names_are_parsed():
    assert parse_model("deepseek/deepseek-v4-pro") == ("deepseek", "deepseek-v4-pro")
    assert parse_model("deepseek") == ("deepseek", "deepseek-flash")
    assert parse_model("custom/org/model:tag") == ("custom", "org/model:tag")
    assert parse_model("demo") == ("demo", "demo")


async def test_a_missing_key_names_its_variable():
    with pytest.raises(InputError) as failure:
        connect("deepseek", environ={})
    assert failure.value.code == "MISSING_KEY"
    assert "DEEPSEEK_API_KEY" in failure.value.message


@pytest.mark.parametrize("key", ["sk with space", "sk\nline", "sk-ü"])
async def test_a_key_that_cannot_be_one_is_refused_and_not_shown(key):
    with pytest.raises(InputError) as failure:
        connect("openai", environ={"OPENAI_API_KEY": key})
    assert failure.value.code == "INVALID_CREDENTIAL"
    assert key not in failure.value.message


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://a b/", "http://x:99999"])
async def test_a_bad_base_url_is_refused(url):
    with pytest.raises(InputError) as failure:
        connect("custom", base_url=url, environ={})
    assert failure.value.code in {"INVALID_BASE_URL", "MISSING_BASE_URL"}


async def test_the_default_model_is_the_first_route_with_a_key():
    assert default_model({}) is None
    assert default_model({"OPENAI_API_KEY": "x"}) == "openai/gpt-5-mini"
    assert default_model({"OPENAI_API_KEY": "x", "DEEPSEEK_API_KEY": "y"}) == "deepseek/deepseek-flash"
    assert default_model({"NBAGENT_CUSTOM_BASE_URL": "http://h/v1", "NBAGENT_CUSTOM_MODEL": "m"}) == "custom/m"
    states = {state.route.name: state.missing for state in known_routes({})}
    assert states["deepseek"] == "set DEEPSEEK_API_KEY"
    assert states["demo"] is None
