"""Formulas in Markdown: kept from Markdown's own rules, and told from amounts of money.

A page that typesets formulas looks for dollar signs anywhere. So a formula leaves as `$…$` or `$$…$$` whatever way the
model wrote it, and any other dollar sign stands in an element that the typesetter passes over.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

__all__ = ("IGNORED", "PROCESSED", "add_math")

IGNORED = "mathjax_ignore tex2jax_ignore"
"""Class names below which nothing is typeset."""
PROCESSED = "mathjax_process tex2jax_process"
"""Class names below which formulas are typeset again."""

_LONGEST = 1_000
"""Characters that an inline formula may have; a text full of dollar signs is still read in linear time."""
_CLOSING = {"$$": "$$", "\\[": "\\]"}


def add_math(renderer: MarkdownIt) -> None:
    r"""Teach `renderer` `$x$`, `$$x$$`, `\(x\)` and `\[x\]`."""
    renderer.inline.ruler.before("escape", "math", _inline)
    renderer.block.ruler.before("fence", "math_block", _block, {"alt": ["paragraph", "blockquote", "list"]})
    renderer.add_render_rule("math", _render_math)
    renderer.add_render_rule("math_block", _render_math)
    renderer.add_render_rule("dollar", _render_dollar)


def _inline(state: StateInline, silent: bool) -> bool:
    found = _formula(state.src, state.pos, state.posMax)
    if found is None:
        return False
    kind, content, end = found
    if not silent:
        token = state.push(kind, "", 0)
        token.content = content
    state.pos = end
    return True


def _formula(source: str, start: int, limit: int) -> tuple[str, str, int] | None:
    """Kind, what to show and where it ends, of the formula or dollar sign at `start`."""
    limit = min(limit, start + _LONGEST)
    opening = source[start : start + 2]
    if opening in {"$$", "\\[", "\\("}:
        closing = {"$$": "$$", "\\[": "\\]", "\\(": "\\)"}[opening]
        end = source.find(closing, start + 2, limit)
        if end > start + 2:
            mark = "$" if opening == "\\(" else "$$"
            return "math", f"{mark}{source[start + 2 : end]}{mark}", end + 2
        return ("dollar", "$$", start + 2) if opening == "$$" else None
    if opening == "\\$":
        return "dollar", "$", start + 2
    if source[start] != "$":
        return None
    end = _closing_dollar(source, start, limit)
    return ("dollar", "$", start + 1) if end < 0 else ("math", source[start : end + 1], end + 1)


def _closing_dollar(source: str, start: int, limit: int) -> int:
    """Where a formula that begins with one dollar sign ends; -1 when it is an amount: `$5 or $6`."""
    if source[start + 1 : start + 2].isspace():
        return -1
    end = source.find("$", start + 2, limit)
    while end > 0 and source[end - 1] == "\\":
        end = source.find("$", end + 1, limit)
    if end < 0 or source[end - 1].isspace() or source[end + 1 : end + 2].isdigit():
        return -1
    return end


def _block(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    if state.is_code_block(first):
        return False
    text = _line(state, first)
    closing = _CLOSING.get(text[:2])
    if closing is None:
        return False
    alone = text in _CLOSING
    if not alone and not (len(text) > 4 and text.endswith(closing)):
        return False
    line = first + 1
    lines = [text]
    # Like a fence it needs no look ahead: it ends at its closing mark, or at a blank line.
    while alone and line < end and state.sCount[line] >= state.blkIndent and _line(state, line):
        lines.append(_line(state, line))
        line += 1
        if lines[-1].endswith(closing):
            break
    if not silent:
        state.line = line
        token = state.push("math_block", "", 0)
        token.map = [first, line]
        whole = "\n".join(lines)
        closed = len(whole) > 3 and whole.endswith(closing)
        token.content = f"$${whole[2:-2]}$$" if closed else whole
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.getLines(number, number + 1, state.blkIndent, False).strip()


def _render_math(_self: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    token = tokens[index]
    content = html.escape(token.content)
    return f"<p>{content}</p>\n" if token.type == "math_block" else content


def _render_dollar(_self: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    return f'<span class="{IGNORED}">{tokens[index].content}</span>'
