"""Asking somebody whether a call may run: what an approval service is given, and what it may answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nbagent.cancellation import CancelSignal, Interrupted, WaitCancelledError
from nbagent.errors import InputError
from nbagent.tools.points import ToolCall

__all__ = ("Approval", "ApprovalRequest", "ApprovalService", "RecordApproval", "ask_for_approval", "reason_against")

_GRACE = 0.1
"""Seconds that a service gets to end by itself when the turn is cancelled."""


class Approval(StrEnum):
    """What became of a question. Services may also answer the plain texts."""

    ALLOWED_ONCE = "allowed-once"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """The question whether a call may run.

    Attributes:
        agent: Whose call.
        call: The call, its arguments frozen.
        reason: Why policy asks, or none.
        signal: Aborts when the turn is cancelled; the question is moot then.
    """

    agent: Any
    call: ToolCall
    reason: str | None
    signal: CancelSignal


ApprovalService = Callable[[ApprovalRequest], Awaitable[Approval | str]]
RecordApproval = Callable[[str, Mapping[str, Any]], object]
"""Puts an event about an approval into the log of the agent."""


async def ask_for_approval(service: ApprovalService, request: ApprovalRequest, record: RecordApproval) -> Approval:
    """Ask `service`; question and answer are recorded, the answer whatever happens.

    A question whose answer can no longer come, because the turn or what the service waits for was cancelled, is
    `cancelled`. A service that fails is recorded as `unavailable`, and its failure goes on.

    Raises:
        InputError: `INVALID_DECISION`, the service answered something else.
        Interrupted: The turn was cancelled before there was an answer.
        Exception: What the service raised.
    """
    told: dict[str, Any] = {"callId": request.call.call_id, "name": request.call.name}
    record("approval/requested", told if request.reason is None else {**told, "reason": request.reason})
    outcome = Approval.CANCELLED
    try:
        outcome = _accepted(await request.signal.run(lambda: service(request), grace=_GRACE))
    except WaitCancelledError:
        pass
    except Interrupted:
        raise
    except Exception:
        outcome = Approval.UNAVAILABLE
        raise
    finally:
        record("approval/answered", {**told, "outcome": str(outcome)})
    if outcome is Approval.CANCELLED and request.signal.aborted:
        raise Interrupted
    return outcome


def reason_against(outcome: Approval, name: str) -> str | None:
    """Why a call of the tool `name` may not run after this outcome; none when it may."""
    if outcome is Approval.ALLOWED_ONCE:
        return None
    if outcome is Approval.REJECTED:
        return f'the user rejected tool "{name}"'
    if outcome is Approval.CANCELLED:
        return f'approval for tool "{name}" was cancelled'
    return f'tool "{name}" requires approval, but no approval channel is available'


def _accepted(answer: Any) -> Approval:
    try:
        return Approval(answer)
    except ValueError:
        known = ", ".join(Approval)
        raise InputError(
            f"an approval service must answer one of {known}, got {answer!r}"[:300], code="INVALID_DECISION"
        ) from None
