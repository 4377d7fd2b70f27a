from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from nbagent.notebook.display import bundle
from nbagent.notebook.transcript import TurnTranscript
from nbagent.notebook.wording import bounded, pretty_arguments
from nbagent.types.messages import image_block, reasoning_block, text_block, tool_call_block
from nbagent.types.stream import block_start, text_delta
from tests.notebook.turns import TurnLog

MIMES = ("text/markdown", "text/html", "text/plain")

# What JupyterLab keeps of HTML in a notebook it does not trust, as far as the output uses it.
KEPT_TAGS = {
    "div",
    "span",
    "details",
    "summary",
    "pre",
    "code",
    "p",
    "a",
    "img",
    "ol",
    "ul",
    "li",
    "h1",
    "h2",
    "strong",
    "em",
}
KEPT_ATTRIBUTES = {"class", "style", "open", "href", "target", "rel", "src", "alt", "title"}


class Elements(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.depth = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        self.depth += tag not in {"img", "br", "hr"}

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1


def full_turn() -> TurnTranscript:
    log = TurnLog()
    log.begin("Which rows\nlook wrong?")
    log.header("deepseek", "deepseek-flash")
    log.answer(
        reasoning_block("I should look first."),
        text_block("I **look**."),
        tool_call_block("c1", "inspect", '{"name":"df"}'),
        tool_call_block("c2", "run_python", '{"code":"print(1)\\nprint(2)"}'),
        usage={"inputTokens": 1200, "outputTokens": 30},
    )
    log.call("c1", "inspect", '{"name":"df"}')
    log.result("c1", "3 rows")
    log.call("c2", "run_python", "{}")
    log.result("c2", "Error: boom", code="TOOL_FAILED")
    log.next_step()
    log.say("and the columns?")
    log.retry()
    log.answer(text_block("Row `3`.\n\n```python\ndf.loc[3]\n```"), usage={"inputTokens": 4, "outputTokens": 58})
    log.end()
    return log.transcript


@pytest.mark.parametrize("mime", MIMES)
def test_prompt_tools_results_and_answer_stand_in_every_type(mime: str) -> None:
    made = bundle([full_turn()], agent_name="analyst")
    text = made[mime].replace("\\", "").replace("&quot;", '"')
    for part in ("analyst", "deepseek/deepseek-flash", "Which rows", "look wrong?", "inspect", 'name="df"', "3 rows"):
        assert part in text
    for part in (
        "run_python",
        "Error: boom",
        "TOOL_FAILED",
        "and the columns?",
        "Attempt 1 failed",
        "OVERLOADED",
        "Row ",
    ):
        assert part in text
    assert "Finished" in text and "1,204 tokens in" in text and "88 out" in text


def test_the_same_turn_gives_the_same_output_whenever_it_ran() -> None:
    first, second = full_turn(), full_turn()
    assert bundle([first], agent_name="a") == bundle([second], agent_name="a")
    assert tuple(bundle([first], agent_name="a")) == MIMES


def test_html_keeps_to_what_an_untrusted_notebook_shows() -> None:
    html = bundle([full_turn()], agent_name="analyst", note="a note")["text/html"]
    elements = Elements(html)
    assert elements.depth == 0
    assert {tag for tag, _ in elements.tags} <= KEPT_TAGS
    assert {name for _, attributes in elements.tags for name in attributes} <= KEPT_ATTRIBUTES
    styles = " ".join(attributes.get("style") or "" for _, attributes in elements.tags)
    assert "var(" not in styles and "inherit" not in styles and "anywhere" not in styles
    assert not re.search(r"(?<![-\w])color: (black|white|#)", styles)


def test_hostile_text_from_anywhere_is_text() -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(1)</script>"
    log = TurnLog()
    log.begin(evil)
    log.header(evil, evil)
    log.answer(reasoning_block(evil), text_block(evil), tool_call_block("c1", evil, evil))
    log.call("c1", evil, evil)
    log.result("c1", evil, code=evil)
    log.next_step()
    log.say(evil)
    log.retry(evil, evil)
    log.end("error", error={"message": evil, "code": evil})
    made = bundle([log.transcript], agent_name=evil, note=evil)
    tags = {tag for tag, _ in Elements(made["text/html"]).tags}
    assert "img" not in tags and "script" not in tags
    from markdown_it import MarkdownIt

    html = MarkdownIt("commonmark", {"html": True}).render(made["text/markdown"])
    assert "<img" not in html and "<script" not in html


def test_results_cannot_leave_their_code_block() -> None:
    log = TurnLog()
    log.begin("p")
    log.answer(tool_call_block("c1", "read", '{"path":"```"}'))
    log.call("c1", "read")
    log.result("c1", "a\n```\n# not a title\n<b>x</b>\n````")
    log.end()
    from markdown_it import MarkdownIt

    html = MarkdownIt("commonmark", {"html": True}).render(bundle([log.transcript], agent_name="a")["text/markdown"])
    assert "<h1" not in html and "<b>" not in html


def test_control_characters_and_direction_overrides_are_removed() -> None:
    log = TurnLog()
    log.begin("p\x1b[31mred\u202e")
    log.answer(text_block("a\x00b\x1b]0;t\x07"))
    log.end()
    for text in bundle([log.transcript], agent_name="a").values():
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", text)
        assert "pred" in text


def test_long_arguments_and_results_are_cut_in_the_middle() -> None:
    log = TurnLog()
    log.begin("p")
    log.answer(tool_call_block("c1", "read", '{"text":"' + "x" * 50_000 + '"}'))
    log.call("c1", "read")
    log.result("c1", "BEGIN" + "y" * 500_000 + "END")
    log.end()
    made = bundle([log.transcript], agent_name="a")
    for mime in MIMES:
        assert "BEGIN" in made[mime] and "END" in made[mime] and "characters left out" in made[mime]
    assert len(made["text/html"]) < 20_000 and len(made["text/plain"]) < 5_000


def test_the_output_of_hundreds_of_calls_stays_light() -> None:
    log = TurnLog()
    log.begin("p")
    log.answer(*(tool_call_block(f"c{number}", "read", '{"path":"x"}') for number in range(300)))
    for number in range(300):
        log.call(f"c{number}", "read")
        log.result(f"c{number}", f"BEGIN{number} " + "y" * 100_000)
    log.end()
    made = bundle([log.transcript], agent_name="a")
    assert "BEGIN299 " in made["text/html"] and "BEGIN299 " in made["text/plain"]
    assert sum(len(text) for text in made.values()) < 1_500_000


def test_a_picture_is_shown_and_an_impossible_one_is_named() -> None:
    log = TurnLog()
    log.begin("p")
    log.answer(tool_call_block("c1", "plot", "{}"))
    log.call("c1", "plot")
    log.result(
        "c1", [image_block("image/png", "AAAA"), image_block("image/svg+xml", "AAAA"), image_block("image/png", '"x')]
    )
    log.end()
    html = bundle([log.transcript], agent_name="a")["text/html"]
    images = [attributes for tag, attributes in Elements(html).tags if tag == "img"]
    assert [image["src"] for image in images] == ["data:image/png;base64,AAAA"]
    assert "[image/svg+xml]" in html and "[image/png]" in html


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("completed", {}, "Finished"),
        ("max-tokens", {}, "Cut off at the token limit"),
        ("aborted", {"reason": {"kind": "user"}}, "Stopped"),
        ("aborted", {"reason": {"kind": "hook", "reason": "budget: steps"}}, "Stopped: budget: steps"),
        ("error", {"error": {"code": "AUTH", "message": "no such key"}}, "no such key"),
        ("interrupted", {}, "the kernel ended during this turn"),
        ("blocked", {}, "turned the prompt away"),
    ],
)
def test_every_type_says_how_the_turn_ended(kind: str, fields: dict[str, Any], words: str) -> None:
    log = TurnLog()
    log.begin("p")
    log.frame(block_start(0, "text"), text_delta(0, "partial text"))
    log.end(kind, **fields)
    made = bundle([log.transcript], agent_name="a")
    for mime in MIMES:
        assert words in made[mime].replace("\\", "")
        assert "partial text" in made[mime]


