"""A registry with listeners, and calls that go through the whole pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent import CancelSignal
from nbagent.hooks import Hooks
from nbagent.tools import ToolCall, ToolExecution, ToolOutcome, ToolRegistry
from nbagent.types.frozen import freeze
from nbagent.types.messages import text_of


class Bench:
    """One agent's layer over a runtime's, and what its listeners saw."""

    def __init__(self) -> None:
        self.runtime_hooks = Hooks()
        self.hooks = Hooks(self.runtime_hooks)
        self.runtime = ToolRegistry(self.runtime_hooks)
        self.tools = ToolRegistry(self.hooks, self.runtime)
        self.signal = CancelSignal()
        self.results: list[ToolOutcome] = []
        self.hooks.on("tools/result", lambda payload: self.results.append(payload.outcome))

    def on(self, point: str) -> Any:
        """Decorator: listen to a point."""

        def register(listener: Any) -> Any:
            self.hooks.on(point, listener)
            return listener

        return register

    def execution(self, name: str, arguments: Any = None, *, agent: Any = "agent") -> ToolExecution:
        arguments = {} if arguments is None else arguments
        call = ToolCall(call_id="c1", name=name, arguments=arguments, root_call_id="c1")
        return ToolExecution(self.tools, self.hooks, agent, call, self.signal)

    async def call(self, name: str, arguments: Any = None) -> ToolOutcome:
        """Run a call as the loop does."""
        execution = self.execution(name, arguments)
        await execution.prepare()
        if not execution.decided:
            await execution.dispatch()
        return await execution.finalize()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def said(outcome: ToolOutcome) -> str:
    """What the model reads."""
    return text_of(outcome.content)


def code(outcome: ToolOutcome) -> str | None:
    return outcome.error["code"] if outcome.error is not None else None


ABORTED = freeze({"name": "AbortError", "code": "ABORTED"})
ABORTED_BEFORE_DISPATCH = freeze({"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"})
