"""What was sent, rebuilt from a log alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nbagent.session import Session
from nbagent.types.config import CallConfig, Request, ToolDeclaration
from nbagent.types.events import Event

__all__ = ("sent_requests",)


def sent_requests(events: Sequence[Event | Mapping[str, Any]], session_id: str | None = None) -> list[Request]:
    """The requests that the loop built, in order.

    A request is the state of the log when the first frame of its attempt came; an attempt of which nothing arrived
    leaves none.

    Args:
        events: The log.
        session_id: The session's id, which events do not hold; `session.events` knows it.
    """
    owner = session_id or str(getattr(events, "session_id", ""))
    session = Session(owner or "log")
    requests: list[Request] = []
    attempts: set[tuple[int, int, int]] = set()
    for value in events:
        event = session.restore(value)
        if event.type == "assistant/frame":
            attempt = (event.data["turn"], event.data["step"], event.data["attempt"])
            if attempt not in attempts:
                attempts.add(attempt)
                requests.append(_request(session, owner))
    return requests


def _request(session: Session, session_id: str) -> Request:
    header = session.request_header()
    if header is None:
        raise ValueError("the log has an answer without a request header")
    return Request(
        config=CallConfig.of(header["config"]),
        messages=tuple(session.messages()),
        tools=tuple(ToolDeclaration.of(tool) for tool in header.get("tools", ())),
        tool_history=session.tool_history(),
        session_id=session_id,
    )
