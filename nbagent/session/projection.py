"""Projections: states folded from a session's log, kept up with every commit and readable at any time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from nbagent.errors import SessionError
from nbagent.logs import logger
from nbagent.registration import enlist
from nbagent.session.session import Session
from nbagent.types.events import Event, SessionHeader

__all__ = ("ProjectionRegistry", "ProjectionUnit")

_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class ProjectionUnit:
    """One fold.

    Attributes:
        key: Its name.
        state_version: Raised when the shape of the state changes.
        init: Answers the state of an empty log, given the session's header.
        apply: Answers the state after an event; the same object when the event is of no interest. Pure.
        view: What readers of a snapshot get of a state; the state itself by default.
    """

    key: str
    state_version: int
    init: Callable[[SessionHeader], Any]
    apply: Callable[[Any, Event], Any]
    view: Callable[[Any], Any] | None = None


@dataclass(slots=True)
class _Cell:
    """A unit's state for one session, and how far it has come."""

    state: Any
    next_seq: int = 0
    callbacks: list[Callable[[Any], object]] = field(default_factory=list[Callable[[Any], object]])


@dataclass(slots=True)
class _Registration:
    unit: ProjectionUnit
    count: int = 1
    cells: WeakKeyDictionary[Session, _Cell] = field(default_factory=WeakKeyDictionary[Session, _Cell])


class ProjectionRegistry:
    """The units that are folded, and their states for the attached sessions."""

    def __init__(self) -> None:
        self._registrations: dict[str, _Registration] = {}
        self._attached: dict[Session, Callable[[], None]] = {}

    def register(self, unit: ProjectionUnit) -> Callable[[], None]:
        """Fold `unit` from now on, existing logs included; answers a function that unregisters once.

        Raises:
            SessionError: `PROJECTION_VERSION`, the key is registered with another state version.
        """
        registration = self._registrations.get(unit.key)
        if registration is None:
            self._registrations[unit.key] = _Registration(unit)
        elif registration.unit.state_version != unit.state_version:
            raise SessionError(
                f'projection "{unit.key}" is registered with state version {registration.unit.state_version}, '
                f"not {unit.state_version}",
                code="PROJECTION_VERSION",
            )
        else:
            registration.count += 1
        done = False

        def unregister() -> None:
            nonlocal done
            held = self._registrations.get(unit.key)
            if done or held is None:
                return
            done = True
            held.count -= 1
            if held.count == 0:
                del self._registrations[unit.key]

        return unregister

    def attach(self, session: Session) -> None:
        """Follow every commit of a session."""
        if session not in self._attached:
            self._attached[session] = session.subscribe(lambda _event: self._drive(session))

    def detach(self, session: Session) -> None:
        """Stop following a session; its states stay readable, they catch up when they are read."""
        unsubscribe = self._attached.pop(session, None)
        if unsubscribe is not None:
            unsubscribe()

    def state(self, session: Session, key: str) -> Any:
        """The state of a unit now. Do not change it.

        Raises:
            SessionError: `PROJECTION_NOT_REGISTERED`; `PROJECTION_FAILED` when the log cannot be folded.
        """
        registration = self._registrations.get(key)
        if registration is None:
            raise SessionError(
                f'agent "{session.id}" cannot read {key} state: its projection registration is not active',
                code="PROJECTION_NOT_REGISTERED",
            )
        return self._advance(registration, session).state

    def snapshot(self, session: Session, keys: Sequence[str] | None = None) -> dict[str, Any]:
        """One consistent cut: `{asOfSeq, values}`, `asOfSeq` -1 for an empty log."""
        chosen = list(self._registrations) if keys is None else [key for key in keys if key in self._registrations]
        values: dict[str, Any] = {}
        for key in chosen:
            view = self._registrations[key].unit.view
            state = self.state(session, key)
            values[key] = state if view is None else view(state)
        return {"asOfSeq": len(session.events) - 1, "values": values}

    def subscribe(self, session: Session, key: str, callback: Callable[[Any], object]) -> Callable[[], None]:
        """Call `callback(state)` after each commit that changed the state; answers a function that unsubscribes."""
        self.state(session, key)
        return enlist(self._registrations[key].cells[session].callbacks, callback)

    def _drive(self, session: Session) -> None:
        for registration in list(self._registrations.values()):
            try:
                self._advance(registration, session)
            except SessionError:
                _log.exception('projection "%s" failed', registration.unit.key)

    def _advance(self, registration: _Registration, session: Session) -> _Cell:
        cell = registration.cells.get(session)
        if cell is None:
            cell = registration.cells[session] = _Cell(registration.unit.init(session.header))
        events = session.events
        before = cell.state
        while cell.next_seq < len(events):
            event = events[cell.next_seq]
            try:
                cell.state = registration.unit.apply(cell.state, event)
            except Exception as fault:
                raise SessionError(
                    f"invalid persisted {registration.unit.key} splice at session seq {event.seq}"
                    if event.type == "agent/inbox/spliced"
                    else f'projection "{registration.unit.key}" failed at session seq {event.seq}: {fault}',
                    code="PROJECTION_FAILED",
                ) from fault
            cell.next_seq += 1
        if cell.state is not before:
            for callback in list(cell.callbacks):
                try:
                    callback(cell.state)
                except Exception:
                    _log.exception('an observer of projection "%s" failed', registration.unit.key)
        return cell
