"""Which part of a history a summary may replace: older nodes of the surface, with every tool call beside its result."""

from __future__ import annotations

from nbagent.session.session import Session
from nbagent.session.shape import message_of

__all__ = ("compactable", "older_than_last_turn")


def compactable(session: Session, upto_seq: int) -> list[int]:
    """The surface nodes that a summary of everything up to an event would replace, in order; may be empty.

    The system prompt at the head stays. A cut between a tool call and its result moves back before the call.

    Args:
        session: Whose surface.
        upto_seq: Seq of the last event that may be replaced.
    """
    surface = session.surface
    first = 1 if surface and session.events[surface[0]].type == "system/message" else 0
    last = max((index for index, seq in enumerate(surface) if seq <= upto_seq), default=first - 1)
    older = surface[first : last + 1]
    return older[: _whole_pairs(session, older)]


def older_than_last_turn(session: Session) -> int:
    """Seq of the last event before the latest turn; when there is nothing to replace before it, of the last event."""
    for event in reversed(session.events):
        if event.type == "turn/start" and compactable(session, event.seq):
            return event.seq
        if event.type == "turn/start":
            break
    return len(session.events) - 1


def _whole_pairs(session: Session, nodes: list[int]) -> int:
    """How many of the nodes, from the first, hold only calls that are answered among them."""
    events = session.events
    answered = {
        events[seq].data["message"]["toolCallId"] for seq in session.surface if events[seq].type == "tool/result"
    }
    closed = next((event.seq for event in reversed(events) if event.type == "step/end"), -1)
    whole, open_calls = 0, set[str]()
    for index, seq in enumerate(nodes):
        message = message_of(events[seq])
        if message is not None:
            # A call of a closed step that has no result will not get one; there is nothing to keep it beside.
            calls = {call["id"] for call in message.tool_calls}
            open_calls |= calls if seq > closed else calls & answered
            open_calls.discard(message.tool_call_id or "")
        if not open_calls:
            whole = index + 1
    return whole
