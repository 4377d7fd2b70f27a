"""Requests: built from the log alone, frozen, each one the continuation of the one before."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from nbagent import tool
from nbagent.cancellation import CancelSignal
from nbagent.errors import LlmError
from nbagent.testing import as_json, sent_requests, text, tool_calls
from nbagent.types.config import CallConfig

pytestmark = pytest.mark.anyio


@tool
def echo(x: int) -> str:
    """Say it again."""
    return f"echo {x}"


async def test_a_request_is_frozen_and_holds_the_prompt_among_its_messages(world):
    async with world(text("ok"), tools=[echo]) as w:
        await w.ask("hi")
        (request,) = w.model.requests
        assert [m.role for m in request.messages] == ["system", "user"]
        assert set(as_json(request)) == {"config", "messages", "tools", "toolHistory", "sessionId"}
        assert request.session_id == w.agent.id
        with pytest.raises(FrozenInstanceError):
            request.messages = ()
        with pytest.raises((TypeError, AttributeError)):
            request.messages.append(request.messages[0])
        for value in (request.config, request.messages[1], request.messages[1].content[0], request.tools[0]):
            with pytest.raises(TypeError):
                value["role"] = "system"


async def test_a_listener_that_changes_the_content_of_a_request_fails_the_turn(world):
    async with world(text("ok")) as w:

        @w.on("llm/stream")
        async def change(payload, next):
            payload.request.messages[1].content[0]["text"] = "changed"
            return await next()

        await w.ask("hi")
        assert w.reasons[0]["kind"] == "error"
        assert w.reasons[0]["error"]["code"] == "UNKNOWN"
        assert w.model.requests == []


async def test_the_signal_of_a_call_stays_live(world):
    async with world(text("ok")) as w:
        signals = []

        @w.on("llm/stream")
        async def look(payload, next):
            signals.append((payload.signal, payload.signal.aborted))
            return await next()

        w.agent.on("session/event", lambda p: p.event.type == "assistant/frame" and w.agent.cancel())
        await w.ask("hi")
        ((signal, aborted_before),) = signals
        assert (aborted_before, signal.aborted) == (False, True)


async def test_each_request_begins_with_the_messages_of_the_one_before(world):
    script = [tool_calls(("c1", "echo", {"x": 1})), tool_calls(("c2", "echo", {"x": 2})), text("a"), text("b")]
    async with world(*script, tools=[echo]) as w:
        await w.ask("1")
        await w.ask("2")
        for before, after in zip(w.model.requests, w.model.requests[1:], strict=False):
            assert all(a is b for a, b in zip(before.messages, after.messages, strict=False))
            assert len(after.messages) > len(before.messages)
        assert [as_json(r) for r in sent_requests(w.agent.session)] == [as_json(r) for r in w.model.requests]


async def test_a_request_that_was_sent_does_not_grow(world):
    async with world(text("a"), text("b")) as w:
        await w.ask("1")
        first = w.model.requests[0].messages
        count = len(first)
        await w.ask("2")
        assert len(first) == count


async def test_messages_of_a_stored_session_are_frozen_and_keep_their_identity(world):
    async with world(text("a"), text("b"), text("c")) as w:
        await w.ask("1")
        ids = [m.id for m in w.agent.session.messages()]
        await w.resume(system="Be brief.")
        await w.ask("2")
        await w.ask("3")
        second, third = w.model.requests[1:]
        assert [m.id for m in second.messages][: len(ids)] == ids
        assert all(a is b for a, b in zip(second.messages, third.messages, strict=False))
        with pytest.raises(TypeError):
            second.messages[1]["role"] = "system"


async def test_a_listener_proposes_another_configuration_by_answering_one(world):
    async with world(text("a"), text("b")) as w:

        @w.on("agent/request")
        async def choose(payload, next):
            with pytest.raises(TypeError):
                payload.config["model"] = "x"
            config = await next()
            return {**config, "model": "other"} if payload.turn == 2 else config

        await w.ask("1")
        await w.ask("2")
        assert w.header_reasons == ["initial", "change"]
        assert w.model.requests[1].config.model == "other"


@pytest.mark.parametrize("answer", [None, "m", ["m"]])
async def test_what_is_no_configuration_fails_the_turn(world, answer):
    async with world() as w:

        @w.on("agent/request")
        async def wrong(payload, next):
            return answer

        await w.ask("hi")
        assert w.reasons[0]["error"]["message"].startswith('an "agent/request" listener must answer a configuration')
        assert w.model.requests == []


async def test_a_prepared_call_is_good_for_one_stream_of_its_own_configuration(world):
    async with world(text("a"), text("b")) as w:
        await w.ask("hi")
        (request,) = w.model.requests
        config = CallConfig.of({"provider": "scripted", "model": "m"})
        prepared = await w.agent.llm.prepare_call(config, CancelSignal())
        with pytest.raises(LlmError) as other:
            prepared.stream(replace(request, config=config.replace(model="n")), CancelSignal())
        chunks = [chunk["type"] async for chunk in prepared.stream(request, CancelSignal())]
        with pytest.raises(LlmError) as again:
            prepared.stream(request, CancelSignal())
        assert (other.value.code, again.value.code) == ("INVALID_PREPARED_CALL", "INVALID_PREPARED_CALL")
        assert chunks[-1] == "finish"
