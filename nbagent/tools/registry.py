"""The tools, guards and approval services of one layer; an agent's layer shadows the runtime's by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nbagent.errors import InputError, LifecycleError
from nbagent.hooks import Hooks
from nbagent.registration import enlist
from nbagent.tools.approval import ApprovalService
from nbagent.tools.body import MainThread
from nbagent.tools.points import ToolCall
from nbagent.tools.signature import innermost
from nbagent.tools.tool import Tool, as_tool
from nbagent.types.config import ToolDeclaration

__all__ = ("Guard", "ToolRegistry")

Guard = Callable[[ToolCall], str | None]


@dataclass(frozen=True, slots=True)
class _Restriction:
    kept: frozenset[str] | None
    hidden: frozenset[str]

    def admits(self, name: str) -> bool:
        return name not in self.hidden and (self.kept is None or name in self.kept)


class ToolRegistry:
    """One layer of tools.

    Args:
        hooks: The extension points of this layer.
        parent: The farther layer.
    """

    def __init__(self, hooks: Hooks, parent: ToolRegistry | None = None) -> None:
        self.hooks = hooks
        self._parent = parent
        self._tools: dict[str, Tool] = {}
        self._guards: list[Guard] = []
        self._approval_services: list[ApprovalService] = []
        self._restrictions: list[_Restriction] = []
        self._main_thread: MainThread | None = None
        self._closed = False

    def register(self, tool: Tool | Callable[..., Any]) -> Callable[[], None]:
        """Offer a tool, or a function that becomes one; answers a function that takes it away.

        Raises:
            InputError: `DUPLICATE_TOOL`, `INVALID_TOOL`.
            LifecycleError: `SCOPE_DISPOSED`.
        """
        self._check_open()
        registered = as_tool(tool)
        if registered.name in self._tools:
            raise InputError(f'tool "{registered.name}" is already registered in this layer', code="DUPLICATE_TOOL")
        self._tools[registered.name] = registered

        def remove() -> None:
            if self._tools.get(registered.name) is registered:
                del self._tools[registered.name]

        return remove

    def guard(self, guard: Guard) -> Callable[[], None]:
        """Ask `guard(call)` before each call that policy allows; answers a function that removes it.

        A guard is a plain function. The reason that it answers denies the call, whatever else allows it; `None` (or
        `False`) has no objection.

        Raises:
            InputError: `INVALID_LISTENER`, it is an async function.
            LifecycleError: `SCOPE_DISPOSED`.
        """
        self._check_open()
        if inspect.iscoroutinefunction(guard):
            raise InputError("a guard must be a plain function; use tools/pre-execute to wait", code="INVALID_LISTENER")
        return enlist(self._guards, guard)

    def approve_with(self, service: ApprovalService) -> Callable[[], None]:
        """Let `await service(request)` decide the calls for which policy asks; answers a function that removes it.

        It answers `allowed-once`, `rejected`, `cancelled` or `unavailable`. The nearest layer that has a service
        decides, by the one registered last. A service that raises or answers something else fails the call.

        Raises:
            InputError: `INVALID_LISTENER`, it is no async function.
            LifecycleError: `SCOPE_DISPOSED`.
        """
        self._check_open()
        if not callable(service) or not inspect.iscoroutinefunction(innermost(service)):
            raise InputError("an approval service must be an async function", code="INVALID_LISTENER")
        return enlist(self._approval_services, service)

    def restrict(
        self, names: Sequence[str] | None = None, *, without: Sequence[str] | None = None
    ) -> Callable[[], None]:
        """Hide tools that this layer inherits; what is registered in this layer itself stays visible.

        Args:
            names: The inherited tools that stay; all of them when left out. Several restrictions intersect.
            without: Inherited tools to hide.

        Returns:
            A function that lifts the restriction.

        Raises:
            InputError: `UNKNOWN_TOOL`, a name that is not inherited; `INVALID_OPTION`, nothing named, or a layer that
                inherits nothing.
            LifecycleError: `SCOPE_DISPOSED`.
        """
        self._check_open()
        if self._parent is None:
            raise InputError(
                "restrict hides what an agent inherits: use it on agent.tools, not on the runtime's",
                code="INVALID_OPTION",
            )
        kept = [names] if isinstance(names, str) else names
        hidden = [without] if isinstance(without, str) else without
        if not kept and not hidden:
            raise InputError("restrict needs at least one tool name", code="INVALID_OPTION")
        inherited = self._parent._every()
        for name in (*(kept or ()), *(hidden or ())):
            if name not in inherited:
                known = ", ".join(sorted(inherited)) or "none"
                raise InputError(f'unknown inherited tool "{name}"; inherited: {known}', code="UNKNOWN_TOOL")
        restriction = _Restriction(frozenset(kept) if kept else None, frozenset(hidden or ()))
        self._restrictions.append(restriction)

        def lift() -> None:
            if restriction in self._restrictions:
                self._restrictions.remove(restriction)

        return lift

    def get(self, name: str) -> Tool | None:
        """The visible tool of a name, or none."""
        restrictions: list[_Restriction] = []
        for layer in self._layers():
            if name in layer._tools:
                admitted = all(restriction.admits(name) for restriction in restrictions)
                return layer._tools[name] if admitted else None
            restrictions += layer._restrictions
        return None

    def visible(self) -> list[Tool]:
        """The tools that an agent of this layer has, by name."""
        tools = [self.get(name) for name in sorted(self._every())]
        return [tool for tool in tools if tool is not None]

    def declarations(self) -> list[ToolDeclaration]:
        """What a model is told of the visible tools."""
        return [tool.declaration for tool in self.visible()]

    def names(self) -> list[str]:
        """The names of the tools of this layer and the farther ones, hidden ones included."""
        return sorted(self._every())

    def denial(self, call: ToolCall) -> str | None:
        """The first reason that a guard has against a call, the farthest layer asked first.

        Raises:
            InputError: `INVALID_DECISION`, a guard answered something else than a reason.
            Exception: What a guard raised.
        """
        for layer in reversed(list(self._layers())):
            for guard in list(layer._guards):
                reason: Any = guard(call)
                if isinstance(reason, str):
                    return reason
                if reason is not None and reason is not False:
                    raise InputError(
                        f"a guard must answer a reason or None, got {reason!r}"[:300], code="INVALID_DECISION"
                    )
        return None

    @property
    def approval_service(self) -> ApprovalService | None:
        """What decides about calls for which policy asks, or none."""
        return next((layer._approval_services[-1] for layer in self._layers() if layer._approval_services), None)

    @property
    def main_thread(self) -> MainThread | None:
        """What runs the bodies of `@tool(thread="main")`: `await f(job, signal)`; of this layer or a farther one.

        Without one they run where they are called, which must then be the main thread.
        """
        return next((layer._main_thread for layer in self._layers() if layer._main_thread is not None), None)

    @main_thread.setter
    def main_thread(self, runner: MainThread | None) -> None:
        self._main_thread = runner

    def close(self) -> None:
        """Forget everything in this layer and refuse more."""
        self._closed = True
        self._tools.clear()
        self._guards.clear()
        self._approval_services.clear()
        self._restrictions.clear()

    def _every(self) -> dict[str, Tool]:
        found: dict[str, Tool] = {}
        for layer in reversed(list(self._layers())):
            found.update(layer._tools)
        return found

    def _check_open(self) -> None:
        if self._closed:
            raise LifecycleError("this layer is disposed and takes no more tools", code="SCOPE_DISPOSED")

    def _layers(self) -> Iterator[ToolRegistry]:
        yield self
        if self._parent is not None:
            yield from self._parent._layers()
