"""Making agents: what is chosen, what is refused, and that a refusal leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import nbagent
from nbagent.errors import InputError, LifecycleError, NbagentError, StorageError
from nbagent.notebook.host import host
from nbagent.notebook.roster import roster

FOLDER = "talk.nbagent"


def create(name: str | None = "analyst", **options: Any) -> Any:
    return nbagent.create(name, session_dir=options.pop("session_dir", FOLDER), **options)


def refused(code: str, name: str | None = "analyst", **options: Any) -> NbagentError:
    before = roster.names
    with pytest.raises(NbagentError) as raised:
        create(name, **options)
    assert raised.value.code == code, str(raised.value)
    assert len(str(raised.value).splitlines()) <= 2
    assert roster.names == before
    return raised.value


@nbagent.tool
def echo(x: int) -> str:
    """Say it again."""
    return f"x={x}"


def test_without_a_model_and_without_keys_the_demo_answers(home: Path) -> None:
    agent = create()
    assert agent.model == "demo/demo"
    reply = agent.run("hello")
    assert "demo" in reply.text
    assert agent.session.path == home / FOLDER / f"{agent.id}.jsonl"
    assert agent.id.startswith("analyst-session-")
    assert json.loads(agent.session.path.read_text().splitlines()[0])["cwd"] == str(home)


def test_a_key_chooses_its_route(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-not-a-real-key")
    assert create().model.startswith("deepseek/")


def test_a_named_model_is_never_replaced_by_the_demo(home: Path) -> None:
    for model in ("deepseek", "openai/gpt-5-mini"):
        assert "API_KEY" in str(refused("MISSING_KEY", model=model))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"model": "nowhere/x"}, "UNKNOWN_PROVIDER"),
        ({"model": "demo/xyz"}, "UNKNOWN_MODEL"),
        ({"model": ""}, "INVALID_MODEL"),
        ({"model": "custom/m"}, "MISSING_BASE_URL"),
        ({"base_url": "http://127.0.0.1:1"}, "INVALID_OPTION"),
        ({"model": "demo", "base_url": "http://127.0.0.1:1"}, "INVALID_OPTION"),
        ({"tools": ["nope"]}, "UNKNOWN_TOOL"),
        ({"tools": [echo, echo]}, "DUPLICATE_TOOL"),
        ({"tools": [3]}, "INVALID_TOOL"),
        ({"max_tokens": 0}, "INVALID_OPTION"),
        ({"parallel": True}, "INVALID_OPTION"),
        ({"cwd": "no such folder"}, "INVALID_OPTION"),
        ({"session": "a", "resume": True}, "CONFLICTING_OPTIONS"),
        ({"session": "../escape"}, "INVALID_SESSION_ID"),
        ({"session": ""}, "INVALID_SESSION_ID"),
        ({"resume": "missing"}, "SESSION_NOT_FOUND"),
        ({"resume": True}, "SESSION_NOT_FOUND"),
    ],
    ids=str,
)
def test_a_wrong_option_makes_nothing(home: Path, options: dict[str, Any], code: str) -> None:
    refused(code, **options)
    assert not (home / FOLDER).exists()


@pytest.mark.parametrize("name", ["1x", "two words", "a-b", "", "class", "print"])
def test_a_name_must_be_usable_as_a_variable(home: Path, name: str) -> None:
    refused("INVALID_NAME", name)


def test_without_a_name_a_free_one_is_taken(home: Path) -> None:
    assert [create(None).name, create(None).name] == ["agent1", "agent2"]


def test_an_unwritable_place_is_refused_before_anything_is_made(home: Path) -> None:
    (home / "file").touch()
    error = refused("STORAGE_UNAVAILABLE", session_dir="file/sessions")
    assert "--session-dir" in str(error)


def test_a_system_prompt_comes_from_text_file_or_function(home: Path) -> None:
    def prompt() -> str:
        return "Be exact."

    for system, expected in (("Be brief.", "Be brief."), (prompt, "Be exact.")):
        agent = create(system=system)
        agent.run("hi")
        assert agent.session.messages()[0].text == expected


def test_session_makes_once_and_then_goes_on(home: Path) -> None:
    first = create(session="talk")
    first.run("one")
    first.dispose()
    second = create(session="talk")
    second.run("two")
    assert second.turns == 2
    assert [message.text for message in second.session.messages() if message.role == "user"] == ["one", "two"]


def test_resume_takes_the_last_session_of_the_name(home: Path) -> None:
    old = create()
    old.run("one")
    other = create("writer")
    other.run("elsewhere")
    for agent in (old, other):
        agent.dispose()
    assert create(resume=True).id == old.id
    error = refused("SESSION_NOT_FOUND", "critic", resume=True)
    assert other.id in str(error)


def test_a_live_name_is_replaced_and_its_input_kept(home: Path) -> None:
    first = create()
    first.run("one")
    first.inject("remember this")
    second = create()
    assert first.status == "disposed"
    assert roster.get("analyst") is second
    assert second.id != first.id
    back = create(session=first.id)
    assert [each.text for each in back.inbox.pending] == ["remember this"]


def test_a_live_name_can_reopen_its_own_session(home: Path) -> None:
    first = create(session="talk")
    first.run("one")
    second = create(session="talk")
    assert second.turns == 1
    unwritten = create("writer", session="fresh")
    assert create("writer", session="fresh").id == unwritten.id


def test_a_session_that_another_name_holds_is_refused(home: Path) -> None:
    create(session="talk").run("one")
    assert "analyst" in str(refused("SESSION_ALREADY_EXISTS", "writer", session="talk"))
    assert roster.get("analyst").status == "idle"  # type: ignore[union-attr]


def test_a_failed_replacement_keeps_the_agent(home: Path) -> None:
    first = create()
    refused("UNKNOWN_TOOL", tools=["nope"])
    refused("SESSION_NOT_FOUND", resume="missing")
    refused("MISSING_KEY", model="deepseek")
    assert roster.get("analyst") is first
    assert first.status == "idle"


def test_a_session_keeps_its_model_when_it_goes_on(home: Path) -> None:
    agent = create(session="talk", model="custom/m", base_url="http://127.0.0.1:1/v1")
    agent.host.call(agent.core.session.append, "turn/start", {"turn": 1})
    agent.host.call(agent.core.session.append, "step/start", {"turn": 1, "step": 1})
    config = {"provider": "custom", "model": "m"}
    agent.host.call(
        agent.core.session.append,
        "request/header",
        {"reason": "initial", "header": {"config": config}, "turn": 1, "step": 1},
    )
    agent.dispose()
    refused("MISSING_BASE_URL", session="talk")
    again = create(session="talk", base_url="http://127.0.0.1:1/v1")
    assert again.model == "custom/m"


def test_a_session_locked_elsewhere_names_its_holder(home: Path) -> None:
    code = f"""
