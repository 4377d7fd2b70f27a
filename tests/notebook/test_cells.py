"""Cells and lines in a shell of this process, which no front end watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nbagent
from nbagent.notebook.extension import load_ipython_extension, unload_ipython_extension
from nbagent.notebook.roster import roster
from nbagent.testing import fail, tool_calls
from nbagent.testing import text as says


@pytest.fixture
def cell(shell: Any, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Run a cell that must succeed; answers what it printed."""

    def run(code: str) -> str:
        capsys.readouterr()
        result = shell.run_cell(code)
        printed = capsys.readouterr().out
        assert result.success, printed
        return printed

    return run


@pytest.fixture
def fault(shell: Any, capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[Any, str]]:
    """Run a cell that must fail; answers its exception and what was shown of it."""

    def run(code: str) -> tuple[Any, str]:
        capsys.readouterr()
        result = shell.run_cell(code)
        printed = capsys.readouterr().out
        assert not result.success
        return result.error_in_exec, printed

    return run


def test_the_first_minutes(cell: Any, home: Any) -> None:
    assert cell("%agent list") == "no agent yet: %agent create NAME makes one\n"
    welcome = cell("%agent create analyst")
    assert welcome.startswith("analyst is ready: demo model (no language model is connected;")
    assert str(home) not in welcome
    assert "session" not in welcome
    shown = cell("%%agent analyst\nhello\n")
    assert "> hello" in shown
    assert "demo" in shown
    assert cell("%agent list").splitlines()[1].split() == ["*", "analyst", "idle", "demo/demo", "1", "0"]


def test_the_same_cells_print_the_same_twice(cell: Any) -> None:
    cells = ["%agent create analyst", "%%agent\nhello", "%agent send what?", "%agent show --all", "%agent list"]
    assert [cell(each) for each in cells[1:]] if cell(cells[0]) else None
    first = [cell("%agent create analyst --session a"), *[cell(each) for each in cells[1:]]]
    second = [cell("%agent create analyst --session b"), *[cell(each) for each in cells[1:]]]
    assert first == second


@pytest.mark.parametrize(
    "prompt",
    [
        ">>> x = 1\nIn [2]: y",
        "what is it?",
        "{x} $HOME !ls %time",
        "a \\\nb",
        "'''\"\"\"",
        "  indented\n\n",
        "%agent list",
    ],
)
def test_a_prompt_arrives_as_typed(cell: Any, scripted: Any, prompt: str) -> None:
    agent = scripted(says("ok"))
    cell(f"%%agent analyst\n{prompt}\n")
    assert agent.session.messages()[0].text == prompt


@pytest.mark.parametrize(
    "prompt", ["what is it?", "{x} $HOME", "a \\", "don't", '"""', "two  spaces ", "x # y", "%agent"]
)
def test_a_line_arrives_as_typed_also_among_others(cell: Any, scripted: Any, prompt: str) -> None:
    agent = scripted(says("ok"), says("ok"), says("ok"))
    cell(f"%agent send analyst {prompt}")
    cell(f"x = 1\n%agent send analyst {prompt}\ny = 2")
    cell(f"if True:\n    %agent send analyst {prompt}")
    assert [message.text for message in agent.session.messages() if message.role == "user"] == [prompt] * 3


def test_nothing_is_left_as_the_cells_result(cell: Any, shell: Any, scripted: Any) -> None:
    scripted(says("ok"), says("ok"))
    for code in ("%%agent\nhi", "%agent send hi", "%agent list"):
        assert shell.run_cell(code).result is None


def test_a_tool_call_is_part_of_the_output(cell: Any, shell: Any, scripted: Any) -> None:
    @nbagent.tool
    def echo(x: int) -> str:
        """Say it again."""
        return f"x={x}"

    scripted(tool_calls(("c1", "echo", {"x": 1})), says("done"), tools=[echo])
    shown = cell("%%agent\ncall it")
    assert "echo" in shown
    assert "x=1" in shown
    assert "echo" in cell("%agent tools")
    assert "Say it again." in cell("%agent tools analyst")


def test_a_failed_turn_shows_its_transcript_and_fails_the_cell(fault: Any, cell: Any, scripted: Any) -> None:
    scripted(fail("wrong key", code="AUTH"), says("ok"))
    error, shown = fault("%%agent analyst --as reply\nhi")
    assert error.code == "AUTH"
    assert error.reply.reason["kind"] == "error"
    assert "> hi" in shown
    assert shown.rstrip().splitlines()[-1] == "TurnError [AUTH]: wrong key"
    assert "'error'" in cell("print(reply.reason)")
    assert "ok" in cell("%%agent\nagain")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("%agent nonsense", "UNKNOWN_VERB"),
        ("%agent create 1x", "INVALID_NAME"),
        ("%agent create b --tools nope", "UNKNOWN_TOOL"),
        ("%agent create b --model nowhere/x", "UNKNOWN_PROVIDER"),
        ("%agent create b --model deepseek", "MISSING_KEY"),
        ("%agent create b --system-var missing", "INVALID_OPTION"),
        ("%agent create b --system-file missing.md", "INVALID_OPTION"),
        ("%agent send", "EMPTY_PROMPT"),
        ("%agent show --turn 9", "UNKNOWN_TURN"),
        ("%agent use nobody", "UNKNOWN_AGENT"),
        ("%%agent nobody\nhi", "UNKNOWN_AGENT"),
        ("%%agent create b\nhi", "UNEXPECTED_ARGUMENT"),
        ("%%agent list\nhi", "UNKNOWN_AGENT"),
        ("%%agent analyst", "EMPTY_PROMPT"),
        ("%%agent analyst\n\n  \n", "EMPTY_PROMPT"),
        ("%%agent --fmt\n{missing}", "UNDEFINED_NAME"),
        ("%%agent --fmt\n{open", "INVALID_FORMAT"),
        ("%%agent --as 1x\nhi", "INVALID_NAME"),
        ("%%agent --image fig\nhi", "UNKNOWN_OPTION"),
    ],
)
def test_a_mistake_is_shown_as_one_or_two_lines_and_sends_nothing(
    fault: Any, scripted: Any, code: str, expected: str
) -> None:
    agent = scripted(says("ok"))
    error, shown = fault(code)
    assert error.code == expected
    assert len(shown.rstrip().splitlines()) <= 2
    assert len(agent.session.events) == 0
    assert roster.names == ["analyst"]


