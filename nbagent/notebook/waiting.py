"""Waiting for the agents' loop from a cell, so that an interrupt is always heard.

The first interrupt asks a turn to stop and goes on waiting; the second stops waiting. In an awaiting cell the kernel's
own handling would be deaf until something wakes its loop, and would then cancel once and never again: hence a handler of
our own for the duration, and a look every 100 ms.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Self, TypeVar

from nbagent.errors import LifecycleError

__all__ = ("POLL", "Interrupts", "StoppedByUser", "WaitTimeoutError", "settle", "wait")

POLL = 0.1
"""Seconds between two looks."""

_T = TypeVar("_T")


class StoppedByUser(KeyboardInterrupt):
    """A kernel interrupt ended the cell; renders as one line."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


# Front ends and tools show and compare the class's name.
StoppedByUser.__name__ = StoppedByUser.__qualname__ = "KeyboardInterrupt"


class WaitTimeoutError(LifecycleError, TimeoutError):
    """A time limit of a wait passed; what was waited for goes on. Code `WAIT_TIMEOUT`."""

    default_code = "WAIT_TIMEOUT"


class Interrupts:
    """Counts interrupts while it is entered; on other threads than the main one there are none.

    Args:
        on_first: Called at the look after the first interrupt, on the waiting thread.
        patience: How many interrupts end the wait.
    """

    def __init__(self, on_first: Callable[[], object] | None = None, *, patience: int = 2) -> None:
        self.count = 0
        self._on_first = on_first
        self._patience = patience
        self._told = False
        self._previous: Any = None

    def __enter__(self) -> Self:
        # A handler that was not set from Python could not be put back.
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not None:
            self._previous = signal.signal(signal.SIGINT, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1

    def cancelled(self) -> None:
        """Count a cancellation of the waiting task, which is how some front ends interrupt."""
        self.count += 1

    def look(self) -> bool:
        """Act on what was heard; answers whether to stop waiting."""
        if self.count and not self._told:
            self._told = True
            if self._on_first is not None:
                self._on_first()
        return self.count >= self._patience


def wait(
    future: concurrent.futures.Future[_T],
    interrupts: Interrupts,
    *,
    timeout: float | None = None,
) -> bool:
    """Wait on this thread until `future` is done; answers whether it is.

    Args:
        future: Of the agents' loop. Not cancelled here, whatever happens.
        interrupts: An entered counter, which says when to stop waiting.
        timeout: Seconds after which to stop waiting.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while not future.done():
        pause = POLL if deadline is None else min(POLL, max(0.0, deadline - time.monotonic()))
        concurrent.futures.wait([future], timeout=pause)
        if interrupts.look():
            return future.done()
        if deadline is not None and time.monotonic() >= deadline:
            return future.done()
    return True


async def settle(
    future: concurrent.futures.Future[Any],
    interrupts: Interrupts,
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - it is no error when it passes
) -> bool:
    """Like `wait`, on the kernel's asyncio loop, which keeps serving messages meanwhile."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    done = asyncio.Event()

    def wake(_: object) -> None:
        # The loop of a kernel that shuts down is gone before its last futures are.
        if not loop.is_closed():
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(wake)
    while not future.done():
        pause = POLL if deadline is None else min(POLL, max(0.0, deadline - loop.time()))
        try:
            async with asyncio.timeout(pause):
                await done.wait()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            interrupts.cancelled()
        if interrupts.look():
            return future.done()
        if deadline is not None and loop.time() >= deadline:
            return future.done()
    return True
