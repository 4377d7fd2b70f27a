"""The tool calls of one answer: a bounded pool of bodies that do not conflict.

Calls start, prepare and commit strictly in the model's order; only their bodies overlap. A call that conflicts with one
that runs waits, and so do those behind it. Exclusive calls conflict with all others: they are barriers, and what
stands between two of them is a group, whose limit of bodies in flight is read when it begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import orjson
from anyio.abc import TaskGroup

from nbagent.tools import ToolCall, ToolExecution, ToolOutcome
from nbagent.tools.access import EXCLUSIVE, Access
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
    started = await scheduler.run()
    for block in blocks[started:]:
        call = scheduler.record_call(block)
        scheduler.record_result(block["id"], call, aborted_outcome(dispatched=False))
    return scheduler.concluded


@dataclass(slots=True)
class _Running:
    """A call that has started."""

    block: dict[str, Any]
    access: Access
    recorded: Event
    execution: ToolExecution
    settled: bool = False


class _Scheduler:
    def __init__(self, driver: Driver, blocks: Sequence[dict[str, Any]]) -> None:
        self._driver = driver
        self._blocks = blocks
        self._calls: list[_Running] = []
        self._committed = 0
        self._limit = 1
        self._changed = anyio.Event()
        self._failure: Exception | None = None
        self.concluded = False

    async def run(self) -> int:
        """Start calls while the turn is not cancelled, and commit those; answers how many there were."""
        async with anyio.create_task_group() as bodies:
            try:
                while self._failure is None:
                    await self._commit()
                    access = self._admitted()
                    if access is not None:
                        await self._start(access, bodies)
                    elif self._committed == len(self._calls):
                        break
                    elif not self._calls[self._committed].settled:
                        await self._changed.wait()
                        self._changed = anyio.Event()
            except Exception as error:
                self._failure = self._failure or error
        # Leaving the task group has awaited every started body.
        if self._failure is not None:
            raise self._failure
        return len(self._calls)

    def _admitted(self) -> Access | None:
        """What the next call touches, when it may start now."""
        calls = self._calls
        if len(calls) == len(self._blocks) or self._driver.signal.aborted or self._failure is not None:
            return None
        access = self._access_of(self._blocks[len(calls)])
        in_flight = [call for call in calls if not call.settled]
        if any(access.conflicts_with(call.access) for call in in_flight):
            return None
        if not calls or calls[-1].access.exclusive or access.exclusive:
            # A new group begins, with the limit of this moment.
            self._limit = self._driver.agent.max_parallel_tool_calls
        return access if len(in_flight) < self._limit else None

    def _access_of(self, block: dict[str, Any]) -> Access:
        tool = self._driver.agent.tools.get(block["name"])
        return EXCLUSIVE if tool is None else tool.access(_arguments(block["arguments"]))

    async def _start(self, access: Access, bodies: TaskGroup) -> None:
        driver, block = self._driver, self._blocks[len(self._calls)]
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
        started = _Running(block, access, recorded, execution)
        self._calls.append(started)
        try:
            await execution.prepare()
        except BaseException:
            started.settled = True
            raise
        if execution.decided or self._failure is not None:
            # After a failure meanwhile, no further body is entered.
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

    async def _commit(self) -> None:
        """Make final and log what has settled, up to the first call that has not."""
        while self._committed < len(self._calls) and self._calls[self._committed].settled and self._failure is None:
            call = self._calls[self._committed]
            outcome = await call.execution.finalize()
            if self._failure is not None:
                return
            self.record_result(call.block["id"], call.recorded, outcome)
            self._committed += 1

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
