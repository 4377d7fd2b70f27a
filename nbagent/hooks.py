"""Extension points: who listens to what, and in which order listeners are asked.

There are three kinds. A *waterfall* passes a payload down a chain of `async def f(payload, next)` listeners to a
default and the answer back up. A *serial* event awaits `async def f(payload)` listeners one after another; a raise
stops it. A *notification* calls plain `f(payload)` functions; what they raise is logged and contained.

A registry belongs to one layer (the runtime, or one agent); a nearer layer hears what its own agent does, a farther one
hears everything below it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from nbagent.errors import InputError, LifecycleError
from nbagent.logs import logger
from nbagent.registration import enlist

__all__ = ("POINTS", "Hooks", "Listener")

_log = logger(__name__)

Listener = Callable[..., Any]

_WATERFALLS = (
    "system-prompt/assemble",
    "agent/pre-step",
    "agent/request",
    "agent/request-error",
    "tools/pre-execute",
    "tools/execute",
    "tools/post-execute",
    "llm/stream",
)
_SERIAL = ("agent/turn-stopping", "agent/created")
_NOTIFICATIONS = (
    "agent/status",
    "agent/inbox/inserted",
    "agent/inbox/claimed",
    "agent/inbox/discarded",
    "agent/assistant-stream",
    "agent/error",
    "agent/disposed",
    "tools/result",
    "session/created",
    "session/disposed",
    "session/event",
    "session/flush",
    "session/validate",
    "agent-loop/config-start-failed",
)
_EITHER = ("session/flush",)
"""Notifications whose listeners may also be async functions, which are awaited."""
POINTS = (*_WATERFALLS, *_SERIAL, *_NOTIFICATIONS)
"""Every extension point by name."""


class Hooks:
    """The listeners of one layer.

    Args:
        parent: The next farther layer, asked before this one.
    """

    def __init__(self, parent: Hooks | None = None) -> None:
        self._parent = parent
        self._listeners: dict[str, list[Listener]] = {}
        self._closed = False

    def on(self, point: str, listener: Listener) -> Callable[[], None]:
        """Register a listener; answers a function that removes it.

        Raises:
            InputError: `UNKNOWN_EXTENSION_POINT`, or `INVALID_LISTENER` when the listener's shape does not fit.
            LifecycleError: The layer is already disposed.
        """
        if point not in POINTS:
            known = ", ".join(POINTS)
            raise InputError(f'unknown extension point "{point}"; known: {known}', code="UNKNOWN_EXTENSION_POINT")
        awaited = point in _WATERFALLS or point in _SERIAL
        if point not in _EITHER and awaited != inspect.iscoroutinefunction(_function_of(listener)):
            shape = "an async function" if awaited else "a plain function"
            raise InputError(f'a listener of "{point}" must be {shape}', code="INVALID_LISTENER")
        if self._closed:
            raise LifecycleError("this layer is disposed and takes no more listeners", code="SCOPE_DISPOSED")
        return enlist(self._listeners.setdefault(point, []), listener)

    def close(self) -> None:
        """Forget every listener of this layer and refuse new ones."""
        self._closed = True
        self._listeners.clear()

    def has(self, point: str) -> bool:
        """Whether anyone listens to `point` in this layer or a farther one."""
        return any(layer._listeners.get(point) for layer in self._layers())

    def listeners(self, point: str) -> list[Listener]:
        """The listeners of `point`, farthest layer first, each layer in order of registration."""
        found: list[Listener] = []
        for layer in self._layers():
            found.extend(layer._listeners.get(point, ()))
        return found

    async def waterfall(
        self,
        point: str,
        payload: Any,
        default: Callable[..., Awaitable[Any]],
        accept: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Ask the listeners of a waterfall.

        Args:
            point: The extension point.
            payload: What each listener receives.
            default: Called innermost with what the last listener handed to `next` (nothing, in most points).
            accept: Turns an answer of a listener into the point's value, or raises.
        """
        chain = self.listeners(point)

        async def call(index: int, *args: Any, **kwargs: Any) -> Any:
            if index == len(chain):
                return await default(*args, **kwargs)

            async def following(*args: Any, **kwargs: Any) -> Any:
                return await call(index + 1, *args, **kwargs)

            answer = await chain[index](payload, following)
            return accept(answer) if accept is not None else answer

        return await call(0)

    async def serial(self, point: str, payload: Any) -> None:
        """Await the listeners one after another; the first raise ends it."""
        for listener in self.listeners(point):
            await listener(payload)

    def notify(self, point: str, payload: Any) -> None:
        """Call the listeners of a notification; a failure is logged with the listener's name and contained."""
        for listener in self.listeners(point):
            try:
                listener(payload)
            except Exception:
                _log.exception('listener %r of "%s" failed', getattr(listener, "__qualname__", listener), point)

    def _layers(self) -> Iterator[Hooks]:
        if self._parent is not None:
            yield from self._parent._layers()
        yield self


def _function_of(listener: Listener) -> Any:
    if inspect.isroutine(listener):
        return listener
    return getattr(listener, "func", None) or type(listener).__call__
