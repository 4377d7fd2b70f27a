"""Agent cells and lines become calls; everything else stays as it is."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from nbagent.notebook.transformer import AWAITED, install, remove, rewrite, transform


def rewritten(cell: str, *, can_await: bool = True) -> str:
    return "".join(rewrite(cell.splitlines(keepends=True), can_await=can_await))


def call(cell: str, **options: Any) -> tuple[str, list[str], bool]:
    """Which function the only statement of a rewritten cell calls, with which arguments, and whether it is awaited."""
    (statement,) = ast.parse(rewritten(cell, **options), mode="exec").body
    assert isinstance(statement, ast.Expr)
    value = statement.value
    awaited = isinstance(value, ast.Await)
    made = value.value if isinstance(value, ast.Await) else value
    assert isinstance(made, ast.Call)
    assert isinstance(made.func, ast.Attribute)
    return made.func.attr, [ast.literal_eval(argument) for argument in made.args], awaited


BODIES = [
    "hello\n",
    ">>> x = 1\nIn [1]: y\n",
    "what is it?\n",
    "a line that goes on \\\nhere\n",
    "{} {x} $HOME !ls %time `ticks`\n",
    "  indented\n\n\ttabs\n",
    "'''quotes\"\"\" \\' \\n \\\\ \n",
    "%agent list\n%%agent\n",
    "ünïcödé 🙂 \u2028 end\n",
    "no line end",
]


@pytest.mark.parametrize("body", BODIES)
def test_the_body_of_an_agent_cell_is_verbatim(body: str) -> None:
    assert call(f"%%agent analyst --bg\n{body}") == ("run_cell_magic", ["agent", f"{AWAITED}analyst --bg", body], True)


@pytest.mark.parametrize("body", BODIES)
def test_where_no_await_can_stand_the_call_is_plain(body: str) -> None:
    assert call(f"%%agent analyst\n{body}", can_await=False) == ("run_cell_magic", ["agent", "analyst", body], False)


def test_an_agent_cell_may_begin_after_blank_lines_and_be_indented() -> None:
    assert call("\n  \n%%agent\nhi\n")[1] == ["agent", AWAITED, "hi\n"]
    assert call("  %%agent a\n  hi\n")[1] == ["agent", f"{AWAITED}a", "  hi\n"]


def test_an_empty_body_reaches_the_magic_which_says_what_is_wrong() -> None:
    assert call("%%agent analyst\n")[1][2] == "\n"
    assert call("%%agent analyst")[1][2] == "\n"


@pytest.mark.parametrize(
    "cell", ["%%agents a\nhi\n", "%%agent_x\nhi\n", "%%capture\n%agent list\n", "%%bash\n%agent list\n", "x = 1\n"]
)
def test_other_cells_are_left_alone(cell: str) -> None:
    assert rewritten(cell) == cell


@pytest.mark.parametrize(
    "text",
    [" send analyst what does df hold?", " send a b \\", " send 'open", ' send """', " send x # y", "  send  two  "],
)
def test_a_line_is_verbatim_and_awaited_when_its_verb_waits(text: str) -> None:
    assert call(f"%agent{text}\n") == ("run_line_magic", ["agent", f"{AWAITED}{text}"], True)


@pytest.mark.parametrize("text", [" list", " create analyst --tools a", " steer hurry?", "", " nonsense"])
def test_a_line_whose_verb_does_not_wait_is_a_plain_call(text: str) -> None:
    assert call(f"%agent{text}\n") == ("run_line_magic", ["agent", text], False)


def test_lines_among_python_are_found_where_statements_begin() -> None:
    cell = (
        "x = '''\n%agent list\n'''\n"
        "y = [\n%agent\n]\n"
        "z = 1 + \\\n%agent list\n"
        "# it's a comment (\n"
        "!echo don't (\n"
        "%agent send it's here?\n"
        'w = "a\'(" + f"{x["a"]}"\n'
        "if x:\n    %agent send later?\n"
        "%agents\n"
    )
    lines = rewritten(cell).splitlines()
    changed = [line for line in lines if "get_ipython" in line]
    assert changed == [
        f"await get_ipython().run_line_magic('agent', {AWAITED + ' send it' + chr(39) + 's here?'!r})",
        "    get_ipython().run_line_magic('agent', ' send later?')",
    ]
    assert [line for line in lines if line not in changed] == [line for line in cell.splitlines() if "send" not in line]


def test_a_text_with_an_open_quote_does_not_hide_the_next_line() -> None:
    lines = rewritten("%agent send what is '''\n%agent send and \"\n").splitlines()
    assert all("run_line_magic" in line for line in lines)


def test_a_wholly_indented_cell_awaits_at_its_own_top_level() -> None:
    lines = rewritten("    %agent send a\n    if x:\n        %agent send b\n").splitlines()
    assert lines[0].startswith("    await ")
    assert lines[2].startswith("        get_ipython()")


def test_installing_puts_it_first_and_only_once(shell: Any) -> None:
    install(shell)
    install(shell)
    assert shell.input_transformers_cleanup[0] is transform
    assert shell.input_transformers_cleanup.count(transform) == 1
    remove(shell)
    assert transform not in shell.input_transformers_cleanup


def test_a_terminal_still_asks_for_the_body_of_an_agent_cell(shell: Any) -> None:
    assert shell.check_complete("%%agent analyst")[0] == "incomplete"
    assert shell.check_complete("%%agent analyst\nhello\n\n")[0] == "complete"


def test_a_shell_that_does_not_await_gets_plain_calls(shell: Any) -> None:
    shell.autoawait = False
    assert not shell.transform_cell("%%agent a\nhi").startswith("await")
    shell.autoawait = True
    assert shell.transform_cell("%%agent a\nhi").startswith("await")
