"""What a store of sessions is: create, open, stat, list; and what its handles do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from nbagent.errors import InputError, StorageError
from nbagent.types.events import Event, SessionHeader

__all__ = ("Access", "Handle", "SessionStat", "Store", "check_batch", "check_session_id", "header_of")

Access = Literal["read", "write"]
_SESSION_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class SessionStat:
    """What a store knows of a session without reading it.

    Attributes:
        header: Its header.
        event_count: Stored events.
        size_bytes: Size on disk, when there is one.
        modified: When it was last written, in seconds since the epoch, when known.
        path: Its file, when it has one.
    """

    header: SessionHeader
    event_count: int
    size_bytes: int | None = None
    modified: float | None = None
    path: Path | None = None


class Handle(Protocol):
    """An open session. A write handle owns it: there is at most one over all processes."""

    @property
    def id(self) -> str: ...
    @property
    def header(self) -> SessionHeader: ...
    @property
    def access(self) -> Access: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def dropped_tail(self) -> bool:
        """Whether a last record that was cut in the middle was found; the next append drops it."""
        ...

    async def read(self, offset: int = 0, length: int | None = None) -> list[Event]:
        """The stored events from `offset`, a contiguous valid prefix of the log."""
        ...

    def append(self, events: Sequence[Event]) -> None:
        """Store events that follow the stored ones; returns when the operating system has them.

        Raises:
            StorageError: `STORAGE_WRITE_FAILED`, `OWNERSHIP_LOST`, `HANDLE_CLOSED`, `HANDLE_READ_ONLY`; nothing is
                stored.
        """
        ...

    async def flush(self) -> None:
        """Make what was appended safe against a power failure.

        Raises:
            StorageError: `STORAGE_WRITE_FAILED`, `OWNERSHIP_LOST`, `HANDLE_CLOSED`, `HANDLE_READ_ONLY`.
        """
        ...

    async def close(self) -> None:
        """Give the session back. May be called again."""
        ...


class Store(Protocol):
    """A place where sessions are kept."""

    async def create(self, header: SessionHeader | Mapping[str, Any]) -> Handle:
        """A write handle on a new session; nothing is stored before the first append.

        Raises:
            StorageError: `SESSION_ALREADY_EXISTS`, `STORAGE_UNAVAILABLE`.
            InputError: `INVALID_SESSION_ID`.
        """
        ...

    async def open(self, session_id: str, access: Access) -> Handle:
        """A handle on a stored session.

        Raises:
            StorageError: `SESSION_NOT_FOUND`, `SESSION_LOCKED`, `SESSION_DAMAGED`, `SESSION_FORMAT`.
        """
        ...

    async def stat(self, session_id: str) -> SessionStat | None:
        """What is known of a session, or none when there is no such session."""
        ...

    async def list(self) -> list[SessionStat]:
        """Every session, least recently written first."""
        ...

    async def flush(self) -> None:
        """Flush every write handle; a group of the failures is raised at the end."""
        ...


def check_session_id(session_id: str) -> None:
    """Raise unless the id may name a file.

    Raises:
        InputError: `INVALID_SESSION_ID`.
    """
    if not _SESSION_ID.fullmatch(session_id):
        raise InputError(
            f"session id {session_id!r} is not usable: use letters, digits, '.', '_' and '-', at most 128, and no '.' "
            "at the start",
            code="INVALID_SESSION_ID",
        )


def header_of(header: SessionHeader | Mapping[str, Any]) -> SessionHeader:
    """`header` checked."""
    return header if isinstance(header, SessionHeader) else SessionHeader.checked(header)


def check_batch(session_id: str, events: Sequence[Event], next_seq: int) -> None:
    """Raise unless the events continue the stored ones."""
    for offset, event in enumerate(events):
        if event.seq != next_seq + offset:
            raise StorageError(
                f'session "{session_id}": append of seq {event.seq}, expected {next_seq + offset}',
                code="STORAGE_WRITE_FAILED",
            )
