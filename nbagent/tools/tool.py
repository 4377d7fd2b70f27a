"""A typed Python function as a tool."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, overload

from nbagent.errors import InputError, NbagentError
from nbagent.tools.outcome import ToolOutcome
from nbagent.types.config import ToolDeclaration
from nbagent.types.frozen import freeze

__all__ = ("Tool", "as_tool", "tool")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
ParallelRule = bool | Callable[[Any], bool]


class Tool:
    """A function that a model can call. It can still be called as the function it was made of.

    Args:
        function: Sync or async, with type hints.
        name: What the model calls it; the function's name by default.
        description: What the model is told; the docstring's summary by default.
        parallel: Whether calls may overlap with other parallel calls, or a function of the arguments that says so.
        final_content: Makes the final content of every outcome, of failures too.

    Raises:
        InputError: `INVALID_TOOL`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        parallel: ParallelRule = False,
        final_content: Callable[[ToolOutcome], Any] | None = None,
    ) -> None:
        if not callable(function):
            raise InputError(f"a tool is made of a function, got {function!r}", code="INVALID_TOOL")
        self.function = function
        self.name = name or getattr(function, "__name__", "")
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f'tool name "{self.name}" must be letters, digits, "_" or "-": give one with @tool(name=...)',
                code="INVALID_TOOL",
            )
        self.final_content = final_content
        self.is_async = inspect.iscoroutinefunction(_unwrapped(function))
        self._description = description
        self._parallel = parallel
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    @cached_property
    def declaration(self) -> ToolDeclaration:
        """Name, description and JSON schema of the parameters, as a model is told them.

        Raises:
            InputError: `INVALID_TOOL`, a parameter has no schema.
        """
        described = self._signature.description if self._description is None else self._description
        declared = {"name": self.name, "description": described, "parameters": self._signature.schema}
        return ToolDeclaration.of(freeze(declared))

    def is_parallel(self, arguments: Any) -> bool:
        """Whether a call with these arguments may overlap with others."""
        return self._parallel if isinstance(self._parallel, bool) else self._parallel(arguments)

    def validate(self, arguments: Any) -> dict[str, Any]:
        """The model's arguments as the function takes them.

        Raises:
            ToolError: `INVALID_ARGUMENTS`, one line a fault, for the model to read.
        """
        return self._signature.validate(arguments)

    def checked(self, value: Any) -> Any:
        """The function's result, checked against its annotation where that is a model or a dataclass.

        Raises:
            ToolError: `INVALID_TOOL_OUTPUT`.
        """
        return self._signature.checked(value)

    @cached_property
    def _signature(self) -> Any:
        from nbagent.tools.schema import Signature

        return Signature(self.name, self.function)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: ParallelRule = False,
    final_content: Callable[[ToolOutcome], Any] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a typed function: `@tool` or `@tool(parallel=True)`.

    The schema comes from the signature and the docstring; arguments are validated before the body runs. A sync body
    runs on a worker thread, an async one on the agents' loop. Options as for `Tool`.

    Raises:
        InputError: `INVALID_TOOL`.
    """
    if function is not None:
        return _declared(Tool(function))

    def decorate(decorated: Callable[..., Any]) -> Tool:
        return _declared(Tool(decorated, **options))

    return decorate


def as_tool(value: Tool | Callable[..., Any]) -> Tool:
    """`value` as a tool; a plain function becomes one that is exclusive.

    Raises:
        InputError: `INVALID_TOOL`.
    """
    return value if isinstance(value, Tool) else _declared(Tool(value))


def _declared(made: Tool) -> Tool:
    # A function that cannot be declared is refused where it is defined, not in the middle of a turn.
    try:
        made.declaration  # noqa: B018
    except NbagentError:
        raise
    except Exception as fault:
        raise InputError(f'tool "{made.name}" has no usable signature: {fault}', code="INVALID_TOOL") from fault
    return made


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        return type(function).__call__
    return function
