"""What a line of `%agent` says."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.errors import InputError
from nbagent.notebook.parser import help_text, parse_cell, parse_line, split_words
from nbagent.notebook.verbs import CELL, VERBS

AGENTS = ("analyst", "writer")


def parsed(line: str) -> Any:
    command = parse_line(line, AGENTS)
    assert command is not None
    return command


def refused(line: str) -> InputError:
    with pytest.raises(InputError) as raised:
        parse_line(line, AGENTS)
    assert len(str(raised.value).splitlines()) == 1
    return raised.value


@pytest.mark.parametrize(
    ("line", "name", "text"),
    [
        ("send analyst hello", "analyst", "hello"),
        ("send hello there", None, "hello there"),
        ("send analist hello", None, "analist hello"),
        ("send analyst  two  spaces ", "analyst", "two  spaces "),
        ("send analyst what is {x} and $y, !z, %w? \\", "analyst", "what is {x} and $y, !z, %w? \\"),
        ("send analyst don't say \"no", "analyst", "don't say \"no"),
        ("send analyst analyst is your name", "analyst", "analyst is your name"),
        ("send analyst -- --bg is an option", "analyst", "--bg is an option"),
        ("send analyst - an item", "analyst", "- an item"),
        ("send analyst -5 + 3", "analyst", "-5 + 3"),
        ("send analyst --- a rule", "analyst", "--- a rule"),
        ("steer writer shorter?", "writer", "shorter?"),
        ("inject the date is today", None, "the date is today"),
    ],
)
def test_a_text_is_what_is_left_of_the_line_as_typed(line: str, name: str | None, text: str) -> None:
    command = parsed(line)
    assert (command.name, command.text, dict(command.options)) == (name, text, {})


@pytest.mark.parametrize("line", ["send --bg analyst hi", "send analyst --bg hi"])
def test_options_of_a_text_verb_come_before_the_text(line: str) -> None:
    command = parsed(line)
    assert (command.name, command.text, dict(command.options)) == ("analyst", "hi", {"bg": True})
    assert parsed("send analyst hi --bg").text == "hi --bg"


def test_an_unknown_option_before_a_text_says_how_to_send_such_a_text() -> None:
    error = refused("send analyst --fast hello")
    assert error.code == "UNKNOWN_OPTION"
    assert '"--"' in str(error)


@pytest.mark.parametrize("line", ["send", "send analyst", "send --bg", "steer analyst   "])
def test_a_text_verb_without_text_is_an_empty_prompt(line: str) -> None:
    assert refused(line).code == "EMPTY_PROMPT"


def test_create_takes_its_options_in_any_order() -> None:
    command = parsed(
        "create --model custom/m analyst --base-url=http://127.0.0.1:1/v1 --max-tokens 5 --tools a,b "
        '--system \'Be brief, "always".\' --parallel 2 --session-dir "my files"'
    )
    assert command.name == "analyst"
    assert dict(command.options) == {
        "model": "custom/m",
        "base_url": "http://127.0.0.1:1/v1",
        "max_tokens": 5,
        "tools": ["a", "b"],
        "system": 'Be brief, "always".',
        "parallel": 2,
        "session_dir": "my files",
    }


def test_resume_takes_an_id_or_none() -> None:
    assert parsed("create analyst --resume").options["resume"] is True
    assert parsed("create analyst --resume --model demo").options["resume"] is True
    assert parsed("create analyst --resume s1").options["resume"] == "s1"


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("creat analyst", "UNKNOWN_VERB", '"create"'),
        ("analyst hello", "UNKNOWN_VERB", "%agent send analyst"),
        ("create", "MISSING_NAME", "NAME"),
        ("create a b", "UNEXPECTED_ARGUMENT", '"b"'),
        ("create a --tools x, y", "INVALID_OPTION", "commas"),
        ("create a --modle demo", "UNKNOWN_OPTION", '"--model"'),
        ("create a --image x", "UNKNOWN_OPTION", "-h lists them"),
        ("create a -m demo", "UNKNOWN_OPTION", "-m"),
        ("create a --model", "INVALID_OPTION", "PROVIDER/MODEL"),
        ("create a --model demo --model demo", "INVALID_OPTION", "twice"),
        ("create a --max-tokens many", "INVALID_OPTION", "many"),
        ("create a --max-tokens 0", "INVALID_OPTION", "above 0"),
        ("create a --system 'open", "INVALID_OPTION", "not closed"),
        ("create a --session s --resume", "CONFLICTING_OPTIONS", "--session and --resume"),
        ("create a --system x --system-file y", "CONFLICTING_OPTIONS", "--system"),
        ("wait --timeout soon", "INVALID_OPTION", "seconds"),
        ("wait --timeout -1", "INVALID_OPTION", "seconds"),
        ("cancel --keep-inbox=yes", "INVALID_OPTION", "no value"),
        ("list --all", "UNKNOWN_OPTION", "takes none"),
        ("list analyst", "UNEXPECTED_ARGUMENT", '"analyst"'),
        ("show --turn 1 --all", "CONFLICTING_OPTIONS", "--all"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(line: str, code: str, says: str) -> None:
    error = refused(line)
    assert error.code == code
    assert says in str(error)


def test_quotes_hold_words_together_and_an_apostrophe_is_a_letter() -> None:
    words = [word.text for word in split_words("""a 'b c' don't "say \\"x\\"" --k='v w' C:\\dir""")]
    assert words == ["a", "b c", "don't", 'say "x"', "--k=v w", "C:\\dir"]


def test_a_quoted_word_is_never_an_option() -> None:
    assert parsed("create a --system '--model'").options["system"] == "--model"


def test_a_cell_takes_one_name_and_its_options() -> None:
    command = parse_cell("analyst --bg --as reply")
    assert (command.name, dict(command.options)) == ("analyst", {"bg": True, "as": "reply"})
    assert parse_cell("").name is None
    for line, code in (
        ("analyst hello", "UNEXPECTED_ARGUMENT"),
        ("--steer --bg", "CONFLICTING_OPTIONS"),
        ("--steer --inject", "CONFLICTING_OPTIONS"),
        ("--into int", "UNKNOWN_OPTION"),
    ):
        with pytest.raises(InputError) as raised:
            parse_cell(line)
        assert raised.value.code == code


@pytest.mark.parametrize("verb", [*VERBS.values(), CELL], ids=lambda verb: verb.name)
def test_every_verb_has_help_that_names_its_options(verb: Any) -> None:
    text = help_text(verb)
    assert verb.summary in text
    assert all(option.name in text and option.help in text for option in verb.options)
    command = parse_cell("-h") if verb is CELL else parsed(f"{verb.name} -h")
    assert command.help
    assert command.verb is verb


def test_no_verb_asks_for_the_list_of_verbs() -> None:
    assert parse_line("", AGENTS) is None
    assert parse_line("  -h", AGENTS) is None
    assert all(f"  {name} " in help_text(None) for name in VERBS)
