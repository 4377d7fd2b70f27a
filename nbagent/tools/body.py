"""Running a tool's body: validated arguments in, an outcome out, whatever the body does."""

from __future__ import annotations

import contextvars
import logging
from typing import Any

import anyio
import anyio.to_thread

from nbagent.cancellation import Interrupted
from nbagent.errors import NbagentError, ToolError, error_chain
from nbagent.tools.current import CurrentCall, serving
from nbagent.tools.outcome import ToolOutcome, aborted_outcome, failed
from nbagent.tools.points import ToolCall
from nbagent.tools.results import content_of
from nbagent.tools.tool import Tool

__all__ = ("run_body",)

_log = logging.getLogger(__name__)
_GRACE = 0.1
"""Seconds that an async body gets to notice a cancel before its awaits are cancelled."""
_THREADS = 64
"""Sync bodies that may run at once over all agents."""


async def run_body(tool: Tool, call: ToolCall, served: CurrentCall) -> ToolOutcome:
    """Run the body of `tool` for `call`.

    An async body runs on the loop and is cancelled shortly after an abort that it does not heed; a sync body runs on a
    worker thread and is always awaited.
    """
    try:
        arguments = tool.validate(call.arguments)
    except ToolError as fault:
        return failed(fault.message, contexts=served.contexts)
    try:
        with serving(served):
            if tool.is_async:
                value = await served.signal.run(lambda: tool.function(**arguments), grace=_GRACE)
            else:
                value = await _in_thread(tool, arguments)
        value = tool.checked(value)
        content, meta = content_of(value)
    except Interrupted:
        return aborted_outcome(dispatched=True, contexts=served.contexts)
    except NbagentError as failure:
        return failed(failure.message, name=type(failure).__name__, code=failure.code, contexts=served.contexts)
    except Exception as failure:
        _log.debug('tool "%s" failed', tool.name, exc_info=failure)
        return failed(error_chain(failure), contexts=served.contexts)
    return ToolOutcome(
        content=content, meta=meta, contexts=served.contexts, concludes_turn=served.concluded, value=value
    )


async def _in_thread(tool: Tool, arguments: dict[str, Any]) -> Any:
    context = contextvars.copy_context()
    # The body cannot be stopped; even when the task is cancelled it is awaited, so that nothing runs on unseen.
    with anyio.CancelScope(shield=True):
        return await anyio.to_thread.run_sync(lambda: context.run(tool.function, **arguments), limiter=_limiter())


_limiters: dict[Any, anyio.CapacityLimiter] = {}


def _limiter() -> anyio.CapacityLimiter:
    token = anyio.lowlevel.current_token()
    limiter = _limiters.get(token)
    if limiter is None:
        _limiters.clear()
        limiter = _limiters[token] = anyio.CapacityLimiter(_THREADS)
    return limiter
