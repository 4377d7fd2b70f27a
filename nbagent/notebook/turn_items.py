"""The items that a turn shows, and one moment of it.

They are frozen and replaced when something changes, so that a reader on another thread sees a consistent picture and
finds what changed by identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = ("Call", "CallState", "Item", "LateMessage", "Picture", "Prose", "RetryNotice", "Status", "TurnState")

CallState = Literal["queued", "running", "done", "error", "aborted"]
Status = Literal["waiting", "running", "stopping", "finished"]


@dataclass(frozen=True, slots=True)
class Prose:
    """Text from the model.

    Attributes:
        kind: `text` is Markdown of the answer, `reasoning` is plain text.
        open: More may come.
        interrupted: It ends where it was cut.
    """

    kind: Literal["text", "reasoning"]
    text: str
    open: bool = False
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """An image in a tool result; `data` is base64."""

    media_type: str
    data: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call.

    Attributes:
        call_id: The model's id; empty until the model has given one.
        arguments: The model's raw string, which need not be JSON.
        result: The text of the result; absent until there is one.
        state: `queued` until the call starts, `aborted` when it was ended or never begun.
        code: The code of a failed call, when it has one.
        started: Milliseconds since the epoch.
        ended: Milliseconds since the epoch.
    """

    call_id: str
    name: str
    arguments: str
    state: CallState = "queued"
    result: str | None = None
    pictures: tuple[Picture, ...] = ()
    code: str | None = None
    started: int | None = None
    ended: int | None = None


@dataclass(frozen=True, slots=True)
class RetryNotice:
    """An attempt failed, its text was withdrawn, and another one follows.

    Attributes:
        attempt: Number of the failed attempt within its step, from 1.
        code: The failure's code; empty when the log does not say.
        delay_ms: How long the loop waits, in milliseconds.
        waiting: The next attempt has not begun.
    """

    attempt: int
    code: str
    message: str
    delay_ms: int | None = None
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class LateMessage:
    """A message that entered while the turn was running."""

    text: str


Item: TypeAlias = Prose | Call | RetryNotice | LateMessage


@dataclass(frozen=True, slots=True)
class TurnState:
    """One moment of a turn; what it means is said at `TurnTranscript`."""

    turn: int | None
    model: str
    prompts: tuple[str, ...]
    items: tuple[Item, ...]
    status: Status
    reason: Mapping[str, Any] | None
    usage: Mapping[str, int]
    waiting_for: tuple[str, ...]
    started: int | None
    ended: int | None

    @property
    def partial(self) -> bool:
        """Whether the turn was cut before the model was done."""
        return self.reason is not None and self.reason["kind"] not in {"completed", "blocked"}
