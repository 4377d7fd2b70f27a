"""Server-sent events, decoded on bytes.

Lines end at CR, LF or CRLF only, wherever the network cuts them; payloads stay bytes until a whole event is there, so a
character that is split between two reads is whole again.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("ServerEvent", "SseDecoder")

_STRAY_BYTES = 4096
"""How much of what is no event stream is kept, to say what came instead."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name (`message` when the server gave none) and its data."""

    name: str
    data: bytes


class SseDecoder:
    """Feed it what the network gives.

    Attributes:
        stray: The beginning of lines that are no part of an event stream.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._after_cr = False
        self._started = False
        self._name = ""
        self._data: list[bytes] = []
        self.stray = b""

    def feed(self, received: bytes) -> list[ServerEvent]:
        """The events that are complete now."""
        if not received:
            return []
        if self._after_cr:
            self._after_cr = False
            if received.startswith(b"\n"):
                received = received[1:]
        if b"\r" in received:
            self._after_cr = received.endswith(b"\r")
            received = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = (self._buffer + received).split(b"\n")
        self._buffer = lines.pop()
        if not self._started and lines:
            self._started = True
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        events: list[ServerEvent] = []
        for line in lines:
            self._take(line, events)
        return events

    def close(self) -> list[ServerEvent]:
        """The event that the end of the stream completes: a last line and a last empty line may be missing."""
        events: list[ServerEvent] = []
        if self._buffer:
            self._take(self._buffer, events)
            self._buffer = b""
        self._take(b"", events)
        return events

    def _take(self, line: bytes, events: list[ServerEvent]) -> None:
        if not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                events.append(ServerEvent(self._name or "message", data))
                self._data = []
            self._name = ""
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b"event:"):
            self._name = line[6:].strip().decode("utf-8", "replace")
        elif line == b"data":
            self._data.append(b"")
        elif not line.startswith((b":", b"id:", b"retry:")) and len(self.stray) < _STRAY_BYTES:
            self.stray += line[:_STRAY_BYTES] + b"\n"
