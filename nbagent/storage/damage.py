"""What is told of a stored log that cannot be read back as a session."""

from __future__ import annotations

from pathlib import Path

from nbagent.errors import SessionError, StorageError

__all__ = ("unreadable_log",)


def unreadable_log(path: Path | None, fault: SessionError) -> StorageError:
    """The error of a stored log whose event `fault.seq` is refused.

    Args:
        path: The session's file, when it has one; then the line is named.
        fault: What a session raised when it was given the log.

    Returns:
        `SESSION_FORMAT` for an event that this version does not know, otherwise `SESSION_DAMAGED`.
    """
    seq = fault.seq or 0
    # A file has its header in line 1 and the first event, seq 0, in line 2.
    line = seq + 2
    if fault.code == "UNKNOWN_EVENT":
        where = f"session file {path} line {line}" if path else f"event {seq}"
        return StorageError(
            f"{where} cannot be read ({fault.message}): update jupyter-nbagent, or register what interprets it",
            code="SESSION_FORMAT",
        )
    where = f"session file {path} is damaged in line {line}" if path else f"event {seq} is damaged"
    return StorageError(
        f"{where} ({fault.message}); it is left as it is: restore it from a copy, or go on in a new session",
        code="SESSION_DAMAGED",
    )
