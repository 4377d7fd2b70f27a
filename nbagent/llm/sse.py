"""Server-sent events, decoded on bytes.

Lines end at CR, LF or CRLF only, wherever the network cuts them; payloads stay bytes until a whole event is there, so a
character that is split between two reads is whole again.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.errors import LlmError

__all__ = ("MAX_EVENT_BYTES", "ServerEvent", "SseDecoder")

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""The largest event or body that is read: a server that never ends a line must not fill the memory."""
_STRAY_BYTES = 4096
"""How much of what is no event stream is kept, to say what came instead."""
_FIELDS = (b"data:", b"event:", b"id:", b"retry:")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event.

    Attributes:
        name: What the server called it, `message` when it did not.
        data: Its payload, lines joined.
        whole: Whether its end was seen; the last event of a stream that was cut may be only a part.
    """

    name: str
    data: bytes
    whole: bool = True


class SseDecoder:
    """Feed it what the network gives.

    Attributes:
        stray: The beginning of lines that are no part of an event stream.
    """

    def __init__(self) -> None:
        # A line that comes in many reads is joined once, when its end is there.
        self._begun: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._started = False
        self._name = ""
        self._data: list[bytes] = []
        self.stray = b""

    def feed(self, received: bytes) -> list[ServerEvent]:
        """The events that are complete now.

        Raises:
            LlmError: `SERVER`, an event is larger than `MAX_EVENT_BYTES`.
        """
        if self._after_cr and received:
            self._after_cr = False
            received = received.removeprefix(b"\n")
        if not received:
            return []
        if b"\r" in received:
            self._after_cr = received.endswith(b"\r")
            received = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._size += len(received)
        if b"\n" not in received:
            self._begun.append(received)
            self._check_size()
            return []
        if self._begun:
            received = b"".join((*self._begun, received))
            self._begun = []
        if not self._started:
            self._started = True
            received = received.removeprefix(b"\xef\xbb\xbf")
        lines = received.split(b"\n")
        rest = lines.pop()
        if rest:
            self._begun.append(rest)
        events: list[ServerEvent] = []
        for line in lines:
            self._take(line, events)
        self._size = len(rest) + sum(map(len, self._data))
        self._check_size()
        return events

    def close(self) -> list[ServerEvent]:
        """The event that the end of the stream completes: a last line end and a last empty line may be missing."""
        events: list[ServerEvent] = []
        line = b"".join(self._begun).removeprefix(b"\xef\xbb\xbf")
        self._begun = []
        if line and not any(field.startswith(line) for field in _FIELDS):
            self._take(line, events)
        if self._data:
            events.append(ServerEvent(self._name or "message", b"\n".join(self._data), whole=False))
            self._data = []
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

    def _check_size(self) -> None:
        if self._size > MAX_EVENT_BYTES:
            limit = MAX_EVENT_BYTES // (1024 * 1024)
            raise LlmError(f"the server sent an event of more than {limit} MB", code="SERVER")
