"""Requests rebuilt from a log are, byte for byte, those that were sent."""

from __future__ import annotations

import anyio
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent import Runtime, tool
from nbagent.errors import SessionError
from nbagent.llm.retry import RetryPolicy
from nbagent.testing import (
    LogBuilder,
    ScriptedAdapter,
    as_json,
    check_log,
    fail,
    hang,
    reasoning,
    sent_requests,
    text,
    tool_calls,
)
from nbagent.types.stream import finish, text_delta

pytestmark = pytest.mark.anyio


@tool(parallel=True)
async def echo(x: int = 0) -> str:
    """Say it again."""
    return f"echo {x}"


@tool
def note(words: str) -> None:
    """Note it."""


def encoded(requests):
    return [orjson.dumps(request.to_json()) for request in requests]


items = st.sampled_from(
    ["text", "reasoning", "calls", "bad call", "failure", "late failure", "empty", "max-tokens", "hang"]
)
actions = st.lists(
    st.sampled_from(["ask", "steer", "inject", "prompt", "tool", "restrict", "cancel"]), min_size=1, max_size=6
)


def item(kind, number):
    return {
        "text": text(f"answer {number}"),
        "reasoning": reasoning("hm", "yes"),
        "calls": tool_calls((f"c{number}", "echo", {"x": number}), (f"d{number}", "note", {"words": "ø"})),
        "bad call": tool_calls((f"c{number}", "nope", "not json")),
        "failure": fail("busy", "SERVER"),
        "late failure": fail("busy", "SERVER", after=text("ab").chunks[:2]),
        "empty": [],
        "max-tokens": [*text("cut").chunks[:-1], {"type": "finish", "reason": {"kind": "max-tokens"}}],
        "hang": hang(),
    }[kind]


async def run(script, steps, in_history):
    async with Runtime(retry=RetryPolicy(base_seconds=0.001)) as runtime:
        model = ScriptedAdapter(
            [item(kind, number) for number, kind in enumerate(script)],
            system_prompt_update="in-history" if in_history else None,
            tool_update=in_history,
        )
        version = [0]
        runtime.llm.register(["scripted"], model)
        runtime.tools.register(echo)
        handle = await runtime.agents.create(
            session_id="s1", provider="scripted", model="m", system=lambda: f"Version {version[0]}.", max_steps=12
        )
        agent = handle.agent
        for step in steps:
            if step == "prompt":
                version[0] += 1
            elif step == "tool" and agent.tools.get("note") is None:
                agent.tools.register(note)
            elif step == "restrict":
                agent.tools.restrict(without=["echo"])
            elif step == "steer":
                agent.steer("steered")
            elif step == "inject":
                agent.inject("injected")
            elif step == "cancel":
                await anyio.sleep(0.005)
                agent.cancel()
            else:
                agent.followup(f"prompt {step}")
                with anyio.move_on_after(0.05):
                    await agent.when_idle()
        agent.cancel()
        with anyio.fail_after(5):
            await agent.when_idle()
        check_log(agent.session.events)
        return list(agent.session.events), agent.session, model.requests


@settings(max_examples=40, deadline=None)
@given(st.lists(items, max_size=8), actions, st.booleans())
def test_any_conversation(script, steps, in_history):
    events, session, requests = anyio.run(run, script, steps, in_history)
    rebuilt = encoded(sent_requests(session.events))
    # What was cancelled before a first chunk left nothing to rebuild from; everything else is there, in order.
    sent = encoded(requests)
    positions = iter(range(len(sent)))
    assert all(any(sent[position] == request for position in positions) for request in rebuilt)
    if "cancel" not in steps and "hang" not in script:
        assert rebuilt == sent
    assert encoded(sent_requests([as_json(event) for event in events], "s1")) == rebuilt


async def test_an_answer_without_any_chunk_had_a_request():
    _, session, requests = await run(["empty", "text"], ["ask", "ask"], False)
    assert encoded(sent_requests(session)) == encoded(requests)
    assert len(requests) == 2


async def test_retries_are_requests_of_their_own():
    _, session, requests = await run(["late failure", "late failure", "text"], ["ask"], False)
    assert encoded(sent_requests(session)) == encoded(requests)
    assert len(requests) == 3


async def test_the_lines_of_a_session_file_are_a_log_too():
    log = LogBuilder("s9").begin("hi").answers(text("hello")).end()
    (request,) = sent_requests(log.lines())
    assert request.session_id == "s9"
    assert encoded([request]) == encoded(sent_requests(log.session)) == encoded(sent_requests(list(log.events), "s9"))
    assert [message.text for message in request.messages] == ["hi"]


async def test_an_answer_without_a_header_is_no_log_of_ours():
    log = LogBuilder()
    log.session.append("turn/start", {"turn": 1})
    log.turn = 1
    log.next_step().answers("x").end()
    with pytest.raises(SessionError, match="no request header"):
        sent_requests(log.events)


async def test_a_failed_attempt_that_a_cancel_ended_is_one_request():
    failure = finish("error", error={"message": "busy", "code": "SERVER"})
    log = LogBuilder().begin("hi").frame(text_delta(0, "half"), failure).answers("half", interrupted=True).end()
    assert len(sent_requests(log.session)) == 1
