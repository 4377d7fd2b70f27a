"""Running a tool's body: validated arguments in, an outcome out, whatever the body does."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from nbagent.cancellation import CancelSignal, Interrupted, WaitCancelledError, cancelled_here
from nbagent.errors import ToolError
from nbagent.logs import logger
from nbagent.tools.current import CurrentCall, serving
from nbagent.tools.outcome import ToolOutcome, aborted_outcome, accept_content, failed, failure_of
from nbagent.tools.points import ToolCall, accept_outcome
from nbagent.tools.results import cut, text_of_value
from nbagent.tools.tool import Tool
from nbagent.types.frozen import FrozenDict

__all__ = ("MainThread", "run_body", "success_of")

_log = logger(__name__)
_GRACE = 0.1
"""Seconds that an async body gets to notice a cancel before its awaits are cancelled."""
_THREADS = 64
"""Sync bodies of one event loop that may run at once."""

MainThread = Callable[[Callable[[], Any], CancelSignal], Awaitable[Any]]
"""Runs a job on the main thread and answers its result; raises `Interrupted` for one that was cancelled unstarted."""

_limiter: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("nbagent_tool_threads")


async def run_body(tool: Tool, call: ToolCall, served: CurrentCall, main_thread: MainThread | None) -> ToolOutcome:
    """Run the body of `tool` for `call`.

    An async body runs on the loop and is cancelled shortly after an abort that it does not heed; a sync body runs on
    another thread and is always awaited. A body may also return a `ToolOutcome` that it has made itself. Attached
    contexts are in `served`, not in the outcome.
    """
    try:
        arguments = tool.validate(call.arguments)
        with serving(served):
            if tool.is_async:
                value = await served.signal.run(lambda: tool.function(**arguments), grace=_GRACE)
            else:
                value = await _off_the_loop(tool, arguments, served, main_thread)
        return (
            accept_outcome(value)
            if isinstance(value, ToolOutcome)
            else success_of(tool, value, concluded=served.concluded)
        )
    except Interrupted:
        return aborted_outcome(dispatched=True)
    except (asyncio.CancelledError, WaitCancelledError) as failure:
        if isinstance(failure, asyncio.CancelledError) and cancelled_here():
            raise
        # What the body awaited was cancelled, not the body: its own doing, unless it heeds the abort that way.
        if served.signal.aborted:
            return aborted_outcome(dispatched=True)
        return failed("something that the tool waited for was cancelled")
    except (Exception, SystemExit) as failure:
        _log.debug('tool "%s" failed', tool.name, exc_info=failure)
        return failure_of(failure)


def success_of(tool: Tool, value: Any, *, concluded: bool) -> ToolOutcome:
    """The outcome of a returned value.

    Raises:
        ToolError: `INVALID_TOOL_OUTPUT`.
    """
    value = tool.checked(value)
    text = text_of_value(value)
    shown = cut(text)
    return ToolOutcome(
        content=accept_content(shown),
        meta=FrozenDict(cutFrom=len(text)) if shown is not text else None,
        concludes_turn=concluded,
        value=value,
    )


@dataclass(frozen=True, slots=True)
class _Awaitable:
    """What a sync body returned to be awaited, in a box: threads hand plain values over and nothing else."""

    value: Awaitable[Any]


async def _off_the_loop(
    tool: Tool, arguments: dict[str, Any], served: CurrentCall, main_thread: MainThread | None
) -> Any:
    """Run a sync body; answers its outcome, made there too, or what an awaitable that it returned gives."""

    def work() -> ToolOutcome | _Awaitable:
        try:
            value = tool.function(**arguments)
            if inspect.isawaitable(value):
                return _Awaitable(value)
            return (
                accept_outcome(value)
                if isinstance(value, ToolOutcome)
                else success_of(tool, value, concluded=served.concluded)
            )
        except BaseException as failure:  # futures refuse or change some of them, and nobody above could handle them
            _log.debug('tool "%s" failed', tool.name, exc_info=failure)
            return failure_of(failure)

    answer: Any = None
    # The body cannot be stopped; even when the task is cancelled it is awaited, so that nothing runs on unseen.
    with anyio.CancelScope(shield=True):
        if tool.thread == "main":
            answer = await _on_main_thread(tool, work, served.signal, main_thread)
        else:
            answer = await anyio.to_thread.run_sync(work, limiter=_threads())
    if isinstance(answer, _Awaitable):
        waited = answer.value
        return await served.signal.run(lambda: waited, grace=_GRACE)
    return answer


async def _on_main_thread(
    tool: Tool, work: Callable[[], Any], signal: CancelSignal, main_thread: MainThread | None
) -> Any:
    if main_thread is not None:
        context = contextvars.copy_context()
        return await main_thread(lambda: context.run(work), signal)
    if threading.current_thread() is threading.main_thread():
        return work()
    raise ToolError(
        f'tool "{tool.name}" must run on the main thread, and nothing runs jobs there', code="NO_MAIN_THREAD"
    )


def _threads() -> anyio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_THREADS)
        _limiter.set(limiter)
        return limiter
