"""The bytes of one session file: reading a valid prefix, appending whole records, and never losing an acknowledged one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from nbagent.errors import SessionError, StorageError
from nbagent.session.session import restored_event
from nbagent.types.events import Event, SessionHeader

__all__ = ("SessionFile", "read_header")


def read_header(path: Path) -> SessionHeader | None:
    """The header of a session file; none when there is no file, or when its header was never completed.

    Raises:
        StorageError: `SESSION_DAMAGED`, `SESSION_FORMAT`, `STORAGE_UNAVAILABLE`.
    """
    try:
        with path.open("rb") as file:
            line = file.readline()
    except FileNotFoundError:
        return None
    except OSError as failure:
        raise _unreadable(path, failure) from failure
    return _header(path, line) if line.endswith(b"\n") else None


class SessionFile:
    """One file.

    Args:
        path: Where it is.
        header: Its first line.
        new: Whether the file is still to be made.

    Attributes:
        path: Where it is.
        event_count: Events stored, once it was read or opened for writing.
        torn: Whether a record that was cut in the middle stands at its end.
    """

    def __init__(self, path: Path, header: SessionHeader, *, new: bool = False) -> None:
        self.path = path
        self._header = header
        self._new = new
        self._descriptor: int | None = None
        self._size = 0
        self._found: _Found | None = None
        self.event_count = 0
        self.torn = False

    def read(self) -> list[Event]:
        """Every complete record.

        Raises:
            StorageError: `SESSION_DAMAGED` with the line, `SESSION_FORMAT`, `STORAGE_UNAVAILABLE`.
        """
        try:
            with self.path.open("rb") as file:
                content = file.read()
                status = os.fstat(file.fileno())
        except FileNotFoundError:
            return []
        except OSError as failure:
            raise _unreadable(self.path, failure) from failure
        whole = content.rfind(b"\n") + 1
        lines = content[:whole].split(b"\n")[:-1]
        events = [_event(self.path, line, number) for number, line in enumerate(lines[1:])]
        if self._descriptor is None:
            self.torn = whole < len(content)
            self._size = whole
            self._found = _Found(status.st_dev, status.st_ino, len(content))
            self.event_count = len(events)
        return events

    def open_for_writing(self) -> None:
        """Be ready to append: make the file with its header, or trim the torn tail of the one that is there.

        Raises:
            StorageError: As `read` and `write`; `SESSION_ALREADY_EXISTS`, somebody else has made the file.
        """
        if self._descriptor is not None:
            return
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        try:
            if self._new:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                flags |= os.O_CREAT
            descriptor = os.open(self.path, flags, 0o644)
        except FileNotFoundError:
            raise self._lost() from None
        except OSError as failure:
            raise self._failed(failure) from failure
        try:
            self._take_over(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def write(self, events: Sequence[Event]) -> None:
        """Append records in one write; when it fails, the file is as it was before.

        Raises:
            StorageError: `STORAGE_WRITE_FAILED`, `OWNERSHIP_LOST`.
        """
        descriptor = self._descriptor
        if descriptor is None:
            raise StorageError(f"session file {self.path} is not open for writing", code="HANDLE_CLOSED")
        self._check_identity()
        self._put(descriptor, b"".join(_line(event) for event in events))
        self.event_count += len(events)

    def check_owned(self) -> None:
        """Raise when the file is no longer the one that was written. Not while another thread appends.

        Raises:
            StorageError: `OWNERSHIP_LOST`.
        """
        if self._descriptor is not None:
            self._check_identity()

    def sync(self) -> None:
        """Wait until the disk has everything.

        Raises:
            StorageError: `STORAGE_WRITE_FAILED`.
        """
        if self._descriptor is None:
            return
        try:
            os.fsync(self._descriptor)
            if self._new and os.name == "posix":
                # A new file is found again after a power failure only when its folder is on the disk, too.
                folder = os.open(self.path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
                self._new = False
        except OSError as failure:
            raise self._failed(failure) from failure

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _take_over(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if status.st_size and self._found is None:
            self.read()
        if self._new and self._size:
            raise StorageError(f'session "{self._header.id}" already exists', code="SESSION_ALREADY_EXISTS")
        found = _Found(status.st_dev, status.st_ino, status.st_size)
        if found != (self._found or found):
            # It is not what was read: to cut it to the length that was would destroy what somebody put there.
            raise self._lost()
        try:
            if status.st_size != self._size:
                os.ftruncate(descriptor, self._size)
        except OSError as failure:
            raise self._failed(failure) from failure
        self._found = found
        if self._size == 0:
            self._put(descriptor, orjson.dumps({"type": "session", **self._header}) + b"\n")

    def _put(self, descriptor: int, record: bytes) -> None:
        view = memoryview(record)
        try:
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError as failure:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self._size)
            raise self._failed(failure) from failure
        self._size += len(record)

    def _check_identity(self) -> None:
        found = self._found
        try:
            status = self.path.stat()
        except OSError:
            raise self._lost() from None
        if found is None or (status.st_dev, status.st_ino, status.st_size) != (found.device, found.inode, self._size):
            raise self._lost()

    def _lost(self) -> StorageError:
        return StorageError(
            f'session "{self._header.id}": write ownership was lost, {self.path} was removed, replaced or written by '
            "something else; put it back, or go on in a new session",
            code="OWNERSHIP_LOST",
        )

    def _failed(self, failure: OSError) -> StorageError:
        return StorageError(
            f"session file {self.path} cannot be written: {failure.strerror or failure}; nothing that was shown is lost, "
            "make room or restore the folder and send again",
            code="STORAGE_WRITE_FAILED",
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """Which file was read, and how long it was then."""

    device: int
    inode: int
    size: int


def _line(event: Event) -> bytes:
    try:
        return orjson.dumps(event.to_json()) + b"\n"
    except TypeError as fault:
        raise SessionError(
            f'session event "{event.type}" carries non-JSON-serializable data: {fault}', code="NOT_JSON"
        ) from fault


def _unreadable(path: Path, failure: OSError) -> StorageError:
    return StorageError(
        f"session file {path} cannot be read: {failure.strerror or failure}; make it readable, or choose another folder "
        "with --session-dir or NBAGENT_NOTEBOOK",
        code="STORAGE_UNAVAILABLE",
    )


def _header(path: Path, line: bytes) -> SessionHeader:
    try:
        value: Any = orjson.loads(line)
    except orjson.JSONDecodeError as fault:
        raise _damaged(path, 1, str(fault)) from None
    if not isinstance(value, dict) or cast("Mapping[str, Any]", value).get("type") != "session":
        raise _damaged(path, 1, "it is no session header")
    fields = {key: item for key, item in cast("Mapping[str, Any]", value).items() if key != "type"}
    try:
        header = SessionHeader.checked(fields)
    except StorageError as fault:
        raise StorageError(f"session file {path}: {fault.message}", code=fault.code) from None
    if header.id != path.stem:
        raise StorageError(
            f'session header id "{header.id}" does not match session id "{path.stem}" of {path}', code="SESSION_FORMAT"
        )
    return header


def _event(path: Path, line: bytes, seq: int) -> Event:
    try:
        value: Any = orjson.loads(line)
    except orjson.JSONDecodeError as fault:
        raise _damaged(path, seq + 2, str(fault)) from None
    if not isinstance(value, dict):
        raise _damaged(path, seq + 2, "it is no event")
    try:
        event = restored_event(cast("Mapping[str, Any]", value), seq)
    except SessionError as fault:
        raise _damaged(path, seq + 2, fault.message) from fault
    if event.seq != seq:
        raise _damaged(path, seq + 2, f"it has seq {event.seq}, expected {seq}")
    return event


def _damaged(path: Path, line: int, fault: str) -> StorageError:
    return StorageError(
        f"session file {path} is damaged in line {line} ({fault}); the file is left as it is: restore it from a copy, or "
        "go on in a new session",
        code="SESSION_DAMAGED",
    )
