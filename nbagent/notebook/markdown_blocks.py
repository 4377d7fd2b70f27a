"""Markdown that is still arriving: what is complete is rendered once, and only the rest again and again."""

from __future__ import annotations

import itertools
import re

from nbagent.notebook.markdown import lines_of, plain_lines, render_markdown, renderer

__all__ = ("BlockSplitter",)


class BlockSplitter:
    """Cuts a growing Markdown text into top-level blocks, so that only the last one is rendered again.

    A block is closed once a later one has begun on a complete line; its HTML then never changes.

    Args:
        foresee: Render the open block as if the emphasis and code that its last line has begun were closed, so that their
            marks do not flicker while the rest is on its way.
    """

    def __init__(self, *, foresee: bool = False) -> None:
        self._foresee = foresee
        self._closed: list[str] = []
        self._tail_start = 0
        self._text = ""

    def feed(self, text: str) -> tuple[list[str], str]:
        """Take the whole text so far; answers the HTML of the closed blocks, and that of the open rest."""
        text = plain_lines(text)
        if not text.startswith(self._text):
            self._closed, self._tail_start = [], 0
        self._text = text
        tail = text[self._tail_start :]
        complete = tail[: tail.rfind("\n") + 1]
        # Whether a line that is still growing begins a block is not known before it ends.
        starts = [token.map[0] for token in renderer().parse(complete) if token.level == 0 and token.map]
        if len(set(starts)) > 1:
            lines = lines_of(complete)
            cuts = sorted(set(starts))
            for first, following in itertools.pairwise(cuts):
                self._closed.append(render_markdown("".join(lines[first:following])))
            self._tail_start += sum(len(line) for line in lines[: cuts[-1]])
            tail = text[self._tail_start :]
        if self._foresee:
            tail = _foreseen(tail)
        return self._closed, render_markdown(tail) if tail.strip() else ""


_MARK = re.compile(r"\\.|\*\*|\*|`+")


def _foreseen(text: str) -> str:
    start = text.rfind("\n") + 1
    line = re.sub(r"(?<!\\)[*`]+$", "", text[start:])
    if not line.strip() or not _MARK.search(text, start) or _ends_in_code(text):
        return text
    open_marks: list[str] = []
    position = 0
    while (found := _MARK.search(line, position)) is not None:
        mark, position = found.group(), found.end()
        if mark.startswith("`"):
            closing = re.compile(rf"(?<!`){mark}(?!`)").search(line, position)
            if closing is None:
                open_marks.append(mark)
                break
            position = closing.end()
        elif open_marks and open_marks[-1] == mark:
            open_marks.pop()
        elif not mark.startswith("\\") and line[position : position + 1].strip():
            open_marks.append(mark)
    return text[:start] + line.rstrip() + "".join(reversed(open_marks))


def _ends_in_code(text: str) -> bool:
    last = text.count("\n")
    code = [token for token in renderer().parse(text) if token.type in {"fence", "code_block", "math_block"}]
    return any(token.map is not None and token.map[1] >= last for token in code)
