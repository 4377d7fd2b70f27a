"""The bytes of one session file: reading a valid prefix, appending whole records, and never losing an acknowledged one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import orjson

from nbagent.errors import SessionError, StorageError
from nbagent.session.session import restored_event
from nbagent.types.events import CORE_TYPES, Event, SessionHeader

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
        raise StorageError(
            f"session file {path} cannot be read: {failure.strerror or failure}", code="STORAGE_UNAVAILABLE"
        ) from failure
    return _header(path, line) if line.endswith(b"\n") else None


class SessionFile:
    """One file.

    Attributes:
        path: Where it is.
        event_count: Events stored, once it was read or opened for writing.
        torn: Whether a record that was cut in the middle stands at its end.
    """

    def __init__(self, path: Path, header: SessionHeader) -> None:
        self.path = path
        self._header = header
        self._descriptor: int | None = None
        self._size = 0
        self._identity: tuple[int, int] | None = None
        self.event_count = 0
        self.torn = False

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def read(self) -> list[Event]:
        """Every complete record.

        Raises:
            StorageError: `SESSION_DAMAGED` with the line, `SESSION_FORMAT`, `STORAGE_UNAVAILABLE`.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as failure:
            raise StorageError(
                f"session file {self.path} cannot be read: {failure.strerror or failure}", code="STORAGE_UNAVAILABLE"
            ) from failure
        whole = content.rfind(b"\n") + 1
        lines = content[:whole].split(b"\n")[:-1]
        events = [_event(self.path, line, number) for number, line in enumerate(lines[1:])]
        if self._descriptor is None:
            self.torn = whole < len(content)
            self._size = whole
            self.event_count = len(events)
        return events

    def open_for_writing(self) -> None:
        """Be ready to append: make the file with its header, or trim the torn tail of the one that is there."""
        if self._descriptor is not None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
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
        self._put(descriptor, b"".join(orjson.dumps(event.to_json()) + b"\n" for event in events))
        self.event_count += len(events)

    def sync(self) -> None:
        """Wait until the disk has everything."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _take_over(self, descriptor: int) -> None:
        content_size = os.fstat(descriptor).st_size
        if self._size == 0 and content_size:
            self.read()
        try:
            if content_size != self._size:
                os.ftruncate(descriptor, self._size)
        except OSError as failure:
            raise self._failed(failure) from failure
        status = os.fstat(descriptor)
        self._identity = (status.st_dev, status.st_ino)
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
        try:
            status = self.path.stat()
        except OSError:
            status = None
        if status is None or (status.st_dev, status.st_ino) != self._identity or status.st_size != self._size:
            raise StorageError(
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


def _header(path: Path, line: bytes) -> SessionHeader:
    try:
        value: Any = orjson.loads(line)
    except orjson.JSONDecodeError as fault:
        raise _damaged(path, 1, str(fault)) from None
    if not isinstance(value, dict) or cast("Mapping[str, Any]", value).get("type") != "session":
        raise _damaged(path, 1, "it is no session header")
    fields = {key: item for key, item in cast("Mapping[str, Any]", value).items() if key != "type"}
    header = SessionHeader.checked(fields)
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
    if event.type not in CORE_TYPES and not event.ignorable:
        raise StorageError(
            f'session file {path} line {seq + 2} holds "{event.type}", which this version does not know: update '
            "jupyter-nbagent to read it",
            code="SESSION_FORMAT",
        )
    if event.seq != seq:
        raise _damaged(path, seq + 2, f"it has seq {event.seq}, expected {seq}")
    return event


def _damaged(path: Path, line: int, fault: str) -> StorageError:
    return StorageError(
        f"session file {path} is damaged in line {line} ({fault}); the file is left as it is: restore it from a copy, or "
        "go on in a new session",
        code="SESSION_DAMAGED",
    )
