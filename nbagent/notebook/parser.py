"""What a line of `%agent` or the head of `%%agent` says. Knows the table of verbs and which names are live; does nothing.

A text (of `send`, `steer`, `inject`) is what is left of the line, as typed. Everything else is split into words, where
quotes hold a word together and a backslash is an ordinary character.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from nbagent.errors import InputError
from nbagent.notebook.verbs import CELL, VERBS, Option, Verb

__all__ = ("Command", "Word", "help_text", "near", "parse_cell", "parse_line", "split_words")


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a line.

    Attributes:
        text: Without its quotes.
        start: Where it begins in the line.
        end: Where it ends.
        quoted: Whether it began with a quote, which makes it no option.
    """

    text: str
    start: int
    end: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class Command:
    """A parsed line.

    Attributes:
        verb: What is asked for.
        name: The agent's name, if one was given.
        options: By key (`max_tokens`); only those that were given.
        text: The text of a text verb, as typed.
        help: Whether the help of the verb is asked for.
    """

    verb: Verb
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    text: str = ""
    help: bool = False


def parse_line(line: str, agents: Collection[str]) -> Command | None:
    """What `%agent LINE` asks for; none when it asks for the list of verbs.

    Args:
        line: Everything after `%agent`.
        agents: Names of the live agents.

    Raises:
        InputError: `UNKNOWN_VERB`, `UNKNOWN_OPTION`, `INVALID_OPTION`, `CONFLICTING_OPTIONS`, `UNEXPECTED_ARGUMENT`,
            `MISSING_NAME`, `EMPTY_PROMPT`.
    """
    first = _next_word(line, 0)
    if first is None or first.text in {"-h", "--help"}:
        return None
    verb = VERBS.get(first.text)
    if verb is None:
        raise InputError(_unknown_verb(first.text, agents), code="UNKNOWN_VERB")
    return _parse_text(verb, line, first.end, agents) if verb.text else _parse_words(verb, line, first.end)


def parse_cell(line: str) -> Command:
    """What the head of a `%%agent` cell asks for; raises like `parse_line`."""
    return _parse_words(CELL, line, 0)


def split_words(line: str, start: int = 0) -> list[Word]:
    """The words of a line from `start`.

    Raises:
        InputError: `INVALID_OPTION`, a quote is not closed.
    """
    words: list[Word] = []
    while (word := _next_word(line, start)) is not None:
        words.append(word)
        start = word.end
    return words


def help_text(verb: Verb | None) -> str:
    """The help of a verb, or the list of verbs."""
    if verb is None:
        width = max(map(len, VERBS))
        rows = [f"  {each.name:<{width}}  {each.summary}" for each in VERBS.values()]
        return "\n".join(
            [
                "%agent VERB [NAME] ...",
                *rows,
                "",
                "%%agent [NAME] [OPTIONS] sends the cell as a prompt. NAME defaults to the agent used last.",
                "-h after a verb, or after %%agent, says more.",
            ]
        )
    heads = [f"{option.name} {option.metavar}".rstrip() for option in verb.options]
    width = max(map(len, heads), default=0)
    rows = [f"  {head:<{width}}  {option.help}" for head, option in zip(heads, verb.options, strict=True)]
    return "\n".join([verb.usage, f"  {verb.summary}", *(["", *rows] if rows else [])])


