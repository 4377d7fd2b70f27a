"""The words and bounds that the live view and the saved output share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import orjson

from nbagent.notebook.turn_items import Call, Prose, RetryNotice, TurnState

__all__ = (
    "CALL_MARKS",
    "FULL_CALLS",
    "PROMPT_LIMIT",
    "SHORT",
    "answer_text",
    "bounded",
    "call_preview",
    "call_word",
    "pretty_arguments",
    "retry_line",
    "status_line",
    "usage_line",
    "visible",
    "word_count",
)

CALL_MARKS = {"queued": "○", "running": "◐", "done": "✓", "error": "✗", "aborted": "■"}
_CALL_WORDS = {"queued": "waiting", "running": "running", "done": "done", "error": "failed", "aborted": "stopped"}

FULL_CALLS = 40
"""Calls of a turn beyond these are told with short details, so that a turn of hundreds stays light."""
PROMPT_LIMIT = 20_000
"""Characters of one prompt that an output holds."""
SHORT = 400
"""Characters of arguments and results of such a call."""

_WIDE = 80
_PREVIEW_LIMIT = 160
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """`text` without terminal colours, control characters and direction overrides, which could disguise it."""
    return _CONTROLS.sub("", text)


def answer_text(prose: Prose) -> str:
    """The Markdown of an answer; a cut one ends in an ellipsis."""
    text = visible(prose.text)
    return f"{text.rstrip()} …" if prose.interrupted else text


def bounded(text: str, limit: int) -> str:
    """`text` without control characters; more than `limit` characters are cut in the middle, and the cut says so."""
    text = visible(text)
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    left_out = len(text) - head - tail
    return f"{text[:head]}\n… {left_out:,} characters left out …\n{text[-tail:]}"


def pretty_arguments(raw: str) -> str:
    """The arguments of a call, one a line, texts of several lines as they are; the raw string when it is no object."""
    value = _parsed(raw)
    if not isinstance(value, dict):
        return raw.strip()
    pairs = cast("dict[str, Any]", value)
    return "\n".join(_argument(key, item) for key, item in pairs.items())


def _argument(key: str, value: Any) -> str:
    if isinstance(value, str) and "\n" in value.strip():
        lines = value.strip("\n").split("\n")
        return "\n".join([f"{key}:", *(f"  {line}".rstrip() for line in lines)])
    text = orjson.dumps(value).decode()
    if len(text) > _WIDE and isinstance(value, list | dict):
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return f"{key} = {text}"


def call_preview(call: Call) -> str:
    """The arguments of a call in one short line: `city="Oslo", days=3`."""
    value = _parsed(call.arguments)
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value)
        line = ", ".join(f"{key}={orjson.dumps(item).decode()}" for key, item in pairs.items())
    else:
        line = call.arguments
    line = " ".join(visible(line).split())
    return line if len(line) <= _PREVIEW_LIMIT else f"{line[: _PREVIEW_LIMIT - 1]}…"


def call_word(call: Call) -> str:
    """The state of a call in a word; a failure says its code."""
    word = _CALL_WORDS[call.state]
    return f"{word} ({visible(call.code)})" if call.code and call.state == "error" else word


def _parsed(raw: str) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


def status_line(state: TurnState) -> str:
    """What the turn is doing, or how it ended, in a few words."""
    if state.status == "waiting":
        return "Waiting for its turn"
    if state.status == "stopping":
        return _waiting_line(state.waiting_for)
    reason = state.reason
    if reason is None:
        return "Running"
    match reason["kind"]:
        case "completed":
            return "Finished"
        case "blocked":
            return "Not run: a listener turned the prompt away"
        case "max-tokens":
            return "Cut off at the token limit of an answer"
        case "aborted":
            return _aborted_line(reason.get("reason") or {})
        case "error":
            return f"Failed ({reason['error']['code']})"
        case "interrupted":
            return "Interrupted: the kernel ended during this turn"
        case "forked":
            return "Open where this branch was cut"
        case kind:
            return f"Ended: {visible(str(kind))}"


def _waiting_line(names: tuple[str, ...]) -> str:
    if not names:
        return "Stopping"
    unique = list(dict.fromkeys(visible(name) for name in names))
    return f"Stopping: waiting for {', '.join(unique)}"


def _aborted_line(cause: Mapping[str, Any]) -> str:
    match cause.get("kind"):
        case "hook":
            return f"Stopped: {visible(str(cause.get('reason') or 'by a listener'))}"
        case "parent":
            return "Stopped with its parent"
        case "disposed":
            return "Stopped: the agent was disposed"
        case _:
            return "Stopped"


def usage_line(usage: Mapping[str, int]) -> str:
    """`1,204 tokens in · 88 out`; empty when nothing was reported."""
    read = sum(usage.get(key, 0) for key in ("inputTokens", "cacheReadTokens", "cacheWriteTokens"))
    written = usage.get("outputTokens", 0)
    return f"{read:,} tokens in · {written:,} out" if read or written else ""


def retry_line(notice: RetryNotice) -> str:
    """Which attempt failed, why, and what follows."""
    why = f" ({notice.code}: {visible(notice.message)})" if notice.code else ""
    after = "trying again" if notice.waiting else "tried again"
    return f"Attempt {notice.attempt} failed{why}, {after}"


def word_count(text: str) -> str:
    """`1 word`, `1,204 words`."""
    count = len(text.split())
    return f"{count:,} word{'' if count == 1 else 's'}"
