"""Checkpoints: states of projections that are kept beside a log, so that it need not be folded from its first event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nbagent.errors import SessionError
from nbagent.session.projection_unit import Fold, ProjectionUnit, fold_failed
from nbagent.types.events import Event, SessionHeader
from nbagent.types.frozen import freeze, thaw

__all__ = ("Checkpoint", "Restored", "checkpoint_of", "restore", "restore_floor", "usable_fold", "view_checkpoint")

Checkpoint = Mapping[str, Any]
"""A row `{ver, seq, val}` for each key: the state's version, the last event in it (-1 for none), the state as JSON."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Projections of a log that no session holds.

    Attributes:
        states: The state of each unit, by key.
        snapshot: `{asOfSeq, values}` as of a live session.
        checkpoint: Rows to go on from the next time.
    """

    states: dict[str, Any]
    snapshot: dict[str, Any]
    checkpoint: dict[str, Any]


def checkpoint_of(folds: Iterable[Fold]) -> dict[str, Any]:
    """Rows that share nothing with the folds."""
    return {
        fold.unit.key: {"ver": fold.unit.state_version, "seq": fold.next_seq - 1, "val": thaw(fold.state)}
        for fold in folds
    }


def usable_fold(unit: ProjectionUnit, row: Any, base_seq: int = 0, end_seq: int | None = None) -> Fold | None:
    """The fold that a row holds, when it can go on with the events from `base_seq` to `end_seq`; otherwise none.

    Args:
        unit: What was folded.
        row: A row of a checkpoint, or whatever stands in its place.
        base_seq: Seq of the first event at hand.
        end_seq: Seq of the last event of the log; a row beyond it is of a log that has shrunk. Not known by default.
    """
    if not isinstance(row, Mapping):
        return None
    fields = cast("Mapping[str, Any]", row)
    seq = fields.get("seq")
    if type(seq) is not int or fields.get("ver") != unit.state_version or "val" not in fields:
        return None
    if seq < max(base_seq, 0) - 1 or (end_seq is not None and seq > end_seq):
        return None
    try:
        state = freeze(thaw(fields["val"]))
        return Fold(unit, state if unit.state_schema is None else unit.state_schema(state), seq + 1)
    except Exception:
        # However it is damaged: without the row the log is folded, and that cannot be wrong.
        return None


def restore_floor(units: Iterable[ProjectionUnit], checkpoint: Checkpoint) -> int:
    """Seq of the first event that `restore` needs.

    It is the last event in the row that is furthest behind, although that was applied: when the log has become
    shorter, it is not there. Without a usable row for every unit it is 0.
    """
    folds = [usable_fold(unit, checkpoint.get(unit.key)) for unit in units]
    return max(0, min((fold.next_seq - 1 if fold is not None else 0 for fold in folds), default=0))


def restore(
    units: Iterable[ProjectionUnit],
    checkpoint: Checkpoint,
    events: Sequence[Event],
    base_seq: int,
    header: SessionHeader,
    inherited_count: int,
) -> Restored:
    """Fold a log from the rows of a checkpoint, or from its start where a row cannot be used.

    Args:
        units: What is folded.
        checkpoint: Rows, possibly none.
        events: The log from `base_seq` to its end.
        base_seq: Seq of the first of them, `restore_floor` or less.
        header: The session's.
        inherited_count: How many events the session has from its parent.

    Raises:
        SessionError: `PROJECTION_REREAD`, a row cannot be used and the log's start is not at hand;
            `PROJECTION_FAILED`, an event is missing or cannot be folded, or a view is invalid.
    """
    for offset, event in enumerate(events):
        if event.seq != base_seq + offset:
            raise fold_failed(f"projections cannot advance across missing seq {base_seq + offset}")
    end_seq = base_seq + len(events) - 1
    folds: list[Fold] = []
    for unit in units:
        fold = usable_fold(unit, checkpoint.get(unit.key), base_seq, end_seq)
        if fold is None and base_seq > 0:
            raise SessionError(
                f'projection "{unit.key}" cannot go on from seq {base_seq}, its checkpoint row is of another version, '
                "damaged, or ahead of the log: re-read from seq 0",
                code="PROJECTION_REREAD",
            )
        fold = fold or Fold(unit, unit.init(header, inherited_count))
        for event in events[fold.next_seq - base_seq :]:
            fold.advance(event)
        folds.append(fold)
    return Restored(
        {fold.unit.key: fold.state for fold in folds},
        {"asOfSeq": end_seq, "values": {fold.unit.key: fold.checked_view() for fold in folds}},
        checkpoint_of(folds),
    )


def view_checkpoint(units: Iterable[ProjectionUnit], checkpoint: Checkpoint) -> dict[str, Any]:
    """The views of the rows as they are, without a log; keys whose row cannot be used are left out."""
    views: dict[str, Any] = {}
    for unit in units:
        fold = usable_fold(unit, checkpoint.get(unit.key))
        if fold is not None:
            try:
                views[unit.key] = fold.checked_view()
            except SessionError:
                continue
    return views
