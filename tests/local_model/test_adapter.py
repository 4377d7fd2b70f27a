"""The chat-completions adapter against a real server with a real model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import httpx
import pytest

from nbagent.cancellation import CancelSignal
from nbagent.llm.adapters import create
from nbagent.types.assembler import Assembler
from nbagent.types.config import CallConfig, Request, ToolHistory
from nbagent.types.messages import assistant_message, text_block, tool_call_block, tool_message, user_message
from tests.local_model.recipes import CALL_A_TOOL, get_weather
from tests.local_model.server import CONTEXT_TOKENS, LocalServer, running_server

pytestmark = [pytest.mark.anyio, pytest.mark.local_model]


def request_of(*messages, tools=(), **config):
    return Request(
        config=CallConfig.of({"provider": "custom", "model": "smollm2", "temperature": 0, **config}),
        messages=messages,
        tools=tools,
        tool_history=ToolHistory.of({"tools": list(tools), "updates": []}),
        session_id="s",
    )


@asynccontextmanager
async def adapter_of(server: LocalServer) -> AsyncIterator:
    adapter = create("openai-chat", base_url=server.base_url, api_key=None)
    try:
        yield adapter
    finally:
        await adapter.aclose()


async def answer_to(server: LocalServer, request: Request):
    async with adapter_of(server) as adapter:
        return [chunk async for chunk in adapter.stream(request, CancelSignal())]


async def test_text_comes_in_many_pieces_with_usage_and_a_finish(local_server):
    chunks = await answer_to(local_server, request_of(user_message("Say hello."), maxTokens=12))
    answer = Assembler(chunks)
    assert sum(chunk["type"] == "text-delta" for chunk in chunks) > 3
    assert answer.blocks()[0]["text"].strip()
    assert answer.usage.output_tokens == 12
    assert answer.usage.input_tokens > 0
    assert answer.finish["kind"] == "max-tokens"


async def test_a_tool_call_is_streamed_with_arguments_that_fit_the_schema(local_server):
    request = request_of(
        user_message("What is the weather in Oslo?"), tools=[get_weather.declaration], maxTokens=80, **CALL_A_TOOL
    )
    answer = Assembler(await answer_to(local_server, request))
    assert answer.finish == {"kind": "tool-calls"}
    (call,) = answer.blocks()
    assert call["name"] == "get_weather"
    assert call["id"]
    assert json.loads(call["arguments"]) == {"city": "Oslo"}


async def test_a_history_with_a_call_and_its_result_is_accepted(local_server):
    call = tool_call_block("c1", "get_weather", '{"city":"Oslo"}')
    history = [
        user_message("What is the weather in Oslo?"),
        assistant_message([call], provider="custom", model="smollm2"),
        tool_message("c1", [text_block("sunny")], is_error=False),
    ]
    answer = Assembler(
        await answer_to(local_server, request_of(*history, tools=[get_weather.declaration], maxTokens=12))
    )
    assert answer.finish["kind"] in {"stop", "max-tokens"}
    assert answer.blocks()[0]["text"].strip()


async def test_a_prompt_that_does_not_fit_says_so(local_server):
    chunks = await answer_to(local_server, request_of(user_message("one two three four " * CONTEXT_TOKENS)))
    failure = chunks[-1]["reason"]["error"]
    assert failure["code"] == "CONTEXT_WINDOW_EXCEEDED"
    assert failure["status"] == 400
    assert "context" in failure["message"]
    assert "\n" not in failure["message"]


async def test_a_cancel_frees_the_servers_slot(local_server):
    signal = CancelSignal()
    async with adapter_of(local_server) as adapter:
        stream = adapter.stream(request_of(user_message("Tell a very long story."), maxTokens=3000), signal)
        await anext(stream)
        assert await busy_slots(local_server) == 1
        with anyio.fail_after(0.25):
            signal.cancel()
            rest = [chunk async for chunk in stream]
        assert rest[-1]["reason"]["kind"] == "aborted"
        with anyio.fail_after(10):
            while await busy_slots(local_server):
                await anyio.sleep(0.05)


async def test_a_server_that_is_killed_in_the_middle_of_an_answer_leaves_a_failure_that_can_be_retried(local_server):
    with running_server() as server:
        async with adapter_of(server) as adapter:
            stream = adapter.stream(request_of(user_message("Tell a very long story."), maxTokens=3000), CancelSignal())
            await anext(stream)
            server.process.kill()
            *_, last = [chunk async for chunk in stream]
            assert last["reason"]["error"]["code"] == "STREAM_TRUNCATED"
            # A process that is about to be gone may still take a connection.
            await anyio.to_thread.run_sync(server.process.wait)
            *_, last = [chunk async for chunk in adapter.stream(request_of(user_message("hi")), CancelSignal())]
            assert last["reason"]["error"]["code"] == "TRANSPORT"


async def busy_slots(server: LocalServer) -> int:
    async with httpx.AsyncClient() as client:
        slots = (await client.get(f"{server.address}/slots")).json()
    return sum(bool(slot["is_processing"]) for slot in slots)