def test_a_cut_answer_ends_in_an_ellipsis() -> None:
    log = TurnLog()
    log.begin("p")
    log.answer(text_block("Half an answer"), interrupted=True)
    log.end("aborted", reason={"kind": "user"})
    for text in bundle([log.transcript], agent_name="a").values():
        assert "Half an answer …" in text


def test_several_turns_follow_one_another_and_the_note_comes_once() -> None:
    log = TurnLog()
    for prompt in ("first prompt", "second prompt"):
        log.begin(prompt)
        log.answer(text_block(f"answer to {prompt}"))
        log.end()
    events = list(log.session.events)
    cut = next(position for position, event in enumerate(events) if event.type == "turn/end") + 1
    made = bundle([TurnTranscript.of(events[:cut]), TurnTranscript.of(events[cut:])], agent_name="a", note="a note")
    for text in made.values():
        assert text.index("first prompt") < text.index("second prompt")
        assert text.count("a note") == 1


def test_markdown_html_and_plain_text_need_nothing_else() -> None:
    made = bundle([full_turn()], agent_name="analyst")
    assert "<script" not in made["text/html"] and "<style" not in made["text/html"]
    assert "http" not in made["text/html"]


def test_texts_of_several_lines_among_the_arguments_are_readable() -> None:
    assert pretty_arguments('{"code":"a = 1\\nprint(a)","n":3}') == "code:\n  a = 1\n  print(a)\nn = 3"
    assert pretty_arguments("not json") == "not json"
    assert pretty_arguments("{}") == pretty_arguments("") == ""


def test_a_text_within_its_bound_is_whole() -> None:
    assert bounded("x" * 10, 10) == "x" * 10
    assert bounded("a" * 8 + "b" * 8, 9) == "a" * 6 + "\n… 7 characters left out …\n" + "b" * 3
