"""Agents from configuration: which session each start means, and what a failure does to the others."""

from __future__ import annotations

import json
import logging
import sys
import types

import anyio
import pytest

from nbagent import Runtime
from nbagent.agent.declared import DeclaredAgent, declared_agents, read_agents
from nbagent.errors import InputError, StorageError
from nbagent.storage import JsonlStore, MemoryStore
from nbagent.testing import ScriptedAdapter, text

pytestmark = pytest.mark.anyio


@pytest.fixture
def module(monkeypatch):
    """A module that entries can name."""
    made = types.ModuleType("declared_parts")
    monkeypatch.setitem(sys.modules, "declared_parts", made)
    return made


@pytest.fixture
def runtime():
    return Runtime(retry=None)


def failures_of(runtime):
    heard = []
    runtime.on("agent-loop/config-start-failed", heard.append)
    return heard


# -- which session ---------------------------------------------------------------------------------------------------


async def test_without_a_session_every_start_is_a_fresh_one(runtime):
    async with runtime:
        [first] = await runtime.agents.start([{"id": "helper"}])
        [second] = await runtime.agents.start([{"id": "helper"}])
        ids = [first.agent.id, second.agent.id]
        assert ids[0] != ids[1]
        assert all(each.startswith("helper-session-") and len(each) == len("helper-session-") + 36 for each in ids)


@pytest.mark.parametrize("entry", [{"sessionId": "exact"}, {"session_id": "exact"}, {"stable": True}])
async def test_an_exact_session_is_made_once_and_resumed_later(entry, tmp_path):
    expected = "helper-session" if "stable" in entry else "exact"
    declared = [{"id": "helper", "provider": "scripted", "model": "m", **entry}]
    for turn in (1, 2):
        async with Runtime(JsonlStore(tmp_path)) as runtime:
            runtime.llm.register(["scripted"], ScriptedAdapter([text("ok")]))
            [handle] = await runtime.agents.start(declared)
            assert handle.agent.id == expected
            handle.agent.followup("hi")
            await handle.agent.when_idle()
            starts = [event for event in handle.agent.session.events if event.type == "turn/start"]
            assert len(starts) == turn


async def test_a_session_to_resume_has_to_exist_and_the_others_start_without_it(runtime, caplog):
    heard = failures_of(runtime)
    async with runtime:
        with caplog.at_level(logging.WARNING):
            handles = await runtime.agents.start([{"id": "old", "resumeSessionId": "gone"}, {"id": "new"}])
        assert [each.agent.id.startswith("new-session-") for each in handles] == [True]
        assert [each.session_id for each in heard] == ["gone"]
        assert heard[0].error.code == "SESSION_NOT_FOUND"
        assert 'the declared agent "old" was not started: ' in caplog.text
        assert runtime.agents.get("gone") is None


async def test_damage_is_not_taken_for_absence(tmp_path):
    (tmp_path / "exact.jsonl").write_bytes(b"not a session\n")
    runtime = Runtime(JsonlStore(tmp_path))
    heard = failures_of(runtime)
    async with runtime:
        assert await runtime.agents.start([{"id": "a", "sessionId": "exact"}]) == []
    assert isinstance(heard[0].error, StorageError)
    assert heard[0].error.code != "SESSION_NOT_FOUND"
    assert (tmp_path / "exact.jsonl").read_bytes() == b"not a session\n"


async def test_a_start_waits_for_the_agent_of_the_same_session_that_is_going_away():
    runtime = Runtime(SlowToClose())
    heard = failures_of(runtime)
    async with runtime, anyio.create_task_group() as group:
        [first] = await runtime.agents.start([{"id": "a", "sessionId": "exact"}])
        first.agent.inject("kept")
        group.start_soon(lambda: first.dispose(keep_inbox=True))
        await anyio.sleep(0.01)
        assert first.disposing
        [second] = await runtime.agents.start([{"id": "a", "sessionId": "exact"}])
        assert second.agent is not first.agent
        assert [message.text for message in second.agent.inbox.next_step] == ["kept"]
        assert heard == []


async def test_a_session_that_stays_in_use_is_a_failed_start(runtime):
    heard = failures_of(runtime)
    async with runtime:
        await runtime.agents.start([{"id": "a", "sessionId": "exact"}])
        assert await runtime.agents.start([{"id": "b", "sessionId": "exact"}]) == []
        assert [each.error.code for each in heard] == ["SESSION_ALREADY_EXISTS"]


# -- what an entry gives its agent ------------------------------------------------------------------------------------


async def test_persona_tools_setup_and_budgets_come_from_the_entry(module, runtime):
    async def setup(scope, agent):
        scope.prompt.section("more", f"You are {agent.id}.")

    def count(word: str) -> int:
        """Count the letters."""
        return len(word)

    module.setup, module.count = setup, count
    model = ScriptedAdapter([text("ok")])
    runtime.llm.register(["scripted"], model)
    async with runtime:
        [handle] = await runtime.agents.start(
            [
                {
                    "id": "a",
                    "sessionId": "exact",
                    "provider": "scripted",
                    "model": "m",
                    "maxTokens": 50,
                    "maxSteps": 3,
                    "maxParallelToolCalls": 2,
                    "persona": "Be brief.",
                    "tools": ["declared_parts:count"],
                    "setup": "declared_parts:setup",
                    "cwd": "/tmp",
                }
            ]
        )
        handle.agent.followup("hi")
        await handle.agent.when_idle()
        request = model.requests[0]
        assert request.messages[0].text == "Be brief.\n\nYou are exact."
        assert [each["name"] for each in request.tools] == ["count"]
        assert request.config["maxTokens"] == 50
        assert handle.agent.session.header.cwd == "/tmp"
        assert handle.agent.options.budget.steps == 3
        assert handle.agent.max_parallel_tool_calls == 2