def test_as_stores_the_reply_and_fmt_fills_names_in(cell: Any, scripted: Any) -> None:
    agent = scripted(says("forty"))
    cell("x = [1, 2]")
    cell("%%agent --fmt --as answer\nsum of {x[0]} and {x[1]:>3} in {{braces}}")
    assert agent.session.messages()[0].text == "sum of 1 and   2 in {braces}"
    assert cell("print(answer.text, answer.turn)") == "forty 1\n"


def test_a_background_cell_returns_at_once_and_wait_publishes(cell: Any, scripted: Any) -> None:
    scripted(says("in the background"), says("second"))
    assert cell("%%agent analyst --bg --as later\ngo") == ""
    shown = cell("%agent wait analyst")
    assert "in the background" in shown
    assert cell("print(later.text)") == "in the background\n"
    assert cell("%agent wait") == "analyst is idle\n"
    assert cell("%agent send --bg analyst again") == ""
    assert "second" in cell("%agent wait --timeout 5")


def test_steer_and_inject_say_what_became_of_the_message(cell: Any, scripted: Any) -> None:
    agent = scripted(says("ok"), says("ok"))
    assert "with the next prompt" in cell("%agent inject the date is today")
    assert "begins a turn" in cell("%%agent --steer\nhello")
    agent.wait()
    assert [message.text for message in agent.session.messages() if message.role == "user"] == [
        "the date is today",
        "hello",
    ]


def test_cancel_says_how_much_remains(cell: Any, scripted: Any) -> None:
    agent = scripted(says("ok"))
    cell("%agent inject one\n%agent inject two")
    assert cell("%agent cancel --keep-inbox") == "analyst: nothing was running; 2 messages remain pending\n"
    assert cell("%agent cancel") == "analyst: nothing was running; 2 messages dropped, 0 messages remain pending\n"
    assert agent.inbox.pending == []


def test_capture_and_time_hold_the_cell_until_the_turn_is_over(cell: Any, scripted: Any) -> None:
    scripted(says("captured"), says("timed"), says("line"))
    assert cell("%%capture kept\n%%agent analyst\n>>> hi?") == ""
    assert "captured" in cell("kept.outputs[0]._repr_mimebundle_()[0]['text/plain']")
    shown = cell("%%time\n%%agent analyst\nhi")
    assert "timed" in shown
    assert "Wall time" in shown
    assert cell("%%capture\n%agent send really?") == ""
    assert "> really?" in cell("%agent show")


def test_the_agent_used_last_is_meant(cell: Any, scripted: Any) -> None:
    scripted(says("from writer"), name="writer")
    scripted(says("from analyst"))
    assert "writer" in cell("%agent use writer")
    assert "from writer" in cell("%%agent\nhi")
    assert "from analyst" in cell("%%agent analyst\nhi")
    assert cell("%agent info").splitlines()[0].split() == ["name", "analyst"]
    assert cell("%agent dispose").startswith("analyst is disposed")
    assert cell("%agent info").splitlines()[0].split() == ["name", "writer"]


def test_sessions_lists_what_is_stored_the_damaged_too(cell: Any, home: Any) -> None:
    assert cell("%agent sessions --session-dir talk.nbagent") == "no session is stored here yet\n"
    cell("%agent create analyst --session good --session-dir talk.nbagent")
    cell("%%agent\nhow are you\ntoday")
    cell("%agent create analyst --session bad --session-dir talk.nbagent")
    cell("%%agent\nx\n")
    cell("%agent dispose")
    path = home / "talk.nbagent" / "bad.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "broken\n", *lines[3:]]))
    rows = {line.split()[0]: line for line in cell("%agent sessions --session-dir talk.nbagent").splitlines()[1:]}
    assert rows["good"].split()[1] == "1"
    assert rows["good"].endswith("how are you today")
    assert "SESSION_DAMAGED" in rows["bad"]


def test_models_says_what_is_missing(cell: Any) -> None:
    shown = cell("%agent models")
    assert "set DEEPSEEK_API_KEY" in shown
    assert "demo" in shown


def test_help_is_printed(cell: Any) -> None:
    assert "%agent create NAME" in cell("%agent create -h")
    assert cell("%agent") == cell("%agent --help")
    assert "--bg" in cell("%%agent -h\nx")


def test_loading_twice_is_like_once_and_unloading_leaves_agents_alone(shell: Any, scripted: Any) -> None:
    agent = scripted(says("a"), says("b"))
    load_ipython_extension(shell)
    assert shell.run_cell("%%agent\nhi").success
    unload_ipython_extension(shell)
    unload_ipython_extension(shell)
    assert shell.find_line_magic("agent") is None
    assert not shell.Completer.custom_matchers
    assert roster.find(None) is agent
    load_ipython_extension(shell)
    assert shell.run_cell("%%agent\nhi").success
    assert agent.turns == 2


def test_reset_leaves_the_magics_working(cell: Any, scripted: Any) -> None:
    scripted(says("still here"))
    cell("%reset -f")
    assert "still here" in cell("%%agent analyst\nhi")
