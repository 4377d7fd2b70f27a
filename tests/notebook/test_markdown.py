from __future__ import annotations

import re
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nbagent.notebook.markdown import harmless_markdown, render_markdown
from nbagent.notebook.markdown_blocks import BlockSplitter

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "text <b onclick=alert(1)>bold</b>",
    "[click](javascript:alert(1))",
    "[click](  JaVaScRiPt:alert(1))",
    "[click](java&#115;cript:alert(1))",
    "[click](vbscript:x) [d](data:text/html,<script>alert(1)</script>)",
    "[ref]\n\n[ref]: javascript:alert(1)",
    "<javascript:alert(1)>",
    "![tracker](https://example.org/pixel.png)",
    "![t][r]\n\n[r]: https://example.org/pixel.png",
    "\\<img src=x>",
    "\\\\<img src=x>",
    "`a`` <img src=x> `b`",
    "\\`<img src=x>\\`",
    "| a | <img src=x> |\n|---|---|\n| `<b>` | <i>x</i> |",
    "- <svg onload=alert(1)>\n\n      <img src=x>",
    "> <!-- x -->\n<?php ?>",
    "```html\n<img src=x>\n```\n<img src=y>",
    "a\x0c<img src=x>\u2028<img src=y>\r<img src=z>",
    "[a](<javascript:alert(1)>)",
    "[<img src=x>](https://example.org)",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_makes_no_element_but_those_of_markdown(text: str) -> None:
    html = render_markdown(text)
    assert not re.search(
        r"<(?!/?(p|a|ul|ol|li|pre|code|div|span|table|thead|tbody|tr|th|td|blockquote|em|strong|br|h\d|hr|s)\b)", html
    )
    assert not re.search(r'href="(?!https?:|mailto:|#)', html)
    assert not re.search(r"<[^>]* on\w+=", html)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_harmless_where_markdown_allows_html(text: str) -> None:
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(harmless_markdown(text))
    assert "<img" not in html and "<script" not in html and "<svg" not in html and "<b " not in html
    assert not re.search(r'href="(?!https?:|mailto:|#)', html)


@pytest.mark.parametrize(
    "text",
    [
        "# Title\n\nSome *text* with `<code>` and 3 < 4.\n\n- one\n- two\n",
        "```html\n<b>x</b>\n```\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n",
        "[link](https://example.org) and <https://example.org>\n",
    ],
)
def test_ordinary_markdown_is_left_as_it_is(text: str) -> None:
    assert harmless_markdown(text) == text


def test_an_image_becomes_a_link() -> None:
    html = render_markdown("![a plot](https://example.org/p.png)")
    assert '<a href="https://example.org/p.png" target="_blank" rel="noopener noreferrer">a plot</a>' in html


def test_code_is_highlighted_by_class_names() -> None:
    assert '<span class="k">def</span>' in render_markdown("```python\ndef f(): pass\n```")
    assert "<span" not in render_markdown("```no-such-language\ndef f(): pass\n```")


@given(st.text(alphabet="ab<>`*_[]()!#-1. \n\\&|:/~=\t\r$", max_size=120))
@settings(max_examples=300, deadline=None)
def test_any_text_stays_harmless(text: str) -> None:
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(harmless_markdown(text))
    kinds = {child.type for token in tokens for child in (token, *(token.children or ()))}
    assert not kinds & {"html_block", "html_inline", "image"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "between $5 and $6",
            'between <span class="mathjax_ignore tex2jax_ignore">$</span>5 and <span class="mathjax_ignore tex2jax_ignore">$</span>6',
        ),
        (
            "$5 and $x$",
            '<span class="mathjax_ignore tex2jax_ignore">$</span>5 and $x$',
        ),
        ("it is $a_1 * b_1$ and $c*d$", "it is $a_1 * b_1$ and $c*d$"),
        ("\\(x_1\\) and \\[y_1\\]", "$x_1$ and $$y_1$$"),
        ("costs \\$5", 'costs <span class="mathjax_ignore tex2jax_ignore">$</span>5'),
        ("`$x$`", "<code>$x$</code>"),
        ("$<img src=x>$", "$&lt;img src=x&gt;$"),
    ],
)
def test_formulas_are_told_from_amounts(text: str, shown: str) -> None:
    assert render_markdown(text) == f"<p>{shown}</p>\n"


