"""A step that failed leaves no tool call without a result."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from nbagent.session import Session
from nbagent.session.repair import PendingCalls, recovery_result

__all__ = ("recorded_recovery",)


@contextmanager
def recorded_recovery(session: Session, turn: int, step: int) -> Generator[None]:
    """Follow the tool calls of a step; when its body raises, record a result for each call that has none.

    A call that the log shows as started gets an unknown outcome, one that it does not show was never started. The
    failure goes on; when a result cannot be recorded, both failures go on as a group caused by the first.
    """
    calls = PendingCalls(turn, step)
    unsubscribe = session.subscribe(calls.observe)
    try:
        yield
    except BaseException as failure:
        unsubscribe()
        try:
            for call_id, _name, call_seq in calls.unsettled():
                data, sources = recovery_result(call_id, call_seq, len(session.events), turn, step)
                session.append("tool/result", data, surface_op="append", source_event_seqs=sources)
        except Exception as recovery_failure:
            members = [failure, recovery_failure]
            raise BaseExceptionGroup(
                "Step failed and its pending tool results could not be recorded", members
            ) from failure
        raise
    finally:
        unsubscribe()
