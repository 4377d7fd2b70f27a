"""The demo route: honest, deterministic, and driving the real loop."""

from __future__ import annotations

import pytest

from nbagent import Runtime, tool
from nbagent.llm.demo import DemoAdapter
from nbagent.llm.demo_calls import calls_in
from nbagent.testing import check_log

pytestmark = pytest.mark.anyio


@tool(parallel=True)
def weather(city: str, units: str = "C") -> str:
    """Look up the weather."""
    return f"{city}: 12 {units}"


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def mean_of(column: str, rows: int) -> float:
    """Mean."""
    return 1.5


async def run(prompt, *tools):
    async with Runtime() as runtime:
        runtime.llm.register(["demo"], DemoAdapter(delay_ms=0))
        handle = await runtime.agents.create(session_id="d", provider="demo", model="demo", tools=list(tools))
        handle.agent.followup(prompt)
        await handle.agent.when_idle()
        check_log(list(handle.agent.session.events))
        return handle.agent.session


@pytest.mark.parametrize(
    ("prompt", "calls"),
    [
        ("What is add(2, 3)?", [("add", {"a": 2, "b": 3})]),
        ("Use add(a=2, b=-3).", [("add", {"a": 2, "b": -3})]),
        ('add({"a": 1, "b": 2}) please', [("add", {"a": 1, "b": 2})]),
        ("Please add 2 and 40", [("add", {"a": 2, "b": 40})]),
        ("Compare the weather in Oslo and Rome.", [("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"})]),
        ('weather for "new york", units=F', [("weather", {"city": "new york", "units": "F"})]),
        ("weather?", [("weather", {"city": "demo"})]),
        ("Take mean_of column=price over 10 rows", [("mean_of", {"column": "price", "rows": 10})]),
        ("Is it whether or addition?", []),
        ("add(", [("add", {"a": 1, "b": 1})]),
    ],
)
def test_calls_are_read_out_of_the_prompt(prompt, calls):
    declared = [each.declaration for each in (weather, add, mean_of)]
    assert calls_in(prompt, declared) == calls


async def test_a_reply_without_tools_says_what_it_is_and_how_to_connect():
    session = await run("Hello")
    text = session.messages()[-1].text
    assert "no language model is connected" in text
    assert "DEEPSEEK_API_KEY" in text
    assert "--base-url" in text


async def test_tools_that_the_prompt_names_are_called_and_summed_up():
    session = await run("Compare the weather in Oslo and Rome", weather, add)
    results = [message for message in session.messages() if message.role == "tool"]
    assert [message.text for message in results] == ["Oslo: 12 C", "Rome: 12 C"]
    text = session.messages()[-1].text
    assert "`weather(city='Oslo')` returned: `Oslo: 12 C`" in text
    assert "demo" in text


async def test_the_same_prompt_gives_the_same_text():
    first, second = await run("weather in Oslo", weather), await run("weather in Oslo", weather)
    assert [message.content for message in first.messages()] == [message.content for message in second.messages()]


async def test_a_second_turn_starts_anew():
    async with Runtime() as runtime:
        runtime.llm.register(["demo"], DemoAdapter(delay_ms=0))
        handle = await runtime.agents.create(provider="demo", model="demo", tools=[add])
        for prompt in ("add(1, 2)", "add(3, 4)", "bye"):
            handle.agent.followup(prompt)
        await handle.agent.when_idle()
        results = [message.text for message in handle.agent.session.messages() if message.role == "tool"]
        assert results == ["3", "7"]
        ids = [call["id"] for message in handle.agent.session.messages() for call in message.tool_calls]
        assert len(set(ids)) == 2
