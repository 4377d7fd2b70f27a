"""Session files that are looked at and repaired by themselves, without a runtime. The original is never written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from nbagent.errors import SessionError, StorageError
from nbagent.session import Session
from nbagent.storage.damage import unreadable_log
from nbagent.storage.jsonl_file import SessionFile, read_header
from nbagent.storage.store import check_session_id
from nbagent.types.events import Event, SessionHeader

__all__ = ("StoredLog", "read_log", "write_repaired_copy")


@dataclass(frozen=True, slots=True)
class StoredLog:
    """What a session file holds.

    Attributes:
        header: Its first line.
        events: Its events; every rule accepts them.
        torn: Whether a record that was cut in the middle stands behind them.
    """

    header: SessionHeader
    events: list[Event]
    torn: bool


def read_log(path: Path) -> StoredLog:
    """Read a session file and check it against every rule.

    Raises:
        StorageError: `SESSION_NOT_FOUND`; `SESSION_DAMAGED` and `SESSION_FORMAT` with file and line;
            `STORAGE_UNAVAILABLE`.
    """
    header = read_header(path)
    if header is None:
        raise StorageError(f"there is no session in {path}", code="SESSION_NOT_FOUND")
    file = SessionFile(path, header)
    events = file.read()
    try:
        Session(header, events)
    except SessionError as fault:
        raise unreadable_log(path, fault) from fault
    return StoredLog(header, events, file.torn)


def write_repaired_copy(path: Path, header: SessionHeader, events: Sequence[Event]) -> Path:
    """Write a session of its own beside the file that it was made from; answers its file.

    Args:
        path: The file of the original.
        header: The header of the original. The copy's id is the original's with `-repaired`, and a number when that
            exists.
        events: The copy's events.

    Raises:
        InputError: `INVALID_SESSION_ID`, the id would be too long.
        StorageError: `STORAGE_WRITE_FAILED`; then there is no copy.
    """
    names = (f"{header.id}-repaired{'' if number == 1 else f'-{number}'}" for number in count(1))
    session_id = next(name for name in names if not path.with_name(f"{name}.jsonl").exists())
    check_session_id(session_id)
    copy = path.with_name(f"{session_id}.jsonl")
    file = SessionFile(copy, SessionHeader.checked({**header, "id": session_id}), new=True)
    try:
        file.open_for_writing()
        file.write(events)
        file.sync()
    except StorageError as failure:
        if failure.code != "SESSION_ALREADY_EXISTS":
            copy.unlink(missing_ok=True)
        raise
    finally:
        file.close()
    return copy
