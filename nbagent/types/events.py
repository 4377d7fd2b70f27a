"""The session event vocabulary, the envelope of an event and the header of a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nbagent.errors import StorageError
from nbagent.types.frozen import FrozenDict, FrozenList, Record

__all__ = (
    "CORE_TYPES",
    "FORMAT_VERSION",
    "LOG_ONLY_TYPES",
    "SURFACE_TYPES",
    "Event",
    "SessionHeader",
)

FORMAT_VERSION = 1
"""Version of the session format that this package writes, and the only one it reads."""

SURFACE_TYPES = frozenset({"system/message", "developer/message", "user/message", "assistant/message", "tool/result"})
"""Events that put a message on the model-visible surface; only these carry a surface operation."""

LOG_ONLY_TYPES = frozenset(
    {
        "turn/start",
        "turn/end",
        "step/start",
        "step/end",
        "tool/call",
        "request/header",
        "request/context",
        "assistant/frame",
        "agent/inbox/spliced",
        "session/end-seed",
        "llm/retry",
        "llm/retry-started",
    }
)

CORE_TYPES = SURFACE_TYPES | LOG_ONLY_TYPES
"""Every event type that this version understands."""


class Event:
    """One committed fact. `data` is a frozen mapping with the keys of the session file.

    Attributes:
        seq: Index in the log, from 0.
        time: Milliseconds since the epoch.
        surface_op: `"append"`, a frozen `{op: replace, startSeq, endSeq}`, or none.
        source_event_seqs: Earlier events this one was made from, or none.
        ignorable: Whether a reader that does not know `type` may skip it.
    """

    __slots__ = ("data", "ignorable", "seq", "source_event_seqs", "surface_op", "time", "type")

    def __init__(
        self,
        type: str,
        seq: int,
        time: int,
        data: FrozenDict,
        surface_op: str | FrozenDict | None = None,
        source_event_seqs: FrozenList | None = None,
        ignorable: bool = False,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "type", type)
        set_field(self, "seq", seq)
        set_field(self, "time", time)
        set_field(self, "data", data)
        set_field(self, "surface_op", surface_op)
        set_field(self, "source_event_seqs", source_event_seqs)
        set_field(self, "ignorable", ignorable)

    type: str
    seq: int
    time: int
    data: FrozenDict
    surface_op: str | FrozenDict | None
    source_event_seqs: FrozenList | None
    ignorable: bool

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError("Event is frozen")

    def __delattr__(self, name: str) -> None:
        raise TypeError("Event is frozen")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.type, self.seq, self.time))

    def __repr__(self) -> str:
        return f"Event({self.seq} {self.type} {self.data!r})"

    def to_json(self) -> dict[str, Any]:
        """The object of the file's line. Its parts are shared and frozen."""
        line: dict[str, Any] = {"type": self.type, "seq": self.seq, "time": self.time, "data": self.data}
        if self.surface_op is not None:
            line["surfaceOp"] = self.surface_op
        if self.source_event_seqs is not None:
            line["sourceEventSeqs"] = self.source_event_seqs
        if self.ignorable:
            line["ignorable"] = True
        return line


class SessionHeader(Record):
    """What a session is, fixed at its creation: `{version, id, createdAt, cwd?, parentSession?, ...}`."""

    __slots__ = ()

    @property
    def id(self) -> str:
        return self["id"]

    @property
    def version(self) -> int:
        return self["version"]

    @property
    def created_at(self) -> int:
        """Milliseconds since the epoch."""
        return self["createdAt"]

    @property
    def cwd(self) -> str | None:
        return self.get("cwd")

    @property
    def parent_session(self) -> str | None:
        return self.get("parentSession")

    @classmethod
    def new(cls, id: str, created_at: int, **fields: Any) -> SessionHeader:
        """A header of the current format; fields given as `None` are left out."""
        present = {key: value for key, value in fields.items() if value is not None}
        return cls.checked({"version": FORMAT_VERSION, "id": id, "createdAt": created_at, **present})

    @classmethod
    def checked(cls, value: Mapping[str, Any]) -> SessionHeader:
        """`value` as a header.

        Raises:
            StorageError: `SESSION_FORMAT`, the version is another one, or a field has the wrong shape.
        """
        version = value.get("version")
        if version != FORMAT_VERSION:
            newer = isinstance(version, int) and version > FORMAT_VERSION
            advice = "update jupyter-nbagent to read it" if newer else "it cannot be read by this version"
            raise StorageError(
                f"session header version must be {FORMAT_VERSION}, got {version!r}: {advice}", code="SESSION_FORMAT"
            )
        for name, valid in _HEADER_FIELDS.items():
            if name in value and not valid(value[name]):
                raise StorageError(f"session header {name} has a wrong value: {value[name]!r}", code="SESSION_FORMAT")
        missing = [name for name in ("id", "createdAt") if name not in value]
        unknown = [name for name in value if name not in _HEADER_FIELDS]
        if missing or unknown:
            fault = f"lacks {missing[0]}" if missing else f"has the unknown field {unknown[0]!r}"
            raise StorageError(f"session header {fault}", code="SESSION_FORMAT")
        return cls.of(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_flag(value: Any) -> bool:
    return value is True or value is False


def _is_origin(value: Any) -> bool:
    return value == "subagent"


def _is_absolute_path(value: Any) -> bool:
    return isinstance(value, str) and (value.startswith(("/", "\\\\")) or value[1:3] in {":\\", ":/"})


_HEADER_FIELDS: dict[str, Callable[[Any], bool]] = {
    "version": _is_count,
    "id": _is_name,
    "createdAt": _is_count,
    "cwd": _is_absolute_path,
    "parentSession": _is_name,
    "isSeeded": _is_flag,
    "origin": _is_origin,
    "delegationDepth": _is_count,
    "agentPreset": _is_name,
    "notebook": _is_name,
}
