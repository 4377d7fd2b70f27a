"""The making of one agent as a transaction: it can be abandoned at every await, and then leaves nothing behind."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio

from nbagent.cancellation import CancelSignal, Interrupted
from nbagent.errors import LifecycleError
from nbagent.logs import logger

if TYPE_CHECKING:
    from nbagent.agent.agent import Agent
    from nbagent.agent.runtime import Runtime
    from nbagent.storage import Handle

__all__ = ("Creation",)

_log = logger(__name__)
_T = TypeVar("_T")


class Creation:
    """One agent on its way to publication; use it as `async with`.

    When the body raises, what was registered with `undo` is undone in reverse order, and the caller gets the failure.

    Args:
        runtime: Where the agent will live.
        agent_id: Its id.
        parent: Whom it goes away with.
        signal: The caller's; abandons the creation.

    Attributes:
        agent_id: As given.
        parent: As given.
        signal: Aborted with the exception that the caller gets.
        done: Set when the agent is published or nothing is left of it.
    """

    def __init__(self, runtime: Runtime, agent_id: str, parent: Agent | None, signal: CancelSignal | None) -> None:
        self._runtime = runtime
        self._undo: list[Callable[[], Any]] = []
        self._unsubscribe: Callable[[], None] = lambda: None
        self._caller = signal
        self.agent_id = agent_id
        self.parent = parent
        self.signal = CancelSignal()
        self.done = anyio.Event()

    async def __aenter__(self) -> Self:
        caller = self._caller
        if caller is not None:
            self._unsubscribe = caller.subscribe(lambda: self.abandon(_aborted(caller.reason, self.agent_id)))
        if self.signal.aborted:
            self.done.set()
            raise self.signal.reason
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unsubscribe()
        try:
            if error is not None:
                with anyio.CancelScope(shield=True):
                    await self._unwind()
        finally:
            self.done.set()

    def abandon(self, failure: BaseException) -> None:
        """Stop where it is; the caller of the creation gets `failure`."""
        self.signal.cancel(failure)

    def undo(self, step: Callable[[], Any]) -> None:
        """Remember how to take back what was just done; `step` may answer an awaitable."""
        self._undo.append(step)

    def check(self) -> None:
        """Raise once the creation is abandoned."""
        if self.signal.aborted:
            raise self.signal.reason

    async def stage(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Await other people's code; an abandoned creation ends the wait."""
        try:
            result = await self.signal.run(work)
        except Interrupted:
            raise self.signal.reason from None
        self.check()
        return result

    async def opened(self, open_handle: Callable[[], Awaitable[Handle]]) -> Handle:
        """Await a store without being held up by it: a handle that comes too late is closed."""
        answer: list[Handle | BaseException] = []
        answered = anyio.Event()
        scope = anyio.CancelScope()

        async def open_and_answer() -> None:
            with scope:
                try:
                    answer.append(await open_handle())
                except Exception as failure:
                    answer.append(failure)
            if answer and self.signal.aborted and not isinstance(answer[0], BaseException):
                with anyio.CancelScope(shield=True):
                    await _close(answer.pop())
            answered.set()

        self._runtime.start_soon(open_and_answer)
        try:
            await self.stage(answered.wait)
        except BaseException as failure:
            # Also when the awaiting task itself was cancelled.
            self.abandon(failure)
            scope.cancel()
            if answer and not isinstance(answer[0], BaseException):
                with anyio.CancelScope(shield=True):
                    await _close(answer.pop())
            raise
        handle = answer[0]
        if isinstance(handle, BaseException):
            raise handle
        self.undo(handle.close)
        return handle

    async def _unwind(self) -> None:
        for step in reversed(self._undo):
            try:
                result = step()
                if inspect.isawaitable(result):
                    await result
            except Exception:
                # The caller gets the failure that began the rollback.
                _log.exception('a creation of agent "%s" was undone with a failure', self.agent_id)


async def _close(handle: Any) -> None:
    try:
        await handle.close()
    except Exception:
        _log.exception("a session that was opened too late could not be closed")


def _aborted(reason: Any, agent_id: str) -> BaseException:
    if isinstance(reason, BaseException):
        return reason
    because = f": {reason}" if reason is not None else ""
    return LifecycleError(f'agent "{agent_id}" creation aborted{because}', code="CREATION_ABORTED")
