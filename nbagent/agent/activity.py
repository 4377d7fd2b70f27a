"""What an agent is busy with: a driver running turns, or a maintenance job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio

from nbagent.cancellation import CancelSignal
from nbagent.types.config import CancelCause

__all__ = ("Aborted", "Activity", "logged_cause")


class Aborted(Exception):  # noqa: N818 - it ends a turn, it is no failure
    """The signal of the running turn is aborted: unwind to where the turn is ended."""


@dataclass(slots=True)
class Activity:
    """One activity of an agent.

    Attributes:
        kind: `driver` shows as running, `maintenance` as idle.
        signal: Aborts the present turn or the job; each turn of a driver has its own.
        ending: Whether its last turn is over and only has to be synced to disk.
        wake_requested: Whether input that arrived too late for this activity wants a driver afterwards.
        done: Set when the activity has converged.
    """

    kind: Literal["driver", "maintenance"]
    signal: CancelSignal = field(default_factory=CancelSignal)
    ending: bool = False
    wake_requested: bool = False
    done: anyio.Event = field(default_factory=anyio.Event)

    @property
    def disposing(self) -> bool:
        """Whether it was aborted because its agent goes away."""
        return self.signal.aborted and logged_cause(self.signal.reason)["kind"] == "disposed"


def logged_cause(reason: Any) -> CancelCause:
    """The log's copy of a live cancel cause: `{kind}`, or `{kind: hook, reason}`."""
    if not isinstance(reason, Mapping):
        return CancelCause.of({"kind": "user"})
    kind = str(reason.get("kind", "user"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    if kind == "hook":
        return CancelCause.of({"kind": "hook", "reason": str(reason.get("reason", ""))})  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return CancelCause.of({"kind": kind})
