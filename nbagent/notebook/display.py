"""What a saved notebook holds of a turn: plain text, Markdown and HTML that need no kernel, no script and no style sheet.

JupyterLab removes style sheets, drawings, ids, ARIA attributes and style values it does not know (`var()`, `inherit`)
from HTML in a notebook it does not trust. So every style stands on its element, colours are either inherited or neutral
enough for light and dark pages, and nothing depends on a class name except the colours of code.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from nbagent.notebook.display_text import turn_markdown, turn_plain
from nbagent.notebook.markdown import render_markdown
from nbagent.notebook.markdown_math import IGNORED, PROCESSED
from nbagent.notebook.transcript import TurnTranscript
from nbagent.notebook.turn_items import Call, LateMessage, Picture, Prose, RetryNotice, TurnState
from nbagent.notebook.wording import (
    CALL_MARKS,
    FULL_CALLS,
    PROMPT_LIMIT,
    SHORT,
    answer_text,
    bounded,
    call_preview,
    call_word,
    pretty_arguments,
    retry_line,
    status_line,
    usage_line,
    visible,
    word_count,
)

__all__ = ("ARGUMENTS_LIMIT", "REASONING_LIMIT", "RESULT_LIMIT", "bundle", "shown_picture")

ARGUMENTS_LIMIT = 4_000
"""Characters of a call's arguments that an output holds."""
RESULT_LIMIT = 8_000
"""Characters of a call's result that an output holds."""
REASONING_LIMIT = 16_000
"""Characters of one reasoning block that an output holds."""

_PICTURE_LIMIT = 1_500_000
_PICTURES_LIMIT = 6_000_000
"""Characters of picture data in one turn; a notebook of many megabytes opens nowhere well."""
_PICTURE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")

_MONO = "font-family: monospace; font-size: 12px; line-height: 1.45"
_QUIET = "opacity: 0.72"
_ERROR = "color: rgb(214, 69, 69)"
_WARNING = "color: rgb(163, 106, 0)"
_GOOD = "color: rgb(36, 138, 74)"
_LINE = "1px solid rgba(128, 128, 128, 0.28)"
_MARK_COLOURS = {"done": _GOOD, "error": _ERROR, "aborted": _WARNING}


def bundle(transcripts: Sequence[TurnTranscript], *, agent_name: str, note: str | None = None) -> dict[str, str]:
    """The static output of one or more turns.

    The same turns give the same text: there is no time, duration, path or random id in it.

    Args:
        transcripts: The turns, in order.
        agent_name: The name that the notebook knows the agent by.
        note: A line for the reader above the first turn.

    Returns:
        `text/markdown`, `text/html` and `text/plain`.
    """
    states = [transcript.state() for transcript in transcripts]
    notes = [note if position == 0 else None for position in range(len(states))]
    turns = list(zip(states, notes, strict=True))
    return {
        "text/markdown": "\n\n---\n\n".join(turn_markdown(state, agent_name, line) for state, line in turns),
        "text/html": "\n".join(_turn_html(state, agent_name, line) for state, line in turns),
        "text/plain": "\n\n".join(turn_plain(state, agent_name, line) for state, line in turns),
    }


def shown_picture(picture: Picture) -> str | None:
    """The picture as a `data:` address, when it is of a kind and size that an output holds."""
    fits = picture.media_type in _PICTURE_TYPES and len(picture.data) <= _PICTURE_LIMIT
    return f"data:{picture.media_type};base64,{picture.data}" if fits and _BASE64.fullmatch(picture.data) else None


def _turn_html(state: TurnState, agent_name: str, note: str | None) -> str:
    parts = [_head_html(state, agent_name)]
    if note:
        parts.append(f'<div style="margin: 6px 0; font-size: 12px; font-style: italic; {_QUIET}">{_text(note)}</div>')
    parts.extend(_prompt_html(prompt) for prompt in state.prompts)
    room, calls = _PICTURES_LIMIT, 0
    for item in state.items:
        match item:
            case Prose(kind="text"):
                parts.append(_answer_html(item))
            case Prose():
                parts.append(_reasoning_html(item))
            case Call():
                parts.append(_call_html(item, room, full=calls < FULL_CALLS))
                calls += 1
                room -= sum(len(picture.data) for picture in item.pictures)
            case RetryNotice():
                parts.append(_line_html(retry_line(item), _WARNING))
            case LateMessage():
                parts.append(_prompt_html(item.text))
    if state.reason is not None and state.reason["kind"] == "error":
        parts.append(_failure_html(str(state.reason["error"]["message"])))
    return f'<div class="nbagent-turn {IGNORED}" style="padding: 2px 0 6px 0">{"".join(parts)}</div>'


