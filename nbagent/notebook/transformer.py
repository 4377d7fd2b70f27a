"""Agent cells and agent lines reach the magic as they were typed, and wait with an `await` where one can stand.

IPython would take a final `?` for its help, join lines at a backslash, strip a leading `>>>`, and cannot await a magic.
This transformer comes before all that. It rewrites

* a cell that begins with `%%agent` to `await get_ipython().run_cell_magic("agent", line, body)`;
* each statement line that begins with `%agent` to a `run_line_magic` call, awaited when its verb waits.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from nbagent.notebook.verbs import VERBS

__all__ = ("AWAITED", "install", "remove", "rewrite", "transform")

AWAITED = "\x1f"
"""Stands first in the line that an awaited call hands to the magic: only such a call may be answered by an awaitable.
It is a control character, which nobody types."""

_CELL = re.compile(r"\s*%%agent(?=\s|$)")
_LINE = re.compile(r"(\s*)%agent(?=\s|$)")
_OTHER_ESCAPE = re.compile(r"\s*[%!?,;/]")
_QUOTE = re.compile(r"'''|\"\"\"|'|\"")


def install(shell: Any) -> None:
    """Put the transformer first in `shell`, once."""
    remove(shell)
    shell.input_transformers_cleanup.insert(0, transform)


def remove(shell: Any) -> None:
    """Take the transformer out of `shell`."""
    kept = [each for each in shell.input_transformers_cleanup if not _is_ours(each)]
    shell.input_transformers_cleanup[:] = kept


def transform(lines: list[str]) -> list[str]:
    """What IPython calls with the lines of a cell before it looks at them."""
    if not any("%agent" in line for line in lines):
        return lines
    return rewrite(lines, can_await=_can_await())


# A terminal asks whether a cell is complete after each line: it must see the cell magic, not the finished call.
transform.has_side_effects = True  # type: ignore[attr-defined]


def rewrite(lines: list[str], *, can_await: bool) -> list[str]:
    """The cell with agent cells and lines as calls.

    Args:
        lines: With their line ends.
        can_await: Whether an `await` may stand at the top level of the cell.
    """
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return lines
    head = _CELL.match(lines[first])
    if head is not None:
        # IPython itself refuses an empty body, and not with an error that one could rely on.
        body = "".join(lines[first + 1 :]) or "\n"
        return [_call("cell", lines[first][head.end() :].strip(), body, awaited=can_await) + "\n"]
    if lines[first].lstrip().startswith("%%"):
        return lines
    return _rewrite_lines(lines, _indent(lines[first]), can_await=can_await)


def _rewrite_lines(lines: list[str], top: str, *, can_await: bool) -> list[str]:
    rewritten: list[str] = []
    scan = _Scan()
    escaped = False
    for line in lines:
        if scan.statement_begins and not escaped:
            found = _LINE.match(line)
            if found is not None:
                rest = line[found.end() :].rstrip("\r\n")
                verb = VERBS.get(rest.split(maxsplit=1)[0]) if rest.strip() else None
                awaited = can_await and found[1] == top and verb is not None and verb.waits
                rewritten.append(f"{found[1]}{_call('line', rest, None, awaited=awaited)}\n")
                continue
        rewritten.append(line)
        if escaped or (scan.statement_begins and _OTHER_ESCAPE.match(line)):
            # Another magic or a command: its text is not Python and says nothing about what follows.
            escaped = line.rstrip("\r\n").endswith("\\")
        else:
            scan.feed(line)
    return rewritten


def _call(kind: str, line: str, body: str | None, *, awaited: bool) -> str:
    arguments = ["'agent'", repr(AWAITED + line if awaited else line)]
    if body is not None:
        arguments.append(repr(body))
    return f"{'await ' if awaited else ''}get_ipython().run_{kind}_magic({', '.join(arguments)})"


class _Scan:
    """Follows Python text line by line, as far as needed to know where a statement begins."""

    def __init__(self) -> None:
        self._string = ""
        self._depth = 0
        self._joined = False

    @property
    def statement_begins(self) -> bool:
        """Whether the next line begins a statement."""
        return not self._string and self._depth == 0 and not self._joined

    def feed(self, line: str) -> None:
        line = line.rstrip("\r\n")
        position = 0
        while position < len(line):
            if self._string:
                position = self._in_string(line, position)
                continue
            letter = line[position]
            if letter == "#":
                self._joined = False
                return
            quote = _QUOTE.match(line, position)
            if quote is not None:
                self._string = quote[0]
                position = quote.end()
                continue
            if letter in "([{":
                self._depth += 1
            elif letter in ")]}":
                self._depth = max(0, self._depth - 1)
            position += 1
        self._joined = line.endswith("\\")
        if len(self._string) == 1 and not self._joined:
            self._string = ""  # not closed on its line: a mistake that Python will report

    def _in_string(self, line: str, position: int) -> int:
        while position < len(line):
            if line[position] == "\\":
                position += 2
            elif line.startswith(self._string, position):
                position += len(self._string)
                self._string = ""
                return position
            else:
                position += 1
        return position


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _is_ours(transformer: Any) -> bool:
    # By name: the module may have been imported anew since it was installed.
    return getattr(transformer, "__module__", None) == __name__ and getattr(transformer, "__name__", "") == "transform"


def _can_await() -> bool:
    """Whether the cell that is being read will run at the top level of an awaiting shell."""
    from IPython.core.getipython import get_ipython
    from IPython.core.interactiveshell import InteractiveShell

    shell: Any = get_ipython()
    if shell is None or not getattr(shell, "autoawait", False):
        return False
    # %%capture, %%time and their like read their body inside the cell that runs: no await can stand there.
    running: Any = InteractiveShell.run_code.__code__  # pyright: ignore[reportUnknownMemberType]
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code is running:
            return False
        frame = frame.f_back
    return True
