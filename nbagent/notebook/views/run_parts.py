"""A turn as the parts that the run view's page draws."""

from __future__ import annotations

from typing import Any

from nbagent.notebook.display import ARGUMENTS_LIMIT, REASONING_LIMIT, RESULT_LIMIT, shown_picture
from nbagent.notebook.markdown import render_markdown
from nbagent.notebook.markdown_blocks import BlockSplitter
from nbagent.notebook.turn_items import Call, Item, LateMessage, Prose, RetryNotice, TurnState
from nbagent.notebook.views.resync import Part
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

__all__ = ("RunParts", "head_of")

_PICTURES = 3_000_000
"""Characters of picture data that a view sends; later pictures appear when the turn ends."""


def head_of(state: TurnState) -> dict[str, Any]:
    """The facts of the header line."""
    kind = state.reason["kind"] if state.reason is not None else ""
    tone = {"": "", "completed": "", "error": "error"}.get(kind, "warning")
    return {
        "status": state.status,
        "line": status_line(state),
        "tone": "warning" if state.status == "stopping" else tone,
        "model": visible(state.model),
        "usage": usage_line(state.usage),
    }


class RunParts:
    """Composes the parts of one turn; a part whose item did not change is the same object again."""

    def __init__(self) -> None:
        self._made: list[tuple[Item, Part]] = []
        self._prompts: dict[str, Part] = {}
        self._splitters: dict[int, BlockSplitter] = {}

    def of(self, state: TurnState) -> list[Part]:
        """The parts of this moment. Call it on one thread at a time."""
        parts = [self._prompt(text) for text in state.prompts]
        calls = pictures = 0
        del self._made[len(state.items) :]
        for position, item in enumerate(state.items):
            if position >= len(self._made) or self._made[position][0] is not item:
                part = self._part(position, item, full=calls < FULL_CALLS, room=_PICTURES - pictures)
                self._made[position : position + 1] = [(item, part)]
            if isinstance(item, Call):
                calls += 1
                pictures += sum(len(picture.data) for picture in item.pictures)
            parts.append(self._made[position][1])
        if state.reason is not None and state.reason["kind"] == "error":
            parts.append({"kind": "failure", "text": bounded(str(state.reason["error"]["message"]), 2_000)})
        return parts

    def _prompt(self, text: str) -> Part:
        return self._prompts.setdefault(text, {"kind": "prompt", "text": bounded(text, PROMPT_LIMIT)})

    def _part(self, position: int, item: Item, *, full: bool, room: int) -> Part:
        match item:
            case Prose(kind="text"):
                return {"kind": "text", "blocks": self._blocks(position, item)}
            case Prose():
                label = f"Reasoning · {word_count(item.text)}" if not item.open else "Reasoning…"
                return {"kind": "reasoning", "label": label, "text": bounded(item.text, REASONING_LIMIT).lstrip()}
            case Call():
                return _call_part(item, full=full, room=room)
            case RetryNotice():
                return {"kind": "line", "text": retry_line(item)}
            case LateMessage():
                return {"kind": "prompt", "text": bounded(item.text, PROMPT_LIMIT)}

    def _blocks(self, position: int, prose: Prose) -> list[str]:
        if not prose.open:
            # Settled text is rendered once as a whole, as the saved output does.
            self._splitters.pop(position, None)
            return [render_markdown(answer_text(prose))]
        closed, rest = self._splitters.setdefault(position, BlockSplitter(foresee=True)).feed(visible(prose.text))
        return [*closed, rest] if rest else list(closed)


def _call_part(call: Call, *, full: bool, room: int) -> Part:
    arguments = pretty_arguments(call.arguments)
    pictures: list[str] = []
    for picture in call.pictures:
        address = shown_picture(picture) if len(picture.data) <= room else None
        room -= len(picture.data)
        pictures.append(address or picture.media_type)
    return {
        "kind": "call",
        "name": visible(call.name) or "…",
        "state": call.state,
        "mark": CALL_MARKS[call.state],
        "word": call_word(call),
        "preview": call_preview(call),
        "arguments": bounded(arguments, ARGUMENTS_LIMIT if full else SHORT),
        "result": bounded(call.result or "", RESULT_LIMIT // 2 if full else SHORT),
        "pictures": pictures,
    }
