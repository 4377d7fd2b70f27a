"""What is folded: a projection's definition, and its state for one log with the watermark of how far it has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nbagent.errors import SessionError
from nbagent.types.events import Event, SessionHeader

__all__ = ("Fold", "ProjectionUnit", "fold_failed")


@dataclass(frozen=True, slots=True)
class ProjectionUnit:
    """One fold. Its functions are pure and synchronous, its states JSON; tuples count as lists.

    Attributes:
        key: Its name.
        state_version: Raised when the shape of the state changes; a checkpoint of another version is not used.
        init: Answers the state of an empty log, given the session's header and how many events are inherited.
        apply: Answers the state after an event; the same object when the event is of no interest.
        view: What readers of a snapshot get of a state; the state itself by default. The same object when nothing that
            they see has changed.
        state_schema: Answers the state that a checkpoint's JSON value stands for; a raise refuses the value. Without it
            the frozen value is the state.
        view_schema: Raises unless a view is what its readers expect.
    """

    key: str
    state_version: int
    init: Callable[[SessionHeader, int], Any]
    apply: Callable[[Any, Event], Any]
    view: Callable[[Any], Any] | None = None
    state_schema: Callable[[Any], Any] | None = None
    view_schema: Callable[[Any], object] | None = None


_NOTHING = object()


class Fold:
    """A unit's state for one log.

    Attributes:
        unit: What is folded.
        state: The state after the events below `next_seq`.
        next_seq: The only event that can be applied next; no event is applied twice or left out.
    """

    __slots__ = ("_checked", "_view", "_viewed", "next_seq", "state", "unit")

    def __init__(self, unit: ProjectionUnit, state: Any, next_seq: int = 0) -> None:
        self.unit = unit
        self.state = state
        self.next_seq = next_seq
        self._viewed: Any = _NOTHING
        self._view: Any = None
        self._checked: Any = _NOTHING

    def advance(self, event: Event) -> None:
        """Apply `event`, unless it was applied already.

        Raises:
            SessionError: `PROJECTION_FAILED`, an event is missing before it, or it cannot be folded; the state stays.
        """
        if event.seq < self.next_seq:
            return
        if event.seq > self.next_seq:
            raise fold_failed(f'projection "{self.unit.key}" cannot advance across missing seq {self.next_seq}')
        try:
            self.state = self.unit.apply(self.state, event)
        except SessionError:
            # The unit says itself what is wrong with the log.
            raise
        except Exception as fault:
            raise fold_failed(f'projection "{self.unit.key}" failed at session seq {event.seq}: {fault}') from fault
        self.next_seq += 1

    def view(self) -> Any:
        """What readers get of the state, made once a state; not yet checked."""
        if self._viewed is not self.state:
            self._view = self.state if self.unit.view is None else self.unit.view(self.state)
            self._viewed = self.state
        return self._view

    def checked_view(self) -> Any:
        """The same, when the unit's schema takes it.

        Raises:
            SessionError: `PROJECTION_FAILED`.
        """
        try:
            view = self.view()
            if self._checked is not view and self.unit.view_schema is not None:
                self.unit.view_schema(view)
        except Exception as fault:
            raise fold_failed(
                f'projection "{self.unit.key}" has an invalid view at session seq {self.next_seq - 1}: {fault}'
            ) from fault
        self._checked = view
        return view


def fold_failed(message: str) -> SessionError:
    """The error of a log that a projection cannot fold."""
    return SessionError(message, code="PROJECTION_FAILED")
