"""Tab knows verbs, agents, options and their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter

import nbagent
from nbagent.notebook.completion import candidates
from nbagent.notebook.verbs import CELL, VERBS
from nbagent.testing import text


def test_verbs_are_offered_first(home: Any) -> None:
    assert candidates("%agent ") == list(VERBS)
    assert candidates("%agent st") == ["steer"]
    assert candidates("  %agent ca") == ["cancel"]


@pytest.mark.parametrize(
    "line", ["%agents ", "agent ", "x = %agent ", "%agent", "%agent nonsense ", "%agent create a --system 'open"]
)
def test_other_lines_get_nothing(home: Any, line: str) -> None:
    assert not candidates(line)


def test_names_and_options_are_offered_where_they_can_stand(scripted: Callable[..., Any]) -> None:
    scripted(text("x"), name="analyst")
    scripted(text("x"), name="writer")
    assert candidates("%agent send ") == ["analyst", "writer"]
    assert candidates("%agent send wr") == ["writer"]
    assert candidates("%agent send analyst --") == ["--bg"]
    assert candidates("%agent cancel analyst ") == ["--keep-inbox"]
    assert candidates("%%agent an") == ["analyst"]
    assert candidates("%%agent analyst --") == [option.name for option in CELL.options]
    assert candidates("%%agent analyst --bg --s") == []
    assert candidates("%agent list ") == []
    assert "--resume" not in (candidates("%agent create a --session s --") or [])


def test_a_text_is_nobodys_business(scripted: Callable[..., Any]) -> None:
    scripted(text("x"), name="analyst")
    assert candidates("%agent send analyst what is an") is None


def test_values_of_options_are_offered(shell: Any) -> None:
    shell.user_ns["lookup"] = nbagent.tool(name="lookup")(lambda: None)
    shell.user_ns["persona"] = "Be brief."
    shell.user_ns["number"] = 3
    assert candidates("%agent create a --model d") == ["deepseek/deepseek-flash", "demo"]
    assert candidates("%agent create a --effort ") == ["low", "medium", "high"]
    assert candidates("%agent create a --system-var per") == ["persona"]
    assert candidates("%agent create a --system-var num") == []
    assert candidates("%agent create a --tools lo") == ["lookup"]
    assert candidates("%agent create a --tools other,lo") == ["other,lookup"]


def test_stored_sessions_are_offered(shell: Any) -> None:
    agent = nbagent.create("analyst", session="my-session", session_dir="talk.nbagent")
    agent.run("hello")
    assert candidates("%agent create b --session my") == ["my-session"]
    assert candidates("%agent create b --resume ") == ["my-session"]


@pytest.mark.parametrize(
    ("line", "matches"),
    [
        ("%agent cre", ["create"]),
        ("%agent create a --mo", ["--model"]),
        ("%agent create a --model deepseek/d", ["deepseek/deepseek-flash"]),
        ("%age", ["%agent", "%%agent"]),
    ],
)
def test_the_shell_completes_whole_words(shell: Any, line: str, matches: list[str]) -> None:
    with provisionalcompleter():
        completions = list(shell.Completer.completions(line, len(line)))
    assert [line[: each.start] + each.text for each in completions] == [
        line[: len(line) - len(line.rsplit(" ", maxsplit=1)[-1])] + match for match in matches
    ]
