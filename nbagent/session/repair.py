"""Closers: the events that make an interrupted log whole again, and results for tool calls that have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from nbagent.types.assembler import Assembler
from nbagent.types.events import Event
from nbagent.types.frozen import FrozenDict, freeze
from nbagent.types.messages import assistant_message, text_block, tool_message

__all__ = ("PendingCalls", "Variant", "interrupted_turn_closers", "recovery_result")

Variant = Literal["interrupted", "forked"]

_RETRY_ADVICE = (
    "Decide whether to retry from the tool semantics: retry only if the operation is read-only or idempotent; if it may "
    "have side effects, first verify external state or ask the user. Do not retry blindly."
)
_TEXTS = {
    ("interrupted", True): "The tool call was interrupted after it was recorded, but no result was durably recorded. "
    "Its outcome is unknown. " + _RETRY_ADVICE,
    (
        "interrupted",
        False,
    ): "The tool call was interrupted before the Harness recorded it as started. Retry it if it is still needed.",
    ("forked", True): "The history inherited by this branch records this tool call starting but does not include its "
    "result. The parent session may have completed it after the fork point. " + _RETRY_ADVICE,
    ("forked", False): "The history inherited by this branch has no record of this tool call starting. The parent "
    "session may have executed it after the fork point. " + _RETRY_ADVICE,
}


class PendingCalls:
    """The tool calls of one step that have no result yet, in the order of the answer."""

    def __init__(self, turn: int, step: int) -> None:
        self._place = (turn, step)
        self._calls: dict[str, tuple[str, int | None]] = {}

    def observe(self, event: Event) -> None:
        """Follow a committed event; events of other steps do not count."""
        data = event.data
        if (data.get("turn"), data.get("step")) != self._place:
            return
        if event.type == "assistant/message":
            for block in data["message"]["content"]:
                if block["type"] == "tool-call":
                    self._calls[block["id"]] = (block["name"], None)
        elif event.type == "tool/call" and data["callId"] in self._calls:
            self._calls[data["callId"]] = (data["name"], event.seq)
        elif event.type == "tool/result" and event.surface_op == "append":
            self._calls.pop(data["message"]["toolCallId"], None)

    def unsettled(self) -> list[tuple[str, str, int | None]]:
        """`(call id, tool name, seq of its tool/call or none)` for each call without a result."""
        return [(call_id, name, seq) for call_id, (name, seq) in self._calls.items()]


def recovery_result(
    call_id: str, call_seq: int | None, seq: int, turn: int, step: int, *, variant: Variant = "interrupted"
) -> tuple[FrozenDict, list[int] | None]:
    """Data and sources of the `tool/result` for a call that will never get its own.

    Args:
        call_id: The call.
        call_seq: Seq of its `tool/call`; none when it was never recorded as started.
        seq: Seq that the result will have.
        turn: Its turn.
        step: Its step.
        variant: `interrupted`, or `forked` for a call whose parent session may have gone on.
    """
    started = call_seq is not None
    error = (
        {"name": "ToolOutcomeUnknownError", "code": "TOOL_OUTCOME_UNKNOWN"}
        if started
        else {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    )
    content = [text_block(_TEXTS[variant, started])]
    message = tool_message(call_id, content, is_error=True, id=f"{variant}-tool-result-{call_id}-{seq}")
    data = freeze({"turn": turn, "step": step, "message": message, "error": error})
    return data, [call_seq] if call_seq is not None else None


def interrupted_turn_closers(events: Sequence[Event], *, variant: Variant = "interrupted") -> list[Event]:
    """The events that close a turn that the log leaves open: none for a log without an open turn.

    The text that a cut stream had shown becomes its interrupted message, unanswered calls of the open step get recovery
    results, the step and the turn are ended. Deterministic: seqs continue the log, times repeat the last one.

    Args:
        events: The log.
        variant: `interrupted` when the process of the turn died, `forked` when a branch was cut in its middle.
    """
    place = _open_place(events)
    if place is None:
        return []
    turn, step, step_start = place
    closers: list[Event] = []

    def close(type: str, data: dict[str, Any] | FrozenDict, op: str | None = None, sources: Any = None) -> None:
        seq = len(events) + len(closers)
        frozen_sources = freeze(sources) if sources is not None else None
        closers.append(Event(type, seq, events[-1].time, freeze(data), op, frozen_sources))

    if step is not None:
        shown = _cut_answer(events, step_start, variant)
        if shown is not None:
            close("assistant/message", {"turn": turn, "step": step, **shown}, "append")
        calls = PendingCalls(turn, step)
        for event in events[step_start:]:
            calls.observe(event)
        for call_id, _name, call_seq in calls.unsettled():
            data, sources = recovery_result(call_id, call_seq, len(events) + len(closers), turn, step, variant=variant)
            close("tool/result", data, "append", sources)
        close("step/end", {"turn": turn, "step": step})
    close("turn/end", {"turn": turn, "reason": {"kind": variant}})
    return closers


def _open_place(events: Sequence[Event]) -> tuple[int, int | None, int] | None:
    """The open turn, its open step and that step's seq."""
    for event in reversed(events):
        if event.type == "turn/end":
            return None
        if event.type == "turn/start":
            return event.data["turn"], None, event.seq
        if event.type == "step/end":
            return event.data["turn"], None, event.seq
        if event.type == "step/start":
            return event.data["turn"], event.data["step"], event.seq
    return None


def _cut_answer(events: Sequence[Event], step_start: int, variant: Variant) -> dict[str, Any] | None:
    frames: list[Event] = []
    for event in events[step_start:]:
        if event.type == "assistant/message":
            return None
        if event.type == "assistant/frame":
            if frames and frames[-1].data["attempt"] != event.data["attempt"]:
                frames.clear()
            frames.append(event)
        elif event.type in {"llm/retry", "llm/retry-started"}:
            # The attempt had failed and was withdrawn before the process died.
            frames.clear()
    assembler = Assembler(chunk for frame in frames for chunk in frame.data["chunks"])
    if assembler.finish is not None and assembler.finish["kind"] == "error":
        # It had failed, and only what is retried or told as an error comes of that.
        return None
    blocks = assembler.interrupted_blocks()
    config = next((e.data["header"]["config"] for e in reversed(events) if e.type == "request/header"), None)
    if not blocks or config is None:
        return None
    message = assistant_message(
        blocks,
        provider=config["provider"],
        model=config["model"],
        id=f"{variant}-answer-{frames[0].seq}",
    )
    answer: dict[str, Any] = {"message": message, "interrupted": True}
    if assembler.usage is not None:
        answer["usage"] = assembler.usage
    return answer
