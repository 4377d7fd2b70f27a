"""Tab in `%agent` lines and `%%agent` heads, from the same table that parses them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from nbagent.errors import InputError
from nbagent.notebook.parser import split_words
from nbagent.notebook.roster import roster
from nbagent.notebook.verbs import CELL, VERBS, Option, Verb

__all__ = ("candidates", "install", "remove")

_HEAD = re.compile(r"^\s*(%%?)agent(?=\s)")
_EFFORTS = ("low", "medium", "high")


def candidates(line: str) -> list[str] | None:
    """What may stand where a line ends.

    Args:
        line: The line up to the cursor, `%agent` included.

    Returns:
        Whole words that begin as the last word does; none when the line is not ours, or is text.
    """
    head = _HEAD.match(line)
    if head is None:
        return None
    rest = line[head.end() :]
    try:
        words = [word.text for word in split_words(rest)]
    except InputError:
        return None
    begun = "" if not words or rest[-1].isspace() else words.pop()
    if head[1] == "%%":
        found = _after_verb(CELL, words, begun)
    elif not words:
        found = VERBS
    else:
        verb = VERBS.get(words[0])
        found = _after_verb(verb, words[1:], begun) if verb is not None else None
    return None if found is None else [word for word in found if word.startswith(begun)]


def _after_verb(verb: Verb, words: list[str], begun: str) -> Iterable[str] | None:
    last = verb.option(words[-1]) if words else None
    if last is not None and last.kind != "flag":
        values = _values(last, begun)
        # An id after --resume may be left out, so options may follow as well.
        return values if last.kind != "optional-text" or not begun.startswith("-") else _options(verb, words)
    named = [word for word in words if not word.startswith("-")]
    if verb.text and any(word not in roster.names for word in named):
        return None
    if begun.startswith("-"):
        return _options(verb, words)
    names = roster.names if verb.takes == "agent" and not _has_name(verb, words) else []
    return names if begun or verb.text else [*names, *_options(verb, words)]


def _has_name(verb: Verb, words: list[str]) -> bool:
    taken = {index + 1 for index, word in enumerate(words) if (found := verb.option(word)) and found.kind != "flag"}
    return any(index not in taken and not word.startswith("-") for index, word in enumerate(words))


def _options(verb: Verb, words: list[str]) -> list[str]:
    given = set(words)
    barred = {name for group in verb.exclusive if given & set(group) for name in group}
    return [option.name for option in verb.options if option.name not in given | barred]


def _values(option: Option, begun: str) -> Iterable[str] | None:
    source = _SOURCES.get(option.values)
    if source is None:
        return None
    values = source()
    if option.kind != "names":
        return values
    before, comma, _ = begun.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{value}" for value in values if value not in taken]


def _models() -> list[str]:
    from nbagent.llm.routes import known_routes

    routes = [state.route for state in known_routes()]
    return [route.name if route.name == "demo" else f"{route.name}/{route.default_model or ''}" for route in routes]


def _tools() -> list[str]:
    from nbagent.notebook.creation import tool_names
    from nbagent.notebook.shell import namespace

    return tool_names(namespace())


def _texts() -> list[str]:
    from nbagent.notebook.shell import namespace

    return sorted(name for name, value in namespace().items() if isinstance(value, str) and not name.startswith("_"))


def _sessions() -> list[str]:
    from nbagent.notebook.identity import notebook

    # Asking a server for the notebook would make Tab slow; the agents' folders are known anyhow.
    known = notebook(search=False)
    folders = {agent.session.path.parent for agent in roster.all() if agent.session.path is not None}
    if known is not None:
        folders.add(known.folder)
    return sorted(_file_stems(folders))


def _file_stems(folders: Iterable[Path]) -> set[str]:
    return {file.stem for folder in folders if folder.is_dir() for file in folder.glob("*.jsonl")}


_SOURCES: dict[str, Callable[[], Iterable[str]]] = {
    "models": _models,
    "tools": _tools,
    "texts": _texts,
    "sessions": _sessions,
    "efforts": lambda: _EFFORTS,
}


def install(shell: Any) -> None:
    """Add the matcher to `shell`, once."""
    from IPython.core import completer as ipython

    remove(shell)
    completer = getattr(shell, "Completer", None)
    if completer is None:
        return

    def match_agent(context: Any) -> Any:
        line = context.line_with_cursor[: context.cursor_position]
        found = candidates(line)
        if found is None:
            return {"completions": []}
        # IPython replaces what it takes for the last word, which a dash or a slash may have cut.
        cut = len(line) - len(context.token) - (max(line.rfind(" "), line.rfind("\t")) + 1)
        return {
            "completions": [ipython.SimpleCompletion(word[max(cut, 0) :], type="nbagent") for word in found],
            "suppress": True,
        }

    as_matcher = cast("Any", ipython).context_matcher(identifier="nbagent")
    completer.custom_matchers.append(as_matcher(match_agent))


def remove(shell: Any) -> None:
    """Take the matcher out of `shell`."""
    completer = getattr(shell, "Completer", None)
    if completer is not None:
        kept = [each for each in completer.custom_matchers if getattr(each, "__name__", "") != "match_agent"]
        completer.custom_matchers[:] = kept
