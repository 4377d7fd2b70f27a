"""What became of the input of a session: which turn's end accounts for it, and whether some of it never ran."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nbagent.types.events import Event

__all__ = ("ConsumedWork", "fold_consumed_work")


@dataclass(frozen=True, slots=True)
class ConsumedWork:
    """How work on a session's input has ended.

    Attributes:
        end: The latest `turn/end` that accounts for work: its turn entered a step, or it had claimed input and did not
            complete. None when there is none.
        dropped_unrun: Whether pending input was cancelled, and since then nothing was put in and no turn with work was
            begun and ended.
    """

    end: Event | None
    dropped_unrun: bool


def fold_consumed_work(events: Iterable[Event]) -> ConsumedWork:
    """What the log says of work that was asked for.

    Args:
        events: The log from its start.
    """
    end: Event | None = None
    dropped_at: int | None = None
    start = -1
    entered = claimed = False
    for event in events:
        data = event.data
        if event.type == "turn/start":
            start, entered, claimed = event.seq, False, False
        elif event.type == "step/start":
            entered = True
        elif event.type == "agent/inbox/spliced":
            if data["inserted"]:
                dropped_at = None
            elif data.get("outcome") == "canceled":
                dropped_at = event.seq
            else:
                claimed = True
        elif event.type == "turn/end" and (entered or (claimed and data["reason"]["kind"] != "completed")):
            end = event
            if dropped_at is not None and dropped_at < start:
                # What is cancelled while a turn runs is no part of that turn's work.
                dropped_at = None
    return ConsumedWork(end, dropped_at is not None)