def _head_html(state: TurnState, agent_name: str) -> str:
    status = _ending_style(state)
    usage = usage_line(state.usage)
    facts = [f'<span style="{status}">{_text(status_line(state))}</span>']
    if usage:
        facts.append(f'<span style="{_QUIET}">{_text(usage)}</span>')
    return (
        '<div style="display: flex; flex-wrap: wrap; gap: 0 12px; align-items: baseline; font-size: 12px; '
        f'padding: 0 0 4px 0; margin: 0 0 8px 0; border-bottom: {_LINE}">'
        f'<span style="font-weight: 600">{_text(agent_name)}</span>'
        f'<span style="{_QUIET}">{_text(state.model)}</span>'
        f'<span style="margin-left: auto; display: flex; flex-wrap: wrap; gap: 0 12px">{"".join(facts)}</span></div>'
    )


def _ending_style(state: TurnState) -> str:
    kind = state.reason["kind"] if state.reason is not None else "completed"
    if kind == "error":
        return _ERROR
    return _QUIET if kind == "completed" else _WARNING


def _prompt_html(text: str) -> str:
    return (
        '<div style="margin: 8px 0; padding: 1px 0 1px 12px; border-left: 3px solid rgba(128, 128, 128, 0.45); '
        f'white-space: pre-wrap; overflow-wrap: break-word; {_QUIET}">{_text(bounded(text, PROMPT_LIMIT))}</div>'
    )


def _answer_html(prose: Prose) -> str:
    return (
        # Inside JupyterLab the class gives the spacing of its own Markdown, as the live view has it.
        f'<div class="jp-RenderedHTMLCommon {PROCESSED}" style="margin: 8px 0; padding: 0; overflow-wrap: break-word">'
        f"{render_markdown(answer_text(prose))}</div>"
    )


def _reasoning_html(prose: Prose) -> str:
    if not prose.text.strip():
        return ""
    return (
        f'<details style="margin: 6px 0; font-size: 12px; {_QUIET}">'
        f'<summary style="cursor: pointer">Reasoning · {word_count(prose.text)}</summary>'
        '<div style="margin: 4px 0 4px 14px; white-space: pre-wrap; overflow-wrap: break-word">'
        f"{_text(bounded(prose.text.strip(), REASONING_LIMIT))}</div></details>"
    )


def _call_html(call: Call, room: int, *, full: bool) -> str:
    word = call_word(call)
    style = _MARK_COLOURS.get(call.state, _QUIET)
    pictures = ""
    for picture in call.pictures:
        pictures += _picture_html(picture, room)
        room -= len(picture.data)
    # A figure is what its call was made for: it is seen without unfolding.
    shown = " open" if pictures else ""
    arguments = pretty_arguments(call.arguments)
    details = _labelled_html("Arguments", bounded(arguments, ARGUMENTS_LIMIT if full else SHORT)) if arguments else ""
    if call.result:
        details += _labelled_html("Result", bounded(call.result, RESULT_LIMIT if full else SHORT))
    if not details and not pictures:
        details = f'<div style="{_QUIET}">No arguments, no result.</div>'
    return (
        f'<details{shown} style="margin: 6px 0; border: {_LINE}; border-radius: 4px; font-size: 12px">'
        '<summary style="cursor: pointer; padding: 3px 8px; white-space: nowrap; overflow: hidden; '
        f'text-overflow: ellipsis"><span style="float: right; padding: 0 0 0 12px; {style}">'
        f"{CALL_MARKS[call.state]} {_text(word)}</span>"
        f'<span style="{_MONO}; font-weight: 600">{_text(call.name)}</span>'
        f'<span style="{_MONO}; margin-left: 6px; {_QUIET}">{_text(call_preview(call))}</span></summary>'
        f'<div style="padding: 2px 8px 8px 8px; border-top: {_LINE}">{details}{pictures}</div></details>'
    )


def _labelled_html(label: str, text: str) -> str:
    return (
        f'<div style="margin: 6px 0 2px 0; {_QUIET}">{label}</div>'
        f'<pre style="margin: 0; padding: 0; {_MONO}; white-space: pre-wrap; word-break: normal; overflow-wrap: break-word; '
        f'max-height: 320px; overflow: auto; background: transparent">{html.escape(text)}</pre>'
    )


def _picture_html(picture: Picture, room: int) -> str:
    address = shown_picture(picture) if len(picture.data) <= room else None
    if address is None:
        return f'<div style="margin: 6px 0; {_QUIET}">[{_text(picture.media_type)}]</div>'
    return f'<div style="margin: 6px 0"><img alt="picture" src="{html.escape(address)}" style="max-width: 100%"></div>'


def _line_html(text: str, style: str) -> str:
    return f'<div style="margin: 6px 0; font-size: 12px; overflow-wrap: break-word; {style}">{_text(text)}</div>'


def _failure_html(message: str) -> str:
    return (
        f'<div style="margin: 8px 0; padding: 4px 0 4px 12px; border-left: 3px solid rgb(214, 69, 69); '
        f'white-space: pre-wrap; overflow-wrap: break-word">{_text(bounded(message, 2_000))}</div>'
    )


def _text(text: str) -> str:
    return html.escape(visible(text))
