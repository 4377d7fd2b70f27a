"""The tools and guards of one layer; an agent's layer shadows the runtime's by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nbagent.errors import InputError, LifecycleError
from nbagent.hooks import Hooks
from nbagent.tools.points import ToolCall
from nbagent.tools.tool import Tool, as_tool
from nbagent.types.config import ToolDeclaration

__all__ = ("Guard", "ToolRegistry")

Guard = Callable[[ToolCall], str | None]


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
        self._filters: list[frozenset[str]] = []
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
        """Ask `guard(call)` before each call; a reason that it answers denies it. Answers a function that removes it."""
        self._check_open()
        self._guards.append(guard)

        def remove() -> None:
            if guard in self._guards:
                self._guards.remove(guard)

        return remove

    def restrict(self, names: Sequence[str]) -> Callable[[], None]:
        """Hide every tool but these, those of farther layers included; answers a function that lifts it.

        Raises:
            InputError: `UNKNOWN_TOOL`, a name that nothing has; `INVALID_OPTION`, no name at all.
        """
        self._check_open()
        if not names:
            raise InputError("restrict needs at least one tool name", code="INVALID_OPTION")
        known = self._every()
        for name in names:
            if name not in known:
                raise InputError(f'unknown tool "{name}"; known: {", ".join(known) or "none"}', code="UNKNOWN_TOOL")
        allowed = frozenset(names)
        self._filters.append(allowed)

        def lift() -> None:
            if allowed in self._filters:
                self._filters.remove(allowed)

        return lift

    def get(self, name: str) -> Tool | None:
        """The visible tool of a name, or none."""
        if any(name not in allowed for layer in self._layers() for allowed in layer._filters):
            return None
        for layer in self._layers():
            if name in layer._tools:
                return layer._tools[name]
        return None

    def visible(self) -> list[Tool]:
        """The tools that an agent of this layer has, by name."""
        tools = [self.get(name) for name in sorted(self._every())]
        return [tool for tool in tools if tool is not None]

    def declarations(self) -> list[ToolDeclaration]:
        """What a model is told of the visible tools."""
        return [tool.declaration for tool in self.visible()]

    def denial(self, call: ToolCall) -> str | None:
        """The first reason that a guard has against a call, the farthest layer asked first."""
        for layer in reversed(list(self._layers())):
            for guard in list(layer._guards):
                reason = guard(call)
                if reason is not None:
                    return reason
        return None

    def close(self) -> None:
        """Forget everything in this layer and refuse more."""
        self._closed = True
        self._tools.clear()
        self._guards.clear()
        self._filters.clear()

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
