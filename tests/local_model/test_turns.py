"""Whole agent turns through a real server: inbox, log, request, stream, tool, second request."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import anyio
import pytest

from nbagent import Runtime
from nbagent.llm.adapters import create
from nbagent.testing import check_log
from tests.local_model.recipes import CALL_A_TOOL, get_weather

pytestmark = [pytest.mark.anyio, pytest.mark.local_model]


@asynccontextmanager
async def agent_on(server, *, store=None, **options):
    async with Runtime(store=store, retry=None) as runtime:
        runtime.llm.register(["custom"], create("openai-chat", base_url=server.base_url, api_key=None))
        handle = await runtime.agents.create(provider="custom", model="smollm2", system="Be brief.", **options)
        yield handle.agent


def only_first_step(settings):
    """A listener of `agent/request` that adds `settings` to the first step of a turn and takes them out afterwards."""

    async def listener(payload, next):
        config = await next()
        wanted = settings if payload.step == 1 else dict.fromkeys(settings)
        return config.replace(temperature=0, **wanted)

    return listener


def of(agent, *types):
    return [event for event in agent.session.events if event.type in types]


async def test_a_prompt_is_answered_by_the_model_and_the_answer_is_logged_as_it_streams(local_server):
    async with agent_on(local_server, max_tokens=16) as agent:
        agent.on("agent/request", only_first_step({}))
        agent.followup("Tell a very long story.")
        await agent.when_idle()
        (message,) = of(agent, "assistant/message")
        streamed = [
            chunk["text"]
            for frame in of(agent, "assistant/frame")
            for chunk in frame.data["chunks"]
            if chunk["type"] == "text-delta"
        ]
        assert len(streamed) > 3
        assert "".join(streamed) == message.data["message"].text
        assert message.data["usage"]["outputTokens"] == 16
        assert of(agent, "turn/end")[0].data["reason"] == {"kind": "max-tokens"}
        check_log(agent.session.events)


async def test_the_model_calls_a_tool_and_its_next_request_carries_the_result(local_server):
    async with agent_on(local_server, tools=[get_weather], max_tokens=60) as agent:
        agent.on("agent/request", only_first_step(CALL_A_TOOL))
        agent.followup("What is the weather in Oslo?")
        await agent.when_idle()
        (call,) = of(agent, "tool/call")
        assert call.data["name"] == "get_weather"
        assert json.loads(call.data["arguments"]) == {"city": "Oslo"}
        (result,) = of(agent, "tool/result")
        assert result.data["message"].text == "It is sunny in Oslo, 21 degrees."
        first, second = of(agent, "assistant/message")
        assert [block["id"] for block in first.data["message"].tool_calls] == [call.data["callId"]]
        assert second.data["message"].text.strip()
        assert of(agent, "turn/end")[0].data["reason"]["kind"] in {"completed", "max-tokens"}
        check_log(agent.session.events)


async def test_a_cancelled_answer_is_kept_and_the_next_turn_is_accepted(local_server):
    async with agent_on(local_server, tools=[get_weather]) as agent:
        agent.on("agent/request", only_first_step(CALL_A_TOOL))
        agent.followup("What is the weather in Oslo?")
        while not [frame for frame in of(agent, "assistant/frame") if frame.data["step"] == 2]:
            await anyio.sleep(0.01)
        with anyio.fail_after(0.5):
            agent.cancel()
            await agent.when_idle()
        assert of(agent, "turn/end")[0].data["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}
        assert of(agent, "assistant/message")[-1].data["interrupted"] is True
        agent.followup("What is the weather in Rome?")
        await agent.when_idle()
        assert [json.loads(call.data["arguments"])["city"] for call in of(agent, "tool/call")] == ["Oslo", "Rome"]
        check_log(agent.session.events)


async def test_a_server_that_is_gone_ends_the_turn_with_one_line_and_the_agent_stays_usable(local_server):
    async with Runtime(retry=None) as runtime:
        runtime.llm.register(["custom"], create("openai-chat", base_url="http://127.0.0.1:9/v1", api_key=None))
        handle = await runtime.agents.create(provider="custom", model="smollm2")
        handle.agent.followup("Say hello.")
        await handle.agent.when_idle()
        error = of(handle.agent, "turn/end")[0].data["reason"]["error"]
        assert error["code"] == "TRANSPORT"
        assert "127.0.0.1:9" in error["message"]
        assert "\n" not in error["message"]
        handle.agent.llm.register(["custom"], create("openai-chat", base_url=local_server.base_url, api_key=None))
        handle.agent.followup("Say hello again.")
        await handle.agent.when_idle()
        assert handle.agent.session.messages()[-1].text.strip()