def test_a_formula_of_several_lines_is_one_block() -> None:
    assert (
        render_markdown("so:\n\n$$\na_1\n= b_1\n- c\n$$\n\nend")
        == "<p>so:</p>\n<p>$$\na_1\n= b_1\n- c\n$$</p>\n<p>end</p>\n"
    )


def test_a_formula_that_is_not_closed_ends_at_a_blank_line() -> None:
    assert render_markdown("$$\na\n\n**b**") == "<p>$$\na</p>\n<p><strong>b</strong></p>\n"


def test_a_text_full_of_dollar_signs_is_read_quickly() -> None:
    started = time.perf_counter()
    render_markdown("$a " * 20_000)
    assert time.perf_counter() - started < 5


DOCUMENT = """# Title

A paragraph
of two lines.

- one
- two

  still two

1. first

```python
x = 1

y = 2
```

| a | b |
|---|---|
| 1 | 2 |

> quote
continued

Setext
------

end"""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_a_text_that_grows_reads_like_the_whole_text(size: int) -> None:
    splitter = BlockSplitter()
    for end in [*range(size, len(DOCUMENT), size), len(DOCUMENT)]:
        closed, rest = splitter.feed(DOCUMENT[:end])
    assert "".join(closed) + rest == render_markdown(DOCUMENT)


def test_closed_blocks_never_change() -> None:
    splitter, before = BlockSplitter(), []
    for end in range(len(DOCUMENT)):
        closed, _rest = splitter.feed(DOCUMENT[:end])
        assert closed[: len(before)] == before
        before = list(closed)
    assert len(before) > 5


@given(st.text(alphabet="ab`*_#-1.> \n|~=\t$\\[]", max_size=80))
@settings(max_examples=500, deadline=None)
def test_any_text_split_at_every_character_reads_like_the_whole_text(text: str) -> None:
    splitter, whole = BlockSplitter(), ""
    for end in range(len(text) + 1):
        closed, rest = splitter.feed(text[:end])
        whole = "".join(closed) + rest
    assert whole.strip() == render_markdown(text).strip()


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("so **bo", "<p>so <strong>bo</strong></p>\n"),
        ("so **bold", "<p>so <strong>bold</strong></p>\n"),
        ("so **bold**", "<p>so <strong>bold</strong></p>\n"),
        ("so **", "<p>so</p>\n"),
        ("so *it", "<p>so <em>it</em></p>\n"),
        ("so **bold *both", "<p>so <strong>bold <em>both</em></strong></p>\n"),
        ("so `co", "<p>so <code>co</code></p>\n"),
        ("so `code` and `mo", "<p>so <code>code</code> and <code>mo</code></p>\n"),
        ("`**` not bold", "<p><code>**</code> not bold</p>\n"),
        ("2 * 3 is", "<p>2 * 3 is</p>\n"),
        ("- one\n* **two", "<ul>\n<li>one</li>\n</ul>\n<ul>\n<li><strong>two</strong></li>\n</ul>\n"),
        ("escaped \\*this", "<p>escaped *this</p>\n"),
        ("***", "<hr />\n"),
    ],
)
def test_marks_that_are_not_closed_yet_do_not_flicker(text: str, html: str) -> None:
    closed, rest = BlockSplitter(foresee=True).feed(text)
    assert "".join(closed) + rest == html


def test_code_that_is_still_open_is_left_as_it_is() -> None:
    _closed, rest = BlockSplitter(foresee=True).feed("```\na = **b")
    assert "a = **b\n" in rest or "a = **b<" in rest


@given(st.text(alphabet="ab`*\\ \n-", max_size=60))
@settings(max_examples=200, deadline=None)
def test_foreseeing_never_loses_a_word(text: str) -> None:
    assume("```" not in text)  # the word after a fence is the language of the code, which is not shown
    closed, rest = BlockSplitter(foresee=True).feed(text)
    shown = re.sub(r"<[^>]*>", "", "".join(closed) + rest)
    assert [c for c in shown if c in "ab"] == [c for c in text if c in "ab"]


def test_a_text_that_was_replaced_starts_again() -> None:
    splitter = BlockSplitter()
    splitter.feed("# old\n\nold text\n\nmore")
    closed, rest = splitter.feed("new")
    assert (closed, rest) == ([], "<p>new</p>\n")