def near(word: str, known: Collection[str]) -> str:
    """` Did you mean "x"?` for the known word nearest to `word`, or nothing."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' Did you mean "{found[0]}"?' if found else ""


def _parse_text(verb: Verb, line: str, position: int, agents: Collection[str]) -> Command:
    name: str | None = None
    options: dict[str, Any] = {}
    while True:
        while position < len(line) and line[position].isspace():
            position += 1
        word = line[position:].split(maxsplit=1)[0] if position < len(line) else ""
        if word == "--":
            position += 2
            if line[position : position + 1].isspace():
                position += 1
            break
        if word in {"-h", "--help"}:
            return Command(verb, name, options, help=True)
        if word.startswith("--") and word[2:3].isalpha():
            found = _next_word(line, position)
            if found is None or verb.option(found.text) is None:
                raise InputError(
                    _unknown_option(verb, word) + ' Put "--" before a text that begins like an option.',
                    code="UNKNOWN_OPTION",
                )
            # Options of text verbs are flags: a value would be hard to tell from the text.
            options[_option(verb, word).key] = True
        elif word in agents and name is None:
            name = word
        else:
            break
        position += len(word)
    text = line[position:]
    if not text.strip():
        raise InputError(f"there is no text to send: %agent {verb.name} [NAME] TEXT", code="EMPTY_PROMPT")
    return Command(verb, name, options, text)


def _parse_words(verb: Verb, line: str, position: int) -> Command:
    words = split_words(line, position)
    name: str | None = None
    options: dict[str, Any] = {}
    given: list[str] = []
    while words:
        word = words.pop(0)
        if not word.quoted and word.text in {"-h", "--help"}:
            return Command(verb, name, options, help=True)
        if word.quoted or not word.text.startswith("-"):
            name = _accept_name(verb, name, word.text)
            continue
        head, equals, tail = word.text.partition("=")
        option = _option(verb, head)
        if option.name in given:
            raise InputError(f"{option.name} is given twice", code="INVALID_OPTION")
        given.append(option.name)
        options[option.key] = _value(option, tail if equals else None, words)
    for group in verb.exclusive:
        both = [each for each in given if each in group]
        if len(both) > 1:
            raise InputError(
                f"{both[0]} and {both[1]} do not go together: give one of them", code="CONFLICTING_OPTIONS"
            )
    if verb.takes == "new" and name is None:
        raise InputError(f"the name of the agent is missing: {verb.usage}", code="MISSING_NAME")
    return Command(verb, name, options)


def _accept_name(verb: Verb, name: str | None, word: str) -> str:
    if verb.takes == "nothing" or name is not None:
        hint = " A value with spaces needs quotes, a list of names only commas." if verb.options else ""
        raise InputError(f'unexpected "{word}": {verb.usage}.{hint}', code="UNEXPECTED_ARGUMENT")
    return word


def _option(verb: Verb, name: str) -> Option:
    option = verb.option(name)
    if option is None:
        raise InputError(_unknown_option(verb, name), code="UNKNOWN_OPTION")
    return option


def _value(option: Option, attached: str | None, words: list[Word]) -> Any:
    if option.kind == "flag":
        if attached is not None:
            raise InputError(f"{option.name} takes no value", code="INVALID_OPTION")
        return True
    text = attached
    if text is None and words and (words[0].quoted or not words[0].text.startswith("--")):
        text = words.pop(0).text
    if text is None:
        if option.kind == "optional-text":
            return True
        raise InputError(f"{option.name} wants a value: {option.name} {option.metavar}", code="INVALID_OPTION")
    match option.kind:
        case "count":
            if not text.isdecimal() or int(text) < 1:
                raise InputError(f'{option.name} wants a whole number above 0, got "{text}"', code="INVALID_OPTION")
            return int(text)
        case "seconds":
            return _seconds(option, text)
        case "names":
            names = [part.strip() for part in text.split(",")]
            if not all(names):
                raise InputError(f'{option.name} wants names with commas between, got "{text}"', code="INVALID_OPTION")
            return names
        case _:
            return text


def _seconds(option: Option, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(f'{option.name} wants a number of seconds, got "{text}"', code="INVALID_OPTION")
    return value


def _next_word(line: str, position: int) -> Word | None:
    while position < len(line) and line[position].isspace():
        position += 1
    if position >= len(line):
        return None
    start = position
    parts: list[str] = []
    opens = True  # a quote is one only where a value can begin, so that an apostrophe is a letter
    while position < len(line) and not line[position].isspace():
        letter = line[position]
        if opens and letter in "\"'":
            part, position = _quoted(line, position)
            parts.append(part)
            opens = False
            continue
        parts.append(letter)
        opens = letter in "=,"
        position += 1
    return Word("".join(parts), start, position, line[start] in "\"'")


def _quoted(line: str, position: int) -> tuple[str, int]:
    quote = line[position]
    start = position + 1
    end = line.find(quote, start)
    while end > start and line[end - 1] == "\\":
        end = line.find(quote, end + 1)
    if end < 0:
        raise InputError(f"the quote {line[position : position + 20]} is not closed", code="INVALID_OPTION")
    return line[start:end].replace(f"\\{quote}", quote), end + 1


def _unknown_option(verb: Verb, name: str) -> str:
    head = verb.usage.split(" [", maxsplit=1)[0].removesuffix(" NAME")
    if not verb.options:
        return f"{head} has no option {name}; it takes none."
    guess = near(name, [option.name for option in verb.options])
    return f"{head} has no option {name}.{guess} {head} -h lists them."


def _unknown_verb(word: str, agents: Collection[str]) -> str:
    if word in agents:
        return f'a verb comes first: %agent send {word} TEXT, or a cell that begins with "%%agent {word}"'
    return f'%agent has no verb "{word}".{near(word, VERBS)} %agent -h lists them.'