@pytest.mark.parametrize("setup", ["declared_parts:missing", "no_such_module:setup", "declared_parts:broken"])
async def test_a_setup_that_fails_is_a_failed_start_that_leaves_nothing(module, runtime, setup):
    async def broken(scope, agent):
        raise ValueError("no")

    module.broken = broken
    heard = failures_of(runtime)
    async with runtime:
        assert await runtime.agents.start([{"id": "a", "sessionId": "exact", "setup": setup}]) == []
        assert [each.session_id for each in heard] == ["exact"]
        assert runtime.agents.list() == []


# -- what is refused before anything starts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            [{"id": "a", "sessionId": "x", "resumeSessionId": "y"}],
            'agent "a": sessionId and resumeSessionId are mutually exclusive',
        ),
        (
            [{"id": "a", "sessionId": "x"}, {"id": "b", "resumeSessionId": "x"}],
            'agents "a" and "b" use duplicate exact session identity "x"',
        ),
        (
            [{"id": "a", "stable": True}, {"id": "b", "sessionId": "a-session"}],
            'agents "a" and "b" use duplicate exact session identity "a-session"',
        ),
        (
            [{"id": "a", "stable": True, "sessionId": "x"}],
            'agent "a": stable names a session by itself: leave sessionId and resumeSessionId out',
        ),
        ([{"id": ""}], "declared agent: id must not be empty"),
        ([{}], "declared agent: id: Field required"),
        ([{"id": "a", "sesionId": "x"}], "declared agent: sesionId: Extra inputs are not permitted"),
        ([{"id": "a", "maxSteps": "3"}], "declared agent: maxSteps: Input should be a valid integer"),
        (
            [{"id": "a", "maxParallelToolCalls": 0}],
            "agent maxParallelToolCalls must be a positive safe integer, got 0",
        ),
        ([{"id": "a", "setup": "module"}], "agent \"a\": 'module' is no import path: write it as package.module:name"),
        ([{"id": "a", "sessionId": "../x"}], "session id '../x' is not usable"),
        ([{"id": "a", "sessionId": ""}], "session id '' is not usable"),
        ([{"id": "a b"}], "session id 'a b-session-"),
    ],
)
async def test_a_configuration_that_is_wrong_starts_nothing(runtime, entries, message):
    heard = failures_of(runtime)
    async with runtime:
        with pytest.raises(InputError) as failure:
            await runtime.agents.start([{"id": "good"}, *entries])
        assert failure.value.message.startswith(message)
        assert "\n" not in failure.value.message
        assert runtime.agents.list() == []
    assert heard == []


# -- ends -----------------------------------------------------------------------------------------------------------------


async def test_what_fails_because_the_runtime_is_left_is_not_told(module, caplog):
    began = anyio.Event()

    async def endless(scope, agent):
        began.set()
        await anyio.sleep_forever()

    module.endless = endless
    runtime = Runtime()
    heard = failures_of(runtime)
    answers = []
    async with anyio.create_task_group() as group:
        async with runtime:

            async def start():
                answers.append(await runtime.agents.start([{"id": "a", "setup": "declared_parts:endless"}]))

            group.start_soon(start)
            await began.wait()
        await anyio.wait_all_tasks_blocked()
    assert answers == [[]]
    assert heard == []
    assert "not started" not in caplog.text


async def test_a_start_that_is_cancelled_leaves_nothing(module, runtime):
    began = anyio.Event()

    async def endless(scope, agent):
        began.set()
        await anyio.sleep_forever()

    module.endless = endless
    async with runtime:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                declared = [{"id": "a"}, {"id": "b", "setup": "declared_parts:endless"}]
                group.start_soon(runtime.agents.start, declared)
                await began.wait()
                scope.cancel()
        assert runtime.agents.list() == []


# -- files ------------------------------------------------------------------------------------------------------------------

TOML = """
[[agents]]
id = "analyst"
provider = "scripted"
model = "m"
stable = true
persona = "Be brief."

[[agents]]
id = "critic"
max_cost = 0.5
"""


def test_agents_are_read_from_toml_and_json(tmp_path):
    toml, as_json = tmp_path / "agents.toml", tmp_path / "agents.json"
    toml.write_text(TOML)
    entries = read_agents(toml)
    assert [(each.id, each.exact_session_id, each.max_cost) for each in entries] == [
        ("analyst", "analyst-session", None),
        ("critic", None, 0.5),
    ]
    as_json.write_text(json.dumps({"agents": [each.model_dump(by_alias=True) for each in entries]}))
    assert read_agents(as_json) == entries


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.toml", b"agents = ["),
        ("a.json", b"{"),
        ("a.json", b"[]"),
        ("a.json", b'{"agents": {}}'),
        ("a.json", b'{"agents": [1]}'),
        ("a.toml", b""),
        ("a.toml", b"\xff"),
        ("a.toml", None),
    ],
)
def test_a_file_that_declares_no_agents_is_named(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as failure:
        read_agents(tmp_path / name)
    assert failure.value.code == "INVALID_CONFIG"
    assert name in failure.value.message
    assert "\n" not in failure.value.message


def test_an_entry_that_was_checked_may_be_given_again():
    entry = DeclaredAgent(id="a", session_id="x")
    assert declared_agents([entry]) == [entry]


class SlowToClose(MemoryStore):
    """Closing takes its time here."""

    async def create(self, header):
        handle = await super().create(header)
        close = handle.close

        async def slowly():
            await anyio.sleep(0.1)
            await close()

        handle.close = slowly
        return handle
