"""The tool calls of one answer: parallel-safe ones share a bounded pool, exclusive ones are barriers.

Calls start, prepare and commit strictly in the model's order; only their bodies overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import orjson

from nbagent.tools import ToolCall, ToolExecution, ToolOutcome
from nbagent.tools.outcome import aborted_outcome
from nbagent.types.events import Event
from nbagent.types.frozen import NotJsonError, freeze
from nbagent.types.messages import tool_message

if TYPE_CHECKING:
    from nbagent.agent.driver import Driver

__all__ = ("run_tool_calls",)


async def run_tool_calls(driver: Driver, blocks: Sequence[dict[str, Any]]) -> bool:
    """Run every call of the answer; answers whether one of the results concluded the turn.

    After a cancel, started calls are awaited and their results logged; calls that had not started get an aborted
    result.
    """
    scheduler = _Scheduler(driver, blocks)
    position = 0
    while position < len(blocks) and not driver.signal.aborted:
        position = await scheduler.run_group(position)
    for block in blocks[position:]:
        call = scheduler.record_call(block)
        scheduler.record_result(block["id"], call, aborted_outcome(dispatched=False))
    return scheduler.concluded


@dataclass(slots=True)
class _Running:
    """A call that has started."""

    block: dict[str, Any]
    recorded: Event
    execution: ToolExecution
    settled: bool = False


class _Scheduler:
    def __init__(self, driver: Driver, blocks: Sequence[dict[str, Any]]) -> None:
        self._driver = driver
        self._blocks = blocks
        self._changed = anyio.Event()
        self._failure: Exception | None = None
        self.concluded = False

    async def run_group(self, first: int) -> int:
        """Run the group that begins at `first`; answers where the next one begins."""
        parallel = self._is_parallel(first)
        limit = self._driver.agent.max_parallel_tool_calls if parallel else 1
        running: list[_Running] = []
        committed = 0
        async with anyio.create_task_group() as bodies:
            try:
                while True:
                    position = first + len(running)
                    if self._may_start(position, first, running, limit, parallel=parallel):
                        await self._start(self._blocks[position], running, bodies)
                    elif all(call.settled for call in running):
                        await self._commit(running, committed)
                        break
                    else:
                        await self._changed.wait()
                        self._changed = anyio.Event()
                    if self._failure is not None:
                        break
                    committed = await self._commit(running, committed)
            except Exception as error:
                self._failure = self._failure or error
        # Leaving the task group has awaited every started body.
        if self._failure is not None:
            raise self._failure
        return first + len(running)

    def _may_start(self, position: int, first: int, running: list[_Running], limit: int, *, parallel: bool) -> bool:
        if position >= len(self._blocks) or self._driver.signal.aborted:
            return False
        if position > first and (not parallel or not self._is_parallel(position)):
            return False
        return sum(not call.settled for call in running) < limit

    def _is_parallel(self, position: int) -> bool:
        block = self._blocks[position]
        tool = self._driver.agent.tools.get(block["name"])
        if tool is None:
            return False
        try:
            return tool.is_parallel(_arguments(block["arguments"])) is True
        except Exception:  # a classifier that fails does not vouch for the call
            return False

    async def _start(self, block: dict[str, Any], running: list[_Running], bodies: Any) -> None:
        driver = self._driver
        recorded = self.record_call(block)
        call = ToolCall(
            call_id=block["id"],
            name=block["name"],
            arguments=_arguments(block["arguments"]),
            root_call_id=block["id"],
        )
        execution = ToolExecution(
            driver.agent.tools, driver.agent.hooks, driver.agent, call, driver.signal, self._record_approval
        )
        started = _Running(block, recorded, execution)
        running.append(started)
        try:
            await execution.prepare()
        except BaseException:
            started.settled = True
            raise
        if execution.decided:
            started.settled = True
        else:
            bodies.start_soon(self._dispatch, started)

    async def _dispatch(self, call: _Running) -> None:
        try:
            await call.execution.dispatch()
        except Exception as error:
            self._failure = self._failure or error
        finally:
            call.settled = True
            self._changed.set()

    async def _commit(self, running: list[_Running], committed: int) -> int:
        while committed < len(running) and running[committed].settled and self._failure is None:
            call = running[committed]
            outcome = await call.execution.finalize()
            if self._failure is not None:
                break
            self.record_result(call.block["id"], call.recorded, outcome)
            committed += 1
        return committed

    def record_call(self, block: dict[str, Any]) -> Event:
        """Log that a call starts."""
        driver = self._driver
        return driver.session.append(
            "tool/call",
            {
                "turn": driver.turn,
                "step": driver.step,
                "callId": block["id"],
                "name": block["name"],
                "arguments": block["arguments"],
            },
        )

    def _record_approval(self, type: str, data: Mapping[str, Any]) -> None:
        place = {"turn": self._driver.turn, "step": self._driver.step}
        self._driver.session.append(type, {**place, **data}, ignorable=True)

    def record_result(self, call_id: str, recorded: Event, outcome: ToolOutcome) -> None:
        """Log a result, then hand its contexts to the next step."""
        driver = self._driver
        data: dict[str, Any] = {
            "turn": driver.turn,
            "step": driver.step,
            "message": tool_message(call_id, outcome.content, is_error=outcome.is_error),
        }
        if outcome.error is not None:
            data["error"] = dict(outcome.error)
        if outcome.meta is not None:
            data["meta"] = outcome.meta
        driver.session.append("tool/result", data, surface_op="append", source_event_seqs=[recorded.seq])
        if outcome.contexts:
            driver.agent.inbox.splice("next-step", float("inf"), 0, outcome.contexts)
        self.concluded = self.concluded or outcome.concludes_turn


def _arguments(raw: str) -> Any:
    """The model's argument string parsed; the string itself when it is no JSON."""
    if raw == "":
        return freeze({})
    try:
        return freeze(orjson.loads(raw))
    except (orjson.JSONDecodeError, NotJsonError):
        return raw
