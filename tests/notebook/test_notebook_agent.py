"""An agent in the hands of a notebook: any thread, values only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import nbagent
from nbagent.errors import InputError, LifecycleError, LlmError
from nbagent.notebook import Reply, TurnError
from nbagent.notebook.host import host
from nbagent.notebook.roster import roster
from nbagent.testing import as_json, check_log, fail, hang, reasoning, text, tool_calls


def until(condition: Callable[[], Any], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)


def streaming(run: Any) -> None:
    until(lambda: run.text)


@nbagent.tool
def echo(x: int) -> str:
    """Say it again."""
    return f"x={x}"


def test_run_answers_a_reply(scripted: Any) -> None:
    agent = scripted(reasoning("thinking", "looking"), text("hello there"))
    first, second = agent.run("hi"), agent.run("again")
    assert (first.text, first.reasoning, first.turn) == ("looking", "thinking", 1)
    assert (str(second), second.turn, second.reasoning) == ("hello there", 2, "")
    assert second.usage == {"inputTokens": 10, "outputTokens": 11}
    assert second.reason == {"kind": "completed"}
    assert "hello there" in second._repr_mimebundle_()["text/plain"]
    assert agent.status == "idle"


def test_a_reply_has_the_tool_calls(scripted: Any) -> None:
    agent = scripted(tool_calls(("c1", "echo", {"x": 1})), text("done"), tools=[echo])
    reply = agent.run("call it")
    (call,) = reply.tool_calls
    assert (call.name, call.arguments, call.result, call.state) == ("echo", '{"x":1}', "x=1", "done")
    assert reply.text == "done"
    assert agent.tools == ["echo"]


def test_every_turn_knows_its_model(scripted: Any) -> None:
    agent = scripted(text("a"), text("b"))
    runs = [agent.start("1"), agent.start("2")]
    for run in runs:
        run.result(5)
    assert [run.transcript.model for run in runs] == ["scripted/m", "scripted/m"]
    assert [transcript.model for transcript in agent.transcripts()] == ["scripted/m", "scripted/m"]


def test_a_failed_turn_raises_with_the_reply_so_far(scripted: Any) -> None:
    agent = scripted(
        tool_calls(("c1", "echo", {"x": 1}), before="wait"), fail("bad\nkey", code="AUTH"), text("ok"), tools=[echo]
    )
    with pytest.raises(LlmError) as raised:
        agent.run("hi")
    assert isinstance(raised.value, TurnError)
    assert (raised.value.code, str(raised.value)) == ("AUTH", "bad key")
    assert raised.value.reply.reason["kind"] == "error"
    assert len(raised.value.reply.tool_calls) == 1
    assert agent.run("again").text == "ok"


def test_start_returns_at_once_and_cancel_keeps_the_text(scripted: Any) -> None:
    agent = scripted(hang(), text("later"))
    run = agent.start("go")
    streaming(run)
    assert not run.done
    assert agent.status == "running"
    assert agent.cancel() == 0
    reply = run.result(5)
    assert (reply.text, reply.reason["kind"]) == ("partial", "aborted")
    assert agent.run("go on").text == "later"
    check_log(agent.session.events)


def test_a_run_can_be_stopped_by_itself(scripted: Any) -> None:
    agent = scripted(hang())
    run = agent.start("go")
    streaming(run)
    run.cancel()
    assert run.result(5).reason == {"kind": "aborted", "reason": {"kind": "user"}}


def test_stopping_a_queued_run_takes_only_its_prompt_back(scripted: Any) -> None:
    agent = scripted(hang(), text("third"))
    first, second, third = (agent.start(word) for word in ("one", "two", "three"))
    streaming(first)
    second.cancel()
    reply = second.result(5)
    assert (reply.turn, reply.text, reply.reason["kind"]) == (None, "", "aborted")
    assert not first.done
    assert [each.text for each in agent.inbox.pending] == ["three"]
    agent.host.call(lambda: agent.core.cancel("user", keep_inbox=True))
    first.result(5)
    with pytest.raises(LifecycleError) as raised:
        third.result(5)
    assert raised.value.code == "PROMPT_PENDING"
    assert agent.inbox.pending[0].target == "next-turn"


def test_each_run_follows_the_turn_that_claimed_its_prompt(scripted: Any) -> None:
    agent = scripted(*(text(f"answer {number}") for number in range(5)))
    runs = [agent.start(f"prompt {number}") for number in range(5)]
    replies = [run.result(5) for run in runs]
    assert [(reply.turn, reply.text) for reply in replies] == [(n + 1, f"answer {n}") for n in range(5)]


def test_steering_enters_the_running_turn(scripted: Any) -> None:
    entered, release = threading.Event(), threading.Event()

    @nbagent.tool
    def block() -> str:
        """Wait."""
        entered.set()
        release.wait(5)
        return "ok"

    agent = scripted(tool_calls(("c1", "block", {})), text("done"), tools=[block])
    run = agent.start("go")
    assert entered.wait(5)
    agent.steer("shorter")
    agent.inject("it is Monday")
    assert [(each.text, each.target) for each in agent.inbox.pending] == [
        ("shorter", "next-step"),
        ("it is Monday", "next-step"),
    ]
    release.set()
    assert run.result(5).text == "done"
    assert [message.text for message in agent.session.messages() if message.role == "user"] == [
        "go",
        "shorter",
        "it is Monday",
    ]


def test_wait_returns_when_idle_and_raises_what_the_background_left(scripted: Any) -> None:
    agent = scripted(text("a"), fail("no", code="AUTH"))
    assert agent.wait() is None
    agent.start("1")
    reply = agent.wait()
    assert isinstance(reply, Reply)
    assert reply.text == "a"
    agent.start("2")
    with pytest.raises(TurnError):
        agent.wait()
    assert agent.wait() is None


def test_a_time_limit_leaves_the_turn_alone(scripted: Any) -> None:
    agent = scripted(hang())
    run = agent.start("go")
    for waiting in (lambda: run.result(0.05), lambda: agent.wait(0.05)):
        with pytest.raises(TimeoutError) as raised:
            waiting()
        assert raised.value.code == "WAIT_TIMEOUT"  # type: ignore[attr-defined]
    assert agent.status == "running"
    agent.cancel()
    run.result(5)


def test_an_empty_prompt_is_refused(scripted: Any) -> None:
    agent = scripted(text("x"))
    for send in (agent.run, agent.start, agent.followup, agent.steer, agent.inject):
        with pytest.raises(InputError) as raised:
            send(" \n")
        assert raised.value.code == "EMPTY_PROMPT"
    assert len(agent.session.events) == 0


def test_disposing_ends_the_turn_and_frees_the_name(scripted: Any) -> None:
    agent = scripted(hang())
    run = agent.start("go")
    streaming(run)
    agent.dispose()
    assert agent.status == "disposed"
    assert roster.get("analyst") is None
    assert run.result(5).reason["reason"]["kind"] == "disposed"
    assert agent.session.messages()[-1].text == "partial"
    assert agent.inbox.pending == []
    with pytest.raises(LifecycleError) as raised:
        agent.run("hello?")
    assert raised.value.code == "AGENT_DISPOSED"
    agent.dispose()


def test_show_draws_turns_from_the_log(scripted: Any) -> None:
    agent = scripted(text("alpha"), text("beta"))
    with pytest.raises(InputError) as raised:
        agent.drawn()
    assert raised.value.code == "UNKNOWN_TURN"
    agent.run("one")
    agent.run("two")
    assert "beta" in agent.drawn()["text/plain"]
    assert "alpha" not in agent.drawn()["text/plain"]
    assert "alpha" in agent.drawn(1)["text/markdown"]
    assert {"alpha", "beta"} <= set(agent.drawn(all=True)["text/plain"].split())
    with pytest.raises(InputError, match="it has 2"):
        agent.drawn(3)


def test_the_log_is_readable_from_any_thread(scripted: Any) -> None:
    agent = scripted(text("hello"))
    agent.run("hi")
    seen: list[Any] = []
    thread = threading.Thread(
        target=lambda: seen.extend([agent.session.events[0], agent.session.messages(), agent.inbox.pending])
    )
    thread.start()
    thread.join()
    assert as_json(seen[0])["type"] == "agent/inbox/spliced"
    assert [message.role for message in seen[1]] == ["user", "assistant"]
    assert agent.session.path.name == f"{agent.id}.jsonl"


def test_waiting_on_the_agents_own_thread_is_refused_and_awaiting_is_not(scripted: Any) -> None:
    helper = scripted(text("from the helper"), name="helper")

    @nbagent.tool
    async def ask_wrongly() -> str:
        """Ask."""
        return helper.run("hi").text

    @nbagent.tool
    async def ask() -> str:
        """Ask."""
        helper.inject("be quick")
        return (await helper.arun("hi")).text

    agent = scripted(
        tool_calls(("c1", "ask_wrongly", {})), tool_calls(("c2", "ask", {})), text("done"), tools=[ask_wrongly, ask]
    )
    calls = agent.run("go").tool_calls
    assert "arun" in (calls[0].result or "")
    assert calls[1].result == "from the helper"


@pytest.mark.anyio
async def test_arun_works_on_every_loop(scripted: Any) -> None:
    agent = scripted(text("hello"), text("again"))
    assert (await agent.arun("hi")).text == "hello"
    run = agent.start("more")
    assert (await run).text == "again"


@pytest.mark.anyio
async def test_cancelling_who_awaits_cancels_the_turn(scripted: Any) -> None:
    import anyio

    agent = scripted(hang())
    with anyio.move_on_after(0.2):
        await agent.arun("go")
    await anyio.to_thread.run_sync(agent.wait)
    assert agent.transcripts()[-1].reason == {"kind": "aborted", "reason": {"kind": "user"}}


def test_an_event_that_cannot_be_stored_fails_the_run(scripted: Any) -> None:
    agent = scripted(text("x"))

    def refuse(event: Any) -> None:
        if event.event.type == "turn/end":
            raise OSError("disk full")

    agent.host.call(agent.core.on, "session/validate", refuse)
    with pytest.raises(OSError, match="disk full"):
        agent.run("hi")


def test_the_loop_is_one_daemon_thread(scripted: Any) -> None:
    scripted(text("x")).run("hi")
    threads = [thread for thread in threading.enumerate() if thread.name == "nbagent"]
    assert len(threads) == 1
    assert threads[0].daemon
    assert not host().on_loop
    assert host().call(lambda: host().on_loop)


@pytest.mark.parametrize("wait", ["run", "wait", "result", "dispose"])
def test_a_tool_cannot_wait_for_the_turn_that_waits_for_it(scripted: Any, wait: str) -> None:
    @nbagent.tool
    def selfish() -> str:
        """Wait for oneself."""
        agent = roster.get("analyst")
        assert agent is not None
        return str(
            {"run": lambda: agent.run("x"), "result": lambda: agent.start("x").result()}.get(
                wait, getattr(agent, wait, None)
            )()
        )

    agent = scripted(tool_calls(("c1", "selfish", {})), text("done"), text("later"), tools=[selfish])
    reply = agent.run("go", timeout=20)
    assert reply.tool_calls[0].result.startswith("Error: analyst would wait for a turn of its own")
