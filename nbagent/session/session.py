"""The session: a durable, append-only log, and the states that are folded from it.

`append` is the only verb that changes anything. It snapshots, validates, writes to storage, commits, folds and then
tells observers; an observer's failure is logged and contained, it never un-commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, overload

from nbagent.errors import SessionError
from nbagent.hooks import Hooks
from nbagent.logs import logger
from nbagent.registration import enlist
from nbagent.secrets import mask_json
from nbagent.session.derivation import Derivation
from nbagent.session.header import RequestFold
from nbagent.session.invariants import LogInvariants
from nbagent.session.message_projections import MessageProjections
from nbagent.session.shape import check_shape
from nbagent.session.surface import Surface
from nbagent.types.config import ToolHistory
from nbagent.types.events import Event, SessionHeader
from nbagent.types.frozen import FrozenDict, FrozenList, NotJsonError, freeze
from nbagent.types.messages import Message

__all__ = ("EventLog", "Session", "SessionEvent", "check_log", "restored_event")

_log = logger(__name__)
_ENVELOPE = frozenset({"type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs", "ignorable"})


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """`session/validate` and `session/event`: an event that is about to be committed, or was."""

    session: Session
    event: Event


class EventLog(Sequence[Event]):
    """A read-only view of a session's events.

    Attributes:
        session_id: Whose events.
    """

    __slots__ = ("_events", "session_id")

    def __init__(self, events: list[Event], session_id: str) -> None:
        self._events = events
        self.session_id = session_id

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        return self._events[index]

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __reversed__(self) -> Iterator[Event]:
        return reversed(self._events)

    def __repr__(self) -> str:
        return f"<{len(self._events)} events of {self.session_id}>"


class Session:
    """One session's log.

    Args:
        header: What the session is; an id alone makes a detached session.
        events: A log to begin with, validated; none for a fresh session.
        clock: Milliseconds since the epoch.
        inherited: `events` were taken over from a parent session.
        message_projections: How events of other types rewrite messages; none do by default.

    Attributes:
        header: Fixed at creation.
        hooks: Asked before and told after every commit; none by default.
        storage: Called with each event before it is committed; what it raises refuses the append.
        path: Where the session is kept, when that is a file.
        first_live_seq: Seq of the first event that this process appended.
        inherited_event_count: Events taken over from a parent session.
        publishing: Whether an append is under way: validated, stored, or told to observers.

    Raises:
        SessionError: The seed is no valid log.
    """

    def __init__(
        self,
        header: SessionHeader | str,
        events: Sequence[Event | Mapping[str, Any]] | None = None,
        *,
        clock: Callable[[], int] | None = None,
        inherited: bool = False,
        message_projections: MessageProjections | None = None,
    ) -> None:
        self._clock = clock or _now
        self.header = SessionHeader.new(header, self._clock()) if isinstance(header, str) else header
        self.hooks: Hooks | None = None
        self.storage: Callable[[Event], None] | None = None
        self.path: Path | None = None
        self.publishing = False
        self._events: list[Event] = []
        self._log = EventLog(self._events, self.header.id)
        self._surface = Surface()
        self._invariants = LogInvariants()
        self._requests = RequestFold()
        self._derivation = Derivation(self._events, self._surface, message_projections or MessageProjections())
        self._observers: list[Callable[[Event], object]] = []
        self._afterwards: list[Callable[[], object]] = []
        self.inherited_event_count = 0
        for value in events or ():
            try:
                self.restore(value)
            except SessionError as fault:
                fault.seq = len(self._events)
                raise
        self.first_live_seq = len(self._events)
        marked = bool(self._events) and self._events[-1].type == "session/end-seed"
        if inherited:
            self.inherited_event_count = len(self._events)
            self._commit(self._build("session/end-seed", freeze({"inherited": True}), None, None, ignorable=False))
        elif events is not None and not marked:
            self._commit(self._build("session/end-seed", freeze({}), None, None, ignorable=False))

    @property
    def id(self) -> str:
        return self.header.id

    def now(self) -> int:
        """Milliseconds since the epoch, by the clock that dates the events."""
        return self._clock()

    @property
    def events(self) -> EventLog:
        """The committed events, in order. Read only; grows with the session."""
        return self._log

    @property
    def surface(self) -> list[int]:
        """Seqs of the surface nodes, in order."""
        return list(self._surface.seqs)

    @property
    def system_nodes(self) -> list[int]:
        """Seqs of the surface nodes that hold the system prompt, in order."""
        return list(self._surface.system)

    @property
    def replace_generation(self) -> int:
        """How many positional replacements were committed."""
        return self._surface.replacements

    @property
    def content_generation(self) -> int:
        """How many positional replacements and rewrites of messages in their place were committed."""
        return self._surface.replacements + self._derivation.rewrites

    # -- appending -----------------------------------------------------------------------------------------------------

    def append(
        self,
        type: str,
        data: Mapping[str, Any],
        *,
        surface_op: str | Mapping[str, Any] | None = None,
        source_event_seqs: Sequence[int] | None = None,
        ignorable: bool = False,
    ) -> Event:
        """Commit one event; answers it, with a frozen snapshot of `data`.

        Args:
            type: One of the known types, one that has an interpreter, or any other with `ignorable`.
            data: Lossless JSON.
            surface_op: `"append"` or `{op: replace, startSeq, endSeq}`; required on message events, refused on others.
            source_event_seqs: Earlier events that this one was made from.
            ignorable: A reader that does not know `type` may skip the event.

        Raises:
            SessionError: `NOT_JSON`, `REENTRANT_APPEND`, `INVALID_EVENT`, `SURFACE_REFUSED`, `UNKNOWN_EVENT`.
            InvariantError: The event cannot come next.
            Exception: What a `session/validate` listener or the storage raised. Nothing is stored or committed.
        """
        try:
            snapshot = _snapshot(type, data)
            operation = freeze(surface_op) if surface_op is not None else None
            sources = freeze(list(source_event_seqs)) if source_event_seqs is not None else None
        except NotJsonError as fault:
            raise SessionError(
                f'session event "{type}" carries non-JSON-serializable data: {fault}', code="NOT_JSON"
            ) from fault
        if type == "session/end-seed":
            raise SessionError(f'only a session\'s constructor writes "{type}"', code="INVALID_EVENT")
        if self.publishing:
            raise SessionError(
                "session append cannot reenter while another append is being published", code="REENTRANT_APPEND"
            )
        # From here on nobody who is asked or told can append: what they would log would take this event's seq.
        self.publishing = True
        try:
            event = self._build(type, mask_json(snapshot), operation, sources, ignorable=ignorable)
            self._check(event)
            if self.hooks is not None:
                for listener in self.hooks.listeners("session/validate"):
                    listener(SessionEvent(self, event))
            if self.storage is not None:
                self.storage(event)
            self._commit(event)
            self._publish(event)
        finally:
            self.publishing = False
            self._unwind()
        return event

    def subscribe(self, observer: Callable[[Event], object]) -> Callable[[], None]:
        """Tell `observer` of every commit, before other listeners; answers a function that unsubscribes."""
        return enlist(self._observers, observer)

    def after_publication(self, callback: Callable[[], object]) -> None:
        """Call `callback` when no append is being published: now, or as soon as the present one has unwound."""
        if self.publishing:
            self._afterwards.append(callback)
        else:
            callback()

    # -- derived -------------------------------------------------------------------------------------------------------

    def messages(self, seqs: Sequence[int] | None = None) -> list[Message]:
        """The history as a model sees it: a fresh list of shared, frozen messages.

        A tool call that has no result although its step is closed is followed by one that says so.

        Args:
            seqs: Surface nodes, in their order, for the history that they alone make; all of them by default.

        Raises:
            SessionError: `INTERPRETER_MISSING`, what has rewritten messages here is no longer registered.
        """
        return self._derivation.messages(seqs)

    def request_header(self) -> FrozenDict | None:
        """The latest `{config, adapterDefaults?, tools?}`, or none."""
        return self._requests.header

    def request_context(self) -> FrozenDict | None:
        """The latest `{provider, model, contextWindow?, systemPromptUpdate?}`, or none."""
        return self._requests.context

    def tool_history(self) -> ToolHistory:
        """How the tool catalogue grew in the current series."""
        return self._requests.tool_history()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _build(self, type: str, data: FrozenDict, operation: Any, sources: Any, *, ignorable: bool) -> Event:
        return Event(type, len(self._events), self._clock(), data, operation, sources, ignorable)

    def _check(self, event: Event) -> None:
        check_shape(event.type, event.data, self._events)
        self._surface.check(event, self._events)
        self._invariants.check(event)
        self._derivation.check(event)

    def _commit(self, event: Event) -> None:
        self._events.append(event)
        self._surface.commit(event, self._events)
        self._invariants.commit(event)
        self._requests.commit(event)
        self._derivation.commit(event)

    def _publish(self, event: Event) -> None:
        for observer in list(self._observers):
            try:
                observer(event)
            except Exception:
                _log.exception("a session observer failed on event %d", event.seq)
        if self.hooks is not None:
            self.hooks.notify("session/event", SessionEvent(self, event))

    def _unwind(self) -> None:
        while self._afterwards and not self.publishing:
            try:
                self._afterwards.pop(0)()
            except Exception:
                _log.exception("work that waited for a publication failed")

    def restore(self, value: Event | Mapping[str, Any]) -> Event:
        """Take in a stored event without telling anybody; for logs that are being read."""
        index = len(self._events)
        event = value if isinstance(value, Event) else restored_event(value, index)
        if event.seq != index:
            raise SessionError(
                f"seed event at index {index} has seq {event.seq} (expected {index}); seed must be contiguous from 0",
                code="INVALID_SEED",
            )
        self._check(event)
        self._commit(event)
        if event.type == "session/end-seed" and event.data.get("inherited"):
            self.inherited_event_count = index
        return event


def _snapshot(type: str, data: Any) -> FrozenDict:
    if not isinstance(data, Mapping):
        raise NotJsonError(f"an event's data is an object, not {_name(data)}")
    fields = cast("Mapping[str, Any]", data)
    return _with_messages(type, freeze(fields if isinstance(fields, dict) else dict(fields)))


def _with_messages(type: str, data: FrozenDict) -> FrozenDict:
    """The data with its messages as `Message` objects; those that are already stay the same objects."""
    if type == "user/message":
        return Message.of(data)
    if type == "agent/inbox/spliced":
        inserted = data.get("inserted")
        found = cast("list[Any]", inserted) if isinstance(inserted, list) else []
        if all(isinstance(each, Message) for each in found):
            return data
        messages = [Message.of(cast("FrozenDict", each)) if isinstance(each, dict) else each for each in found]
        return FrozenDict({**data, "inserted": FrozenList(messages)})
    message = data.get("message")
    if isinstance(message, dict) and not isinstance(message, Message):
        return FrozenDict({**data, "message": Message.of(cast("dict[str, Any]", message))})
    return data


def restored_event(value: Mapping[str, Any], index: int) -> Event:
    """The event of a stored line; `index` is its place, for the error.

    Raises:
        SessionError: `INVALID_SEED`.
    """
    unknown = [key for key in value if key not in _ENVELOPE]
    if unknown:
        raise SessionError(f"seed event at index {index} has the unknown key {unknown[0]!r}", code="INVALID_SEED")
    kind, seq, moment = value.get("type"), value.get("seq"), value.get("time")
    if not isinstance(kind, str) or type(seq) is not int or type(moment) is not int:
        raise SessionError(f"seed event at index {index} has a malformed envelope", code="INVALID_SEED")
    if value.get("ignorable", True) is not True:
        raise SessionError(f"seed event at index {index} has an ignorable that is not true", code="INVALID_SEED")
    try:
        data = _snapshot(kind, value.get("data"))
        operation, sources = freeze(value.get("surfaceOp")), freeze(value.get("sourceEventSeqs"))
    except NotJsonError as fault:
        raise SessionError(f"seed event at index {index} is malformed: {fault}", code="INVALID_SEED") from fault
    return Event(kind, seq, moment, data, operation, sources, "ignorable" in value)


def _name(value: object) -> str:
    return type(value).__name__


def _now() -> int:
    return time.time_ns() // 1_000_000


def check_log(
    events: Sequence[Event | Mapping[str, Any]], *, message_projections: MessageProjections | None = None
) -> None:
    """Raise unless `events` are a log that every rule accepts.

    Args:
        events: The log.
        message_projections: How events of other types rewrite messages; none do by default.

    Raises:
        SessionError: What is broken; `InvariantError` for order and enclosure.
    """
    session = Session("check", message_projections=message_projections)
    for event in events:
        session.restore(event)