import nbagent, sys
agent = nbagent.create("analyst", session="talk", session_dir={FOLDER!r})
agent.run("hi")
print("ready", flush=True)
sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        error = refused("SESSION_LOCKED", session="talk")
        assert str(process.pid) in str(error)
        process.stdin.close()
    assert create(session="talk").turns == 1


def test_a_damaged_session_is_refused_and_left_as_it_is(home: Path) -> None:
    agent = create(session="talk")
    agent.run("hi")
    agent.dispose()
    path = home / FOLDER / "talk.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[3] = lines[3][:20] + "\n"
    path.write_text("".join(lines))
    error = refused("SESSION_DAMAGED", session="talk")
    assert "talk.jsonl" in str(error)
    assert path.read_text() == "".join(lines)


def test_a_torn_tail_is_dropped_and_said(home: Path) -> None:
    from nbagent.notebook.creation import CreateOptions, create_agent

    agent = create(session="talk")
    agent.run("hi")
    agent.dispose()
    path = home / FOLDER / "talk.jsonl"
    with path.open("a") as file:
        file.write('{"type":"turn/sta')
    created = create_agent("analyst", CreateOptions(session="talk", session_dir=FOLDER))
    assert created.resumed
    assert created.dropped_tail
    assert created.agent.run("again").turn == 2


def test_agents_are_made_from_any_thread_but_their_own(home: Path) -> None:
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(create()))
    thread.start()
    thread.join()
    assert made[0].run("hi").turn == 1
    with pytest.raises(LifecycleError) as raised:
        host().call(create, "writer")
    assert raised.value.code == "WOULD_DEADLOCK"


@pytest.mark.anyio
async def test_acreate_works_on_every_loop(home: Path) -> None:
    agent = await nbagent.acreate("analyst", session_dir=FOLDER)
    assert (await agent.arun("hi")).turn == 1
    with pytest.raises(InputError):
        await nbagent.acreate("print", session_dir=FOLDER)


def test_tools_are_found_by_name(shell: Any) -> None:
    shell.run_cell(
        "import nbagent\n@nbagent.tool\ndef look():\n    'Look.'\n    return 'seen'\ndef plain(x: int) -> int:\n    return x\nvalue = 3"
    )
    assert create(tools=["look", "plain", echo]).tools == ["echo", "look", "plain"]
    assert '"look"' in str(refused("UNKNOWN_TOOL", tools=["lok"]))
    assert "int" in str(refused("UNKNOWN_TOOL", tools=["value"]))
    assert isinstance(refused("UNKNOWN_TOOL", tools="look,nope"), InputError)


def test_a_name_is_bound_in_the_namespace_and_only_over_agents(shell: Any) -> None:
    agent = create()
    assert shell.user_ns["analyst"] is agent
    shell.user_ns["data"] = 3
    refused("NAME_TAKEN", "data")
    assert shell.user_ns["data"] == 3
    second = create()
    assert shell.user_ns["analyst"] is second
    second.dispose()
    assert "analyst" not in shell.user_ns
    assert isinstance(refused("SESSION_NOT_FOUND", resume="x"), StorageError)
