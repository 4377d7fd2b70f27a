"""Projections: states folded from a session's log, kept up with every commit and readable at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from nbagent.errors import SessionError
from nbagent.logs import logger
from nbagent.registration import enlist
from nbagent.session import checkpoint as rows
from nbagent.session.checkpoint import Checkpoint, Restored
from nbagent.session.projection_unit import Fold, ProjectionUnit
from nbagent.session.session import Session
from nbagent.types.events import Event, SessionHeader

__all__ = ("ProjectionRegistry", "ProjectionUnit")

_log = logger(__name__)


@dataclass(slots=True)
class _Cell:
    """A unit's fold for one session, and who hears of its changes."""

    fold: Fold
    callbacks: list[Callable[[Any], object]] = field(default_factory=list[Callable[[Any], object]])


@dataclass(slots=True)
class _Registration:
    unit: ProjectionUnit
    count: int = 1
    cells: WeakKeyDictionary[Session, _Cell] = field(default_factory=WeakKeyDictionary[Session, _Cell])


class ProjectionRegistry:
    """The units that are folded, and their states for sessions and for logs that no session holds."""

    def __init__(self) -> None:
        self._registrations: dict[str, _Registration] = {}
        self._attached: dict[Session, Callable[[], None]] = {}

    def register(self, unit: ProjectionUnit) -> Callable[[], None]:
        """Fold `unit` from now on, existing logs included; answers a function that unregisters once.

        A key may be registered by several owners; it stays until the last of them has unregistered.

        Raises:
            SessionError: `PROJECTION_VERSION`, the key is registered with another state version.
        """
        registration = self._registrations.get(unit.key)
        if registration is None:
            registration = self._registrations[unit.key] = _Registration(unit)
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
            if done:
                return
            done = True
            registration.count -= 1
            if registration.count == 0:
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

    # -- of a session --------------------------------------------------------------------------------------------------

    def state(self, session: Session, key: str) -> Any:
        """The state of a unit now, none when the key is not registered. Do not change it.

        Raises:
            SessionError: `PROJECTION_FAILED`, the log cannot be folded.
        """
        registration = self._registrations.get(key)
        return None if registration is None else self._advance(registration, session).fold.state

    def snapshot(self, session: Session, keys: Sequence[str] | None = None) -> dict[str, Any]:
        """One consistent cut: `{asOfSeq, values}`, `asOfSeq` -1 for an empty log.

        Args:
            session: Whose log.
            keys: Which units, all by default; one that is not registered is left out.

        Raises:
            SessionError: `PROJECTION_FAILED`, the log cannot be folded, or a view is not what its schema says.
        """
        chosen = self._registrations if keys is None else [key for key in keys if key in self._registrations]
        folds = [self._advance(self._registrations[key], session).fold for key in list(chosen)]
        values = {fold.unit.key: fold.checked_view() for fold in folds}
        return {"asOfSeq": len(session.events) - 1, "values": values}

    def cached_snapshot(self, session: Session) -> dict[str, Any]:
        """What is folded already, as a cut: it may lag behind the log, and units that lag behind it are left out."""
        cells = [registration.cells.get(session) for registration in self._registrations.values()]
        folds = [cell.fold for cell in cells if cell is not None]
        furthest = max((fold.next_seq for fold in folds), default=0)
        values = {fold.unit.key: fold.checked_view() for fold in folds if fold.next_seq == furthest}
        return {"asOfSeq": furthest - 1, "values": values}

    def subscribe(self, session: Session, key: str, callback: Callable[[Any], object]) -> Callable[[], None]:
        """Call `callback(view)` once for each event that changes a unit's view; answers a function that unsubscribes.

        Raises:
            SessionError: `PROJECTION_NOT_REGISTERED`; `PROJECTION_FAILED` when the log cannot be folded.
        """
        registration = self._registrations.get(key)
        if registration is None:
            raise SessionError(f'no projection "{key}" is registered', code="PROJECTION_NOT_REGISTERED")
        return enlist(self._advance(registration, session).callbacks, callback)

    # -- of checkpoints ------------------------------------------------------------------------------------------------

    def checkpoint(self, session: Session) -> dict[str, Any]:
        """The states now, as detached JSON: `{key: {ver, seq, val}}`.

        Raises:
            SessionError: `PROJECTION_FAILED`.
        """
        return rows.checkpoint_of(self._advance(each, session).fold for each in list(self._registrations.values()))

    def hydrate(self, session: Session, checkpoint: Checkpoint) -> frozenset[str]:
        """Go on from the rows of a checkpoint instead of folding the session's log from its start.

        Only of use before states are read: a row that is behind what is folded already is passed over, like one that
        cannot be used. Answers the keys whose rows were taken.
        """
        taken: set[str] = set()
        for key, registration in self._registrations.items():
            fold = rows.usable_fold(registration.unit, checkpoint.get(key), end_seq=len(session.events) - 1)
            cell = registration.cells.get(session)
            if fold is not None and (cell is None or cell.fold.next_seq < fold.next_seq):
                registration.cells[session] = _Cell(fold, cell.callbacks if cell is not None else [])
                taken.add(key)
        return frozenset(taken)

    def restore_floor(self, checkpoint: Checkpoint) -> int:
        """Seq of the first event that `restore` needs beside the checkpoint; 0 without a usable row for every unit."""
        return rows.restore_floor(self._units(), checkpoint)

    def restore(
        self,
        checkpoint: Checkpoint,
        events: Sequence[Event],
        base_seq: int,
        header: SessionHeader,
        inherited_count: int = 0,
    ) -> Restored:
        """States of a stored log that no session holds, from a checkpoint and the events that follow it.

        Args:
            checkpoint: Rows, possibly none: `{}` folds the whole log.
            events: The log from `base_seq` to its end.
            base_seq: Seq of the first of them, `restore_floor(checkpoint)` or less.
            header: The session's.
            inherited_count: How many events the session has from its parent.

        Raises:
            SessionError: `PROJECTION_REREAD`, read the log from seq 0 and ask again; `PROJECTION_FAILED`.
        """
        return rows.restore(self._units(), checkpoint, events, base_seq, header, inherited_count)

    def view_checkpoint(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """The views of a checkpoint as it is; keys whose row cannot be used are left out."""
        return rows.view_checkpoint(self._units(), checkpoint)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _units(self) -> Iterable[ProjectionUnit]:
        return [registration.unit for registration in self._registrations.values()]

    def _drive(self, session: Session) -> None:
        for registration in list(self._registrations.values()):
            try:
                self._advance(registration, session)
            except SessionError:
                _log.exception('projection "%s" failed', registration.unit.key)

    def _advance(self, registration: _Registration, session: Session) -> _Cell:
        cell = registration.cells.get(session)
        if cell is None:
            fold = Fold(registration.unit, registration.unit.init(session.header, session.inherited_event_count))
            cell = registration.cells[session] = _Cell(fold)
        fold, events = cell.fold, session.events
        while fold.next_seq < len(events):
            # Views are made for those who watch; nobody else pays for them.
            watched = bool(cell.callbacks)
            before = _view(fold) if watched else None
            fold.advance(events[fold.next_seq])
            if watched and _view(fold) is not before:
                _tell(cell)
        return cell


def _view(fold: Fold) -> Any:
    try:
        return fold.view()
    except Exception:
        _log.exception('the view of projection "%s" failed', fold.unit.key)
        return None


def _tell(cell: _Cell) -> None:
    for callback in list(cell.callbacks):
        try:
            callback(cell.fold.checked_view())
        except Exception:
            _log.exception('an observer of projection "%s" failed', cell.fold.unit.key)
