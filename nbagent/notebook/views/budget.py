"""One flush tick for every view of the kernel.

A front end drops messages beyond about a thousand a second or a megabyte a second, for good and for all outputs
together. So views do not send when something happens: they ask for a flush, and one thread lets one of them send at a
time, in turn.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Protocol

from nbagent.logs import logger

__all__ = ("FlushTick", "Flushable", "flush_tick")

_log = logger(__name__)

_INTERVAL = 0.05
"""Seconds between messages of all views together: 20 a second."""
_BYTES_PER_SECOND = 250_000
_LONGEST_PAUSE = 1.0


class Flushable(Protocol):
    """A view that has something to send."""

    def flush(self) -> int:
        """Send one message, or nothing; answers its size in bytes. Called on the tick's thread."""
        ...


class FlushTick:
    """Lets views send one after another, at most one message each `interval` seconds.

    A message that follows a quiet time goes at once; a large one is followed by a longer pause.
    """

    def __init__(self, *, interval: float = _INTERVAL) -> None:
        self._interval = interval
        self._waiting: dict[int, Flushable] = {}
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._next = 0.0

    def request(self, view: Flushable) -> None:
        """Let `view` send when it is its turn; asking again before that changes nothing. Any thread."""
        with self._condition:
            self._waiting.setdefault(id(view), view)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="nbagent-views", daemon=True)
                self._thread.start()
            self._condition.notify()

    def forget(self, view: Flushable) -> None:
        """`view` has nothing more to send. Any thread."""
        with self._condition:
            self._waiting.pop(id(view), None)

    def _run(self) -> None:
        while True:
            view = self._take()
            try:
                size = view.flush()
            except Exception:
                _log.exception("a view could not send")
                size = 0
            if size:
                pause = min(_LONGEST_PAUSE, max(self._interval, size / _BYTES_PER_SECOND))
                self._next = time.monotonic() + pause

    def _take(self) -> Flushable:
        with self._condition:
            while True:
                pause = self._next - time.monotonic()
                if self._waiting and pause <= 0:
                    return self._waiting.pop(next(iter(self._waiting)))
                self._condition.wait(pause if self._waiting else None)


class _Ticks:
    def __init__(self) -> None:
        self._owner = -1
        self._tick = FlushTick()

    def current(self) -> FlushTick:
        # A forked child has the object without its thread, and its locks in whatever state they were.
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._tick = FlushTick()
        return self._tick


_ticks = _Ticks()


def flush_tick() -> FlushTick:
    """The tick of this process."""
    return _ticks.current()
