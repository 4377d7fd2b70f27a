"""Sessions in memory: for tests and for programs that keep nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbagent.errors import StorageError
from nbagent.storage.store import Access, SessionStat, check_batch, check_session_id, header_of
from nbagent.types.events import Event, SessionHeader

__all__ = ("MemoryStore",)


@dataclass(slots=True)
class _Stored:
    header: SessionHeader
    events: list[Event] = field(default_factory=list[Event])
    writer: _MemoryHandle | None = None


class MemoryStore:
    """A store that lives as long as its object."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Stored] = {}

    async def create(self, header: SessionHeader | Mapping[str, Any]) -> _MemoryHandle:
        checked = header_of(header)
        check_session_id(checked.id)
        if checked.id in self._sessions:
            raise StorageError(f'session "{checked.id}" already exists', code="SESSION_ALREADY_EXISTS")
        stored = self._sessions[checked.id] = _Stored(checked)
        stored.writer = _MemoryHandle(self, stored, "write")
        return stored.writer

    async def open(self, session_id: str, access: Access) -> _MemoryHandle:
        check_session_id(session_id)
        stored = self._sessions.get(session_id)
        if stored is None:
            raise StorageError(f'session "{session_id}" not found', code="SESSION_NOT_FOUND")
        if access == "write":
            if stored.writer is not None:
                raise StorageError(
                    f'session "{session_id}" is already owned by an active write handle', code="SESSION_LOCKED"
                )
            stored.writer = _MemoryHandle(self, stored, "write")
            return stored.writer
        return _MemoryHandle(self, stored, "read")

    async def stat(self, session_id: str) -> SessionStat | None:
        check_session_id(session_id)
        stored = self._sessions.get(session_id)
        return None if stored is None else SessionStat(stored.header, len(stored.events))

    async def list(self) -> list[SessionStat]:
        return [SessionStat(stored.header, len(stored.events)) for stored in self._sessions.values()]

    async def flush(self) -> None:
        """Memory has nothing to sync."""

    def forget_if_empty(self, stored: _Stored) -> None:
        """A session that was created and never written to never was."""
        if not stored.events and self._sessions.get(stored.header.id) is stored:
            del self._sessions[stored.header.id]


class _MemoryHandle:
    path: Path | None = None
    dropped_tail = False

    def __init__(self, store: MemoryStore, stored: _Stored, access: Access) -> None:
        self._store = store
        self._stored = stored
        self._closed = False
        self.access: Access = access

    @property
    def id(self) -> str:
        return self._stored.header.id

    @property
    def header(self) -> SessionHeader:
        return self._stored.header

    async def read(self, offset: int = 0, length: int | None = None) -> list[Event]:
        self._check("read")
        end = None if length is None else offset + length
        return self._stored.events[offset:end]

    def append(self, events: Sequence[Event]) -> None:
        self._check("append", writing=True)
        check_batch(self.id, events, len(self._stored.events))
        self._stored.events.extend(events)

    async def flush(self) -> None:
        self._check("flush", writing=True)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._stored.writer is self:
            self._stored.writer = None
            self._store.forget_if_empty(self._stored)

    def _check(self, operation: str, *, writing: bool = False) -> None:
        if self._closed:
            raise StorageError(f'session "{self.id}": {operation} on a closed handle', code="HANDLE_CLOSED")
        if writing and self.access == "read":
            raise StorageError(
                f'session "{self.id}": {operation} is not available on a read handle', code="HANDLE_READ_ONLY"
            )
