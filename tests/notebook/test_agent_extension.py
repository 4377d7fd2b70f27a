"""What a notebook can change about its agent, and how its history is made shorter."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.errors import InputError
from nbagent.testing import check_log, hang, text
from tests.notebook.test_notebook_agent import streaming


def test_a_listener_of_a_notebook_changes_the_turns_until_it_is_removed(scripted: Any) -> None:
    agent = scripted(text("one"), text("two"))

    async def shout(payload: Any, next: Any) -> Any:
        decision = await next()
        return {
            "kind": "enter",
            "messages": [{**each, "content": [{"type": "text", "text": "HI"}]} for each in decision.messages],
        }

    remove = agent.on("agent/pre-step", shout)
    agent.run("hi")
    remove()
    agent.run("hi")
    said = [message.text for message in agent.session.messages() if message.role == "user"]
    assert said == ["HI", "hi"]


def test_a_listener_that_does_not_fit_is_refused_at_the_call(scripted: Any) -> None:
    agent = scripted()
    with pytest.raises(InputError, match="must be an async function"):
        agent.on("agent/pre-step", print)


def test_a_history_is_compacted_from_a_cell(scripted: Any) -> None:
    agent = scripted(text("one"), text("two"))
    agent.run("first")
    assert agent.compact(summary="They met.").text == "They met."
    agent.run("second")
    assert [message.text for message in agent.session.messages()][-3:] == ["They met.", "second", "two"]
    check_log(agent.session.events)


def test_a_turn_under_way_refuses_to_be_compacted(scripted: Any) -> None:
    agent = scripted(hang())
    run = agent.start("hi")
    streaming(run)
    with pytest.raises(Exception, match="already has active work"):
        agent.compact(summary="S")
    agent.cancel()
