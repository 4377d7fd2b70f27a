"""One append-only file a session: a header line, then one event a line.

A record counts when its line is terminated; what an interrupted write left behind it is a torn tail, which readers skip
and the next writer trims. Damage anywhere else is reported with its line and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread

from nbagent.errors import StorageError
from nbagent.storage.jsonl_file import SessionFile, read_header
from nbagent.storage.lock import WriterLock
from nbagent.storage.store import Access, SessionStat, check_batch, check_session_id, header_of
from nbagent.types.events import Event, SessionHeader

__all__ = ("JsonlStore",)


class JsonlStore:
    """Sessions as files of one folder, which is made when the first event is stored.

    Args:
        folder: Where the files stand.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self._writers: dict[str, _JsonlHandle] = {}

    async def create(self, header: SessionHeader | Mapping[str, Any]) -> _JsonlHandle:
        checked = header_of(header)
        check_session_id(checked.id)
        path = self._path(checked.id)
        _check_usable(self.folder)
        stored = await anyio.to_thread.run_sync(read_header, path)
        if stored is not None or checked.id in self._writers:
            raise StorageError(f'session "{checked.id}" already exists', code="SESSION_ALREADY_EXISTS")
        return self._writer(checked, SessionFile(path, checked, new=True), WriterLock(self.folder, checked.id))

    async def open(self, session_id: str, access: Access) -> _JsonlHandle:
        check_session_id(session_id)
        path = self._path(session_id)
        header = await anyio.to_thread.run_sync(read_header, path)
        if header is None and session_id not in self._writers:
            raise StorageError(
                f'session "{session_id}" not found in {self.folder}; %agent sessions lists what is there',
                code="SESSION_NOT_FOUND",
            )
        if access == "read":
            known = header or self._writers[session_id].header
            return _JsonlHandle(self, known, SessionFile(path, known), None)
        if session_id in self._writers or header is None:
            raise StorageError(
                f'session "{session_id}" is already owned by an active write handle of this kernel',
                code="SESSION_LOCKED",
            )
        lock = WriterLock(self.folder, session_id)
        lock.acquire()
        return self._writer(header, SessionFile(path, header), lock)

    async def stat(self, session_id: str) -> SessionStat | None:
        check_session_id(session_id)
        found = await anyio.to_thread.run_sync(partial(_stat, self._path(session_id)))
        writer = self._writers.get(session_id)
        return SessionStat(writer.header, 0) if found is None and writer is not None else found

    async def list(self) -> list[SessionStat]:
        found = await anyio.to_thread.run_sync(partial(_list, self.folder))
        stored = {stat.header.id for stat in found}
        unwritten = [SessionStat(each.header, 0) for key, each in self._writers.items() if key not in stored]
        return [*found, *unwritten]

    async def flush(self) -> None:
        failures: list[Exception] = []
        for handle in list(self._writers.values()):
            try:
                await handle.flush()
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise ExceptionGroup("sessions could not be flushed", failures)

    def _path(self, session_id: str) -> Path:
        return self.folder / f"{session_id}.jsonl"

    def _writer(self, header: SessionHeader, file: SessionFile, lock: WriterLock) -> _JsonlHandle:
        handle = _JsonlHandle(self, header, file, lock)
        self._writers[header.id] = handle
        return handle

    def forget(self, handle: _JsonlHandle) -> None:
        """A write handle was closed."""
        if self._writers.get(handle.id) is handle:
            del self._writers[handle.id]


class _JsonlHandle:
    def __init__(self, store: JsonlStore, header: SessionHeader, file: SessionFile, lock: WriterLock | None) -> None:
        self._store = store
        self._file = file
        self._lock = lock
        self._locked = lock is not None and lock.held
        self._closed = False
        self.header = header
        self.access: Access = "read" if lock is None else "write"

    @property
    def id(self) -> str:
        return self.header.id

    @property
    def path(self) -> Path | None:
        return self._file.path

    @property
    def dropped_tail(self) -> bool:
        return self._file.torn

    async def read(self, offset: int = 0, length: int | None = None) -> list[Event]:
        self._check("read")
        events = await anyio.to_thread.run_sync(self._file.read)
        return events[offset : None if length is None else offset + length]

    def append(self, events: Sequence[Event]) -> None:
        self._check("append", writing=True)
        if not events:
            return
        if not self._locked and self._lock is not None:
            self._lock.acquire()
            self._locked = True
        self._file.open_for_writing()
        check_batch(self.id, events, self._file.event_count)
        self._file.write(events)

    async def flush(self) -> None:
        self._check("flush", writing=True)
        self._file.check_owned()
        await anyio.to_thread.run_sync(self._file.sync)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._store.forget(self)
        try:
            if self.access == "write":
                self._file.check_owned()
                await anyio.to_thread.run_sync(self._file.sync)
        except StorageError as failure:
            # Who removed the file knows that it is gone; whoever appended after that was told.
            if failure.code != "OWNERSHIP_LOST":
                raise
        finally:
            self._file.close()
            if self._lock is not None:
                self._lock.release()

    def _check(self, operation: str, *, writing: bool = False) -> None:
        if self._closed:
            raise StorageError(f'session "{self.id}": {operation} on a closed handle', code="HANDLE_CLOSED")
        if writing and self.access == "read":
            raise StorageError(
                f'session "{self.id}": {operation} is not available on a read handle', code="HANDLE_READ_ONLY"
            )


def _check_usable(folder: Path) -> None:
    """Raise unless the folder is there or can be made, before anything relies on it."""
    import os

    existing = folder
    # Not the methods of a path: they raise inside a folder that may not be entered.
    while not os.path.exists(existing) and existing != existing.parent:  # noqa: PTH110
        existing = existing.parent
    is_folder = os.path.isdir(existing)  # noqa: PTH112
    effective = os.access in os.supports_effective_ids
    if not is_folder or not os.access(existing, os.W_OK | os.X_OK, effective_ids=effective):
        fault = "cannot be written" if is_folder else "is not a folder"
        raise StorageError(
            f"sessions cannot be kept in {folder}: {existing} {fault}; choose another folder with --session-dir, or name "
            "the notebook with NBAGENT_NOTEBOOK",
            code="STORAGE_UNAVAILABLE",
        )


def _stat(path: Path) -> SessionStat | None:
    header = read_header(path)
    if header is None:
        return None
    file = path.stat()
    with path.open("rb") as lines:
        count = sum(1 for line in lines if line.endswith(b"\n")) - 1
    return SessionStat(header, count, file.st_size, file.st_mtime, path)


def _list(folder: Path) -> list[SessionStat]:
    if not folder.is_dir():
        return []
    found: list[SessionStat] = []
    for path in folder.glob("*.jsonl"):
        try:
            stat = _stat(path)
        except (StorageError, OSError):
            continue  # a damaged or foreign file does not hide the others; opening it says what is wrong
        if stat is not None:
            found.append(stat)
    return sorted(found, key=lambda stat: (stat.modified or 0, stat.header.id))
