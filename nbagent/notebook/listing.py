"""Lists in plain text: what is stored in a session folder, and columns that line up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nbagent.errors import StorageError
from nbagent.notebook.host import host
from nbagent.types.messages import Message

if TYPE_CHECKING:
    from nbagent.agent import Runtime
    from nbagent.types.events import Event

__all__ = ("stored_sessions", "table")

_PROMPT_LIMIT = 60


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns with two spaces between; a row without heads is left out."""
    lines = [list(heads), *(list(row) for row in rows)] if any(heads) else [list(row) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def stored_sessions(folder: Path) -> list[tuple[str, str, str, str]]:
    """Id, turns, size and last prompt of each stored session, the one written last first.

    A file that cannot be read is listed with what is wrong with it.
    """
    if not folder.is_dir():
        return []
    home = host()
    return home.call(_read, home.runtime(folder))


async def _read(runtime: Runtime) -> list[tuple[str, str, str, str]]:
    rows: list[tuple[str, str, str, str]] = []
    known: set[str] = set()
    for stat in reversed(await runtime.store.list()):
        if stat.size_bytes is None:
            continue
        session_id = stat.header.id
        known.add(session_id)
        try:
            handle = await runtime.store.open(session_id, "read")
            try:
                events = await handle.read()
            finally:
                await handle.close()
        except StorageError as fault:
            rows.append((session_id, "?", _size(stat.size_bytes), f"[{fault.code}]"))
            continue
        turns = sum(event.type == "turn/start" for event in events)
        rows.append((session_id, str(turns), _size(stat.size_bytes), _last_prompt(events)))
    return rows


def _last_prompt(events: Sequence[Event]) -> str:
    for event in reversed(events):
        if event.type == "user/message":
            message = Message.of(event.data)
            if message.source["kind"] == "user":
                line = " ".join(message.text.split())
                return line if len(line) <= _PROMPT_LIMIT else f"{line[: _PROMPT_LIMIT - 1]}…"
    return ""


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"
