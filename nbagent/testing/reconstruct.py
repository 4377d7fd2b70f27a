"""What was sent, rebuilt from a log alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nbagent.errors import SessionError
from nbagent.session import Session
from nbagent.session.message_projections import MessageProjections
from nbagent.types.config import CallConfig, Request, ToolDeclaration
from nbagent.types.events import Event

__all__ = ("sent_requests",)


def sent_requests(
    events: Session | Iterable[Event | Mapping[str, Any]],
    session_id: str | None = None,
    *,
    message_projections: MessageProjections | None = None,
) -> list[Request]:
    """The requests that the loop built, in order, as folding the log gives them.

    A request is the state of the log when the first frame of its attempt came, or its message when the model sent no
    frame; an attempt that failed or was cancelled before anything arrived leaves none.

    Args:
        events: A session, its `events`, a list of events, or the objects of a session file's lines with the header
            line first.
        session_id: The session's id, for a list of events, which does not hold it.
        message_projections: How events of other types rewrite messages; none do by default.

    Raises:
        SessionError: It is no valid log, or an answer in it has no request header.
    """
    if isinstance(events, Session):
        events = events.events
    owner = session_id or str(getattr(events, "session_id", ""))
    session = Session(owner or "log", message_projections=message_projections)
    requests: list[Request] = []
    attempt: tuple[int, int, int] | None = None
    for value in events:
        if isinstance(value, Mapping) and value.get("type") == "session":
            owner = session_id or value["id"]
            continue
        if attempt is None and _answers_without_frame(value):
            requests.append(_request(session, owner))
        event = session.restore(value)
        if event.type in {"step/start", "assistant/message", "llm/retry-started"}:
            attempt = None
        elif event.type == "assistant/frame":
            place = (event.data["turn"], event.data["step"], event.data["attempt"])
            if place != attempt:
                requests.append(_request(session, owner))
            attempt = None if _failed(event) else place
    return requests


def _answers_without_frame(value: Event | Mapping[str, Any]) -> bool:
    kind, data = (value.type, value.data) if isinstance(value, Event) else (value.get("type"), value.get("data", {}))
    # An interrupted message is made from frames; those of a failed attempt, when the cancel came right behind it.
    return kind == "assistant/message" and not data.get("interrupted")


def _failed(frame: Event) -> bool:
    last = frame.data["chunks"][-1]
    return last["type"] == "finish" and last["reason"]["kind"] in {"error", "aborted"}


def _request(session: Session, session_id: str) -> Request:
    header = session.request_header()
    if header is None:
        raise SessionError("the log has an answer and no request header before it", code="INVALID_EVENT")
    return Request(
        config=CallConfig.of(header["config"]),
        messages=tuple(session.messages()),
        tools=tuple(ToolDeclaration.of(tool) for tool in header.get("tools", ())),
        tool_history=session.tool_history(),
        session_id=session_id,
    )
