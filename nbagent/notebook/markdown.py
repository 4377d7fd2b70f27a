"""Markdown that came from a model, made safe to show: raw HTML stays text, links keep to harmless schemes, nothing is fetched.

The live view and the saved output render with the same rules, so that an answer does not change its look when its turn
ends.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, cast

from markdown_it import MarkdownIt
from markdown_it.token import Token

from nbagent.notebook.markdown_math import add_math

__all__ = ("harmless_markdown", "lines_of", "plain_lines", "render_markdown", "renderer")

_LINK = re.compile(r"(?:https?://|mailto:|#)", re.IGNORECASE)
_BAD_LINK = re.compile(r"\]\((?!\s*<?(?:https?://|mailto:|#))", re.IGNORECASE)
_RAW_HTML = re.compile(r"<(?=[A-Za-z/!?])(?!https?://[^\s<>]*>)")
_CODE_STYLE = (
    "margin: 8px 0; padding: 8px 12px; border-radius: 4px; background: rgba(128, 128, 128, 0.09); "
    "white-space: pre; overflow: auto"
)
_BARE = "background: transparent; padding: 0; white-space: pre"
_HIGHLIGHT_LIMIT = 40_000
"""Characters of code beyond which colours are not worth their time."""


def render_markdown(text: str) -> str:
    """`text` as HTML in which nothing came from the text as markup.

    Images become links: a picture on somebody's server would be fetched, and so tell that the page was read.
    """
    return renderer().render(text)


@cache
def renderer() -> MarkdownIt:
    """The parser and renderer of text from models."""
    made = MarkdownIt("commonmark", {"html": False, "highlight": _highlight})
    made.enable(["table", "strikethrough"])
    made.validateLink = _is_harmless_link  # type: ignore[method-assign]
    add_math(made)
    made.add_render_rule("image", _render_image)
    made.add_render_rule("fence", _render_fence)
    made.add_render_rule("link_open", _render_link_open)
    return made


def _is_harmless_link(url: str) -> bool:
    return _LINK.match(url.strip()) is not None


def _render_image(_self: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    token = tokens[index]
    label = html.escape(token.content or "image")
    address = html.escape(str(token.attrs.get("src", "")))
    return f'<a href="{address}" target="_blank" rel="noopener noreferrer">{label}</a>'


def _render_link_open(_self: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    address = html.escape(str(tokens[index].attrs.get("href", "")))
    return f'<a href="{address}" target="_blank" rel="noopener noreferrer">'


def _render_fence(_self: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    token = tokens[index]
    language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
    code = _highlight(token.content, language, "") or html.escape(token.content)
    return f'<div class="highlight" style="background: transparent"><pre style="{_CODE_STYLE}"><code style="{_BARE}">{code}</code></pre></div>\n'


def _highlight(code: str, language: str, _attributes: str) -> str:
    if not language or len(code) > _HIGHLIGHT_LIMIT:
        return ""
    from pygments import highlight  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    lexer = _lexer(language.lower())
    return "" if lexer is None else str(highlight(code, lexer, _formatter()))


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
    from pygments.util import ClassNotFound  # pyright: ignore[reportMissingTypeStubs]

    try:
        return get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None


@cache
def _formatter() -> Any:
    from pygments.formatters import HtmlFormatter  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    # Class names, no colours: the page's own theme has the colours of its light and its dark side.
    return cast("Any", HtmlFormatter(nowrap=True))


def harmless_markdown(text: str) -> str:
    """`text` as Markdown that stays harmless in a renderer which allows raw HTML, images and any link.

    What would be raw HTML or an image becomes visible text, code stays as it is. When something harmful would still be
    left, everything is escaped.
    """
    softened = _soften(text)
    return softened if _is_harmless(softened) else _escape_all(text)


@cache
def _permissive() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True})
    parser.enable(["table", "strikethrough"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # noqa: ARG005
    return parser


def _is_harmless(text: str) -> bool:
    return all(_is_harmless_token(token) for token in _permissive().parse(text))


def _is_harmless_token(token: Token) -> bool:
    if token.type in {"html_block", "html_inline", "image"}:
        return False
    attributes: Mapping[str, Any] = token.attrs
    if "href" in attributes and not _is_harmless_link(str(attributes["href"])):
        return False
    return all(_is_harmless_token(child) for child in token.children or ())


def _soften(text: str) -> str:
    text = plain_lines(text)
    softened = lines_of(text)
    for token in renderer().parse(text):
        if token.type == "inline" and token.map is not None:
            first, end = token.map
            # A table's cells share a line; the second cell finds it softened already and leaves it so.
            softened[first:end] = lines_of(_soften_inline("".join(softened[first:end])))
    return "".join(softened)


def _soften_inline(text: str) -> str:
    """Replace the beginnings of raw HTML, of images and of harmful links outside of code spans."""
    parts: list[str] = []
    position = 0
    for start, end in _code_spans(text):
        parts.extend((_soften_plain(text[position:start]), text[start:end]))
        position = end
    parts.append(_soften_plain(text[position:]))
    return "".join(parts)


def _soften_plain(text: str) -> str:
    return _BAD_LINK.sub("]&#40;", _RAW_HTML.sub("&lt;", text)).replace("![", "!&#91;")


def _code_spans(text: str) -> list[tuple[int, int]]:
    runs = [(match.start(), match.end()) for match in re.finditer(r"(?<!\\)`+", text)]
    spans: list[tuple[int, int]] = []
    position = 0
    while position < len(runs):
        start, opened = runs[position]
        for closing in range(position + 1, len(runs)):
            if runs[closing][1] - runs[closing][0] == opened - start:
                spans.append((start, runs[closing][1]))
                position = closing
                break
        position += 1
    return spans


def _escape_all(text: str) -> str:
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


def plain_lines(text: str) -> str:
    """`text` with one kind of line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def lines_of(text: str) -> list[str]:
    """The lines as Markdown counts them, ends included."""
    # Markdown knows one line end; `str.splitlines` also cuts at form feeds and other separators.
    *ended, rest = text.split("\n")
    return [f"{line}\n" for line in ended] + ([rest] if rest else [])
