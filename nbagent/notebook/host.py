"""The agents' loop: one daemon thread a process, started when it is first needed, and a runtime for each session folder.

The kernel's own loop stands still while a cell computes; this one does not. Every other thread only hands functions over
and gets values back.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import inspect
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbagent.errors import LifecycleError
from nbagent.logs import logger
from nbagent.notebook.waiting import Interrupts, StoppedByUser, wait

if TYPE_CHECKING:
    from anyio import Event
    from anyio.abc import TaskGroup, TaskStatus
    from anyio.from_thread import BlockingPortal

    from nbagent.agent import Runtime

__all__ = ("Host", "host")

_log = logger(__name__)

_EXIT_LIMIT = 1.0
"""Seconds that agents get to end their turns when the process exits; a kernel is killed after about two."""


class Host:
    """The loop's thread and what lives on it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None
        self._thread: threading.Thread | None = None
        self._runtimes: dict[Path, Runtime] = {}
        self._endings: list[Event] = []
        self._tasks: TaskGroup | None = None
        self._closed = False

    @property
    def on_loop(self) -> bool:
        """Whether the calling code runs on the loop's thread."""
        return self._thread is threading.current_thread()

    def submit(self, function: Callable[..., Any], *args: Any) -> concurrent.futures.Future[Any]:
        """Run a plain or async function on the loop's thread; any thread may ask, and nobody waits.

        The function runs in a copy of the caller's context, so what it prints belongs to the cell that asked.

        Raises:
            LifecycleError: `FORKED`, this is a child process; `HOST_CLOSED`, the process is ending.
        """
        if self.on_loop:
            return self._spawn(function, args)
        return self._started().start_task_soon(function, *args)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function on the loop's thread and wait for its answer.

        An interrupt cancels it. Raises like `submit`, and what the function raises.

        Raises:
            StoppedByUser: It was interrupted.
            LifecycleError: `WOULD_DEADLOCK`, an async function was asked for on the loop's own thread.
        """
        if self.on_loop:
            if inspect.iscoroutinefunction(function):
                self.check_may_wait()
            return function(*args)
        future = self.submit(function, *args)
        with Interrupts(future.cancel) as interrupts:
            wait(future, interrupts)
        if interrupts.count:
            raise StoppedByUser("interrupted")
        return future.result()

    def check_may_wait(self) -> None:
        """Raise when this thread is the one that would have to do the work meanwhile.

        Raises:
            LifecycleError: `WOULD_DEADLOCK`.
        """
        if self.on_loop:
            raise LifecycleError(
                "this would wait for the loop on its own thread: in async tools and listeners await the method that "
                "begins with an a (arun, acreate)",
                code="WOULD_DEADLOCK",
            )

    def runtime(self, folder: Path) -> Runtime:
        """The running runtime whose sessions are kept in `folder`; waits for it to start the first time."""
        with self._lock:
            known = self._runtimes.get(folder)
        return known if known is not None else self.call(self._open, folder)

    def close(self, timeout: float = _EXIT_LIMIT) -> None:
        """End every agent, pending input kept, and stop the thread; gives up after `timeout` seconds."""
        portal, thread = self._portal, self._thread
        self._closed = True
        if portal is None or thread is None or os.getpid() != self.pid:
            return
        with contextlib.suppress(Exception):
            portal.start_task_soon(self._end).result(timeout)
            thread.join(timeout)

    def _started(self) -> BlockingPortal:
        if os.getpid() != self.pid:
            raise LifecycleError(
                "agents live in the process that made them, and this one was forked from it: create agents here anew",
                code="FORKED",
            )
        with self._lock:
            if self._closed:
                raise LifecycleError("the agents of this process have been shut down", code="HOST_CLOSED")
            if self._portal is None:
                self._portal = self._start()
            return self._portal

    def _start(self) -> BlockingPortal:
        import anyio
        from anyio.from_thread import BlockingPortal

        ready: concurrent.futures.Future[BlockingPortal] = concurrent.futures.Future()

        async def main() -> None:
            async with BlockingPortal() as portal, anyio.create_task_group() as tasks:
                self._tasks = tasks
                ready.set_result(portal)
                await portal.sleep_until_stopped()

        # A daemon: a process whose main thread is done does not wait for agents longer than `close` does.
        self._thread = threading.Thread(target=anyio.run, args=(main,), name="nbagent", daemon=True)
        self._thread.start()
        portal = ready.result()
        atexit.register(self.close)
        return portal

    async def _open(self, folder: Path) -> Runtime:
        known = self._runtimes.get(folder)
        if known is not None:
            return known
        import anyio

        from nbagent.agent import Runtime
        from nbagent.storage import JsonlStore

        ending = anyio.Event()

        async def serve(*, task_status: TaskStatus[Runtime]) -> None:
            # Entered and left in one task of its own, as the runtime's task group wants it.
            try:
                async with Runtime(store=JsonlStore(folder)) as runtime:
                    task_status.started(runtime)
                    await ending.wait()
            except Exception:
                _log.exception("the agents of %s could not all be ended", folder)

        runtime = self._runtimes[folder] = await self._group.start(serve)
        self._endings.append(ending)
        return runtime

    async def _end(self) -> None:
        for ending in self._endings:
            ending.set()
        if self._portal is not None:
            await self._portal.stop()

    @property
    def _group(self) -> TaskGroup:
        if self._tasks is None:
            raise LifecycleError("the agents of this process have been shut down", code="HOST_CLOSED")
        return self._tasks

    def _spawn(self, function: Callable[..., Any], args: tuple[Any, ...]) -> concurrent.futures.Future[Any]:
        # What the portal does for other threads it refuses to do for its own.
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        async def fulfil() -> None:
            try:
                answer = function(*args)
                result = await answer if inspect.isawaitable(answer) else answer
            except Exception as failure:
                future.set_exception(failure)
            except BaseException:
                future.cancel()
                raise
            else:
                future.set_result(result)

        self._group.start_soon(fulfil)
        return future


_host: Host | None = None
_host_lock = threading.Lock()


def host() -> Host:
    """The host of this process; a forked child gets one of its own."""
    global _host  # noqa: PLW0603
    with _host_lock:
        if _host is None or _host.pid != os.getpid():
            _host = Host()
        return _host
