"""The runtime: the object that ties store, registries and agents together, and the task group their turns run in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Literal, Self

import anyio
from anyio.abc import TaskGroup

from nbagent.agent.lifecycle import Agents
from nbagent.agent.prompt import PromptRegistry
from nbagent.agent.registry import SessionTable
from nbagent.agent.scope import Scope
from nbagent.errors import InputError, LifecycleError
from nbagent.hooks import Hooks, Listener
from nbagent.llm.prices import Price, price
from nbagent.llm.retry import RetryPolicy
from nbagent.llm.runtime import LlmRuntime
from nbagent.session.message_projections import MessageProjections
from nbagent.session.projection import ProjectionRegistry
from nbagent.session.projections import INBOX, TURN_BOUNDARY, TURNS
from nbagent.storage import MemoryStore, Store
from nbagent.tools import ToolRegistry

__all__ = ("Runtime",)


class Runtime:
    """Where agents live. Use it as `async with Runtime(...) as runtime`, on asyncio or trio.

    Leaving it cancels what runs, stores the last event of every turn, and leaves pending input in the sessions.

    Args:
        store: Where sessions are kept; in memory by default.
        retry: What happens after a failed model call: `"normal"`, `"always"`, a `RetryPolicy`, or none.
        max_parallel_tool_calls: Parallel-safe tool calls that one agent may have in flight.
        price: `(provider, model, usage) -> dollars`, or none for a model without a known price; budgets of cost ask it.
        clock: Milliseconds since the epoch, for tests.

    Attributes:
        agents: `create`, `resume`, `fork`, `get`, `list`.
        sessions: The live sessions; `flush` makes one safe against a power failure.
        projections: States folded from the logs.
        message_projections: How events of types that are not nbagent's own rewrite messages.
        llm: Routes to models, for every agent.
        tools: Tools and guards, for every agent.
        prompt: Prompt sections, variables and context, for every agent.
        hooks: Listeners that hear every agent.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        retry: Literal["normal", "always"] | RetryPolicy | None = "normal",
        max_parallel_tool_calls: int = 10,
        price: Price = price,
        clock: Callable[[], int] | None = None,
    ) -> None:
        if type(max_parallel_tool_calls) is not int or max_parallel_tool_calls < 1:
            raise InputError(
                f"maxParallelToolCalls must be a positive integer, got {max_parallel_tool_calls!r}",
                code="INVALID_OPTION",
            )
        self.store: Store = store if store is not None else MemoryStore()
        self.retry = RetryPolicy.named(retry) if isinstance(retry, str) else retry
        self.max_parallel_tool_calls = max_parallel_tool_calls
        self.price = price
        self.clock = clock
        self.scope = Scope()
        self.projections = ProjectionRegistry()
        for unit in (INBOX, TURN_BOUNDARY, TURNS):
            self.projections.register(unit)
        self.message_projections = MessageProjections()
        self.sessions = SessionTable(self.scope.hooks)
        self.agents = Agents(self)
        self._tasks: TaskGroup | None = None
        self._thread: int | None = None
        self._closing = False

    @property
    def hooks(self) -> Hooks:
        return self.scope.hooks

    @property
    def llm(self) -> LlmRuntime:
        return self.scope.llm

    @property
    def tools(self) -> ToolRegistry:
        return self.scope.tools

    @property
    def prompt(self) -> PromptRegistry:
        return self.scope.prompt

    def on(self, point: str, listener: Listener) -> Callable[[], None]:
        """Listen to an extension point for every agent; answers a function that removes the listener."""
        return self.scope.on(point, listener)

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise LifecycleError("this runtime is already running", code="ALREADY_ACTIVE")
        self._thread = threading.get_ident()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = self._tasks
        if tasks is None:
            return
        self._closing = True
        try:
            with anyio.CancelScope(shield=True):
                try:
                    await self.agents.dispose_all()
                finally:
                    await self.scope.aclose()
        finally:
            self._tasks = None
            # The body's own error goes on by itself; given to the group it would come out wrapped.
            await tasks.__aexit__(None, None, None)

    # -- for the parts of the loop -------------------------------------------------------------------------------------

    def start_soon(self, function: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a task of an agent."""
        if self._tasks is None:
            raise self.closed()
        self._tasks.start_soon(function)

    def check_active(self) -> None:
        """Raise unless the runtime runs and is not being left."""
        if self._tasks is None or self._closing:
            raise self.closed()

    @property
    def closing(self) -> bool:
        """Whether the runtime is being left."""
        return self._closing

    def closed(self) -> LifecycleError:
        """What those get who come too late or too early."""
        return LifecycleError(
            'agent loop is not active: use the runtime inside "async with Runtime(...)"', code="RUNTIME_CLOSED"
        )

    def check_thread(self) -> None:
        """Raise unless this is the thread of the runtime's event loop."""
        if self._thread is not None and threading.get_ident() != self._thread:
            raise LifecycleError(
                "agents are used on their event loop's thread; from a notebook cell use the agent that %agent create "
                "bound, or a blocking portal",
                code="WRONG_THREAD",
            )
