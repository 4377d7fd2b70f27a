"""One writer per session over all processes of a machine, and who it is.

The lock is the operating system's, so it ends with its process. Who holds it is written beside it, for the error that a
second writer gets; that note is never what decides.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nbagent.errors import StorageError

__all__ = ("WriterLock",)


class WriterLock:
    """The lock of one session.

    Args:
        folder: The session folder; locks stand in its `.locks`.
        session_id: The session.
    """

    def __init__(self, folder: Path, session_id: str) -> None:
        self._session_id = session_id
        self._path = folder / ".locks" / f"{session_id}.lock"
        self._holder = folder / ".locks" / f"{session_id}.holder"
        self._lock: FileLock | None = None

    @property
    def held(self) -> bool:
        return self._lock is not None

    def acquire(self) -> None:
        """Become the writer.

        Raises:
            StorageError: `SESSION_LOCKED`, with who holds it; `STORAGE_UNAVAILABLE`, no lock can be made there.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._path, timeout=0, thread_local=False)
            lock.acquire()
        except Timeout:
            raise StorageError(
                f'session "{self._session_id}" is already open for writing in {self._who()}; close it there, or go on '
                "in a new session",
                code="SESSION_LOCKED",
            ) from None
        except (OSError, NotImplementedError) as failure:
            # The second is what a file system without locks gives.
            fault = getattr(failure, "strerror", None) or failure
            raise StorageError(
                f'session "{self._session_id}" cannot be locked in {self._path.parent}: {fault}; '
                "choose another folder with --session-dir or NBAGENT_NOTEBOOK",
                code="STORAGE_UNAVAILABLE",
            ) from failure
        self._lock = lock
        note = {"pid": os.getpid(), "host": socket.gethostname(), "notebook": os.environ.get("JPY_SESSION_NAME")}
        try:
            self._holder.write_text(json.dumps(note))
        except OSError:
            return  # only the wording of somebody's error depends on it

    def release(self) -> None:
        """Stop being the writer."""
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        self._holder.unlink(missing_ok=True)
        lock.release()

    def _who(self) -> str:
        try:
            note: dict[str, Any] = json.loads(self._holder.read_text())
        except (OSError, ValueError):
            return "another kernel"
        if note.get("pid") == os.getpid():
            return "this kernel"
        notebook = note.get("notebook")
        where = f", {Path(notebook).name}" if isinstance(notebook, str) and notebook else ""
        host = note.get("host")
        machine = f" on {host}" if isinstance(host, str) and host != socket.gethostname() else ""
        return f"another kernel (process {note.get('pid')}{machine}{where})"
