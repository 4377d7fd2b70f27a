"""A one-way switch that says "stop", with the reason, for whoever listens.

Code that runs on behalf of a turn is handed a `CancelSignal`. Cancelling is a plain call; the first reason wins.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

from nbagent.logs import logger
from nbagent.registration import enlist

__all__ = ("CancelSignal", "Interrupted", "WaitCancelledError", "cancelled_here")

_log = logger(__name__)
_T = TypeVar("_T")


class Interrupted(Exception):  # noqa: N818 - it is not an error, it ends a wait
    """What `CancelSignal.run` raises when the work was stopped before it had a result."""


class WaitCancelledError(Exception):
    """What `CancelSignal.run` raises when something that the work awaited was cancelled, and the work was not."""

    def __init__(self) -> None:
        super().__init__("something that was waited for was cancelled")


class CancelSignal:
    """The stop switch of one activity. Use it on the thread of the loop that runs the activity."""

    __slots__ = ("_callbacks", "aborted", "reason")

    def __init__(self) -> None:
        self.aborted = False
        self.reason: Any = None
        self._callbacks: list[Callable[[], object]] = []

    def cancel(self, reason: Any = None) -> bool:
        """Switch to aborted; answers whether this call did it. The object given stays as `reason`."""
        if self.aborted:
            return False
        self.aborted = True
        self.reason = reason
        for callback in list(self._callbacks):
            _tell(callback)
        self._callbacks.clear()
        return True

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` once on abort (at once when already aborted); answers a function that unsubscribes."""
        if self.aborted:
            _tell(callback)
            return lambda: None
        return enlist(self._callbacks, callback)

    def child(self) -> CancelSignal:
        """A signal that follows this one and can also be cancelled alone."""
        child = CancelSignal()
        self.subscribe(lambda: child.cancel(self.reason))
        return child

    async def wait(self) -> None:
        """Return once aborted. Waiting may be cancelled like any other await."""
        if self.aborted:
            return
        event = anyio.Event()
        unsubscribe = self.subscribe(event.set)
        try:
            await event.wait()
        finally:
            unsubscribe()

    async def run(self, work: Callable[[], Awaitable[_T]], *, grace: float = 0.0) -> _T:
        """Await `work()`, ending it when the signal aborts.

        Args:
            work: Called once; what it returns is awaited in this task.
            grace: Seconds that cooperative code gets to finish by itself after the abort before its awaits are
                cancelled. Code that shields itself is awaited until it is done: nothing is abandoned.

        Raises:
            Interrupted: The work was ended by the abort and has no result.
            WaitCancelledError: A task or future that the work awaited was cancelled, and nobody has cancelled the work.
        """
        scope = anyio.CancelScope()

        def on_abort() -> None:
            if grace > 0:
                scope.deadline = anyio.current_time() + grace
            else:
                scope.cancel()

        unsubscribe = self.subscribe(on_abort)
        try:
            with scope:
                try:
                    return await work()
                except asyncio.CancelledError:
                    if cancelled_here():
                        raise
                    raise WaitCancelledError from None
        finally:
            unsubscribe()
        raise Interrupted


def cancelled_here() -> bool:
    """Whether the running asyncio task, or a cancel scope around it, is cancelled."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no asyncio here: the exception was raised by hand
        return False
    return anyio.current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)


def _tell(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        _log.exception("a cancel observer failed")
