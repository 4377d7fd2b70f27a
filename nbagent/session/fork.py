"""What a branch of a session begins with."""

from __future__ import annotations

from collections.abc import Sequence

from nbagent.errors import SessionError
from nbagent.session.repair import interrupted_turn_closers
from nbagent.types.events import Event

__all__ = ("fork_events",)


def fork_events(events: Sequence[Event], at_seq: int | None = None) -> list[Event]:
    """The log that a branch inherits: the events up to a boundary, and the closers of a turn that is open there.

    Args:
        events: The log of the session that is branched off.
        at_seq: Seq of the last inherited event; the last one of the log by default.

    Raises:
        SessionError: `INVALID_BOUNDARY`, the log has no such event.
    """
    if at_seq is None:
        inherited = list(events)
    elif type(at_seq) is int and 0 <= at_seq < len(events):
        inherited = list(events[: at_seq + 1])
    else:
        there = f"seqs 0 to {len(events) - 1}" if events else "no events"
        raise SessionError(
            f"a branch cannot end at seq {at_seq!r}: the session has {there}; name the last event to inherit",
            code="INVALID_BOUNDARY",
        )
    return [*inherited, *interrupted_turn_closers(inherited, variant="forked")]
