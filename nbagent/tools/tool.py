"""A typed Python function as a tool."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

from nbagent.errors import InputError
from nbagent.tools.access import EXCLUSIVE, SHARED, Access, ResourceKeys, resource_keys
from nbagent.tools.signature import innermost
from nbagent.types.config import ToolDeclaration
from nbagent.types.frozen import freeze

if TYPE_CHECKING:
    from nbagent.tools.outcome import ToolOutcome
    from nbagent.tools.schema import Signature

__all__ = ("FinalContent", "ParallelRule", "Tool", "as_tool", "tool")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

ParallelRule = bool | Callable[[Any], bool]
FinalContent = Callable[["ToolOutcome"], str | Iterable[Mapping[str, Any]] | None]


class Tool:
    """A function that a model can call. It can still be called as the function it was made of.

    Args:
        function: Sync or async, with type hints.
        name: What the model calls it; the function's name by default.
        description: What the model is told; the docstring without its sections by default.
        parallel: Whether calls may overlap with other parallel calls, or a function of the arguments that says so.
        reads: Names of the resources that a call reads, or a function of the arguments that answers them. A tool
            with `reads` or `writes` overlaps with parallel calls and with those that touch other resources: two calls
            conflict when one writes what the other reads or writes. A call whose resources cannot be told is exclusive.
        writes: The same for what it changes.
        thread: Where a sync body runs: on a worker thread, or as a job on the main thread, for connections and
            objects that belong to it. Async bodies run on the agents' loop.
        final_content: Makes the final content of every outcome, of failures too: a text, content blocks, or `None`
            to keep what there is.

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
        reads: ResourceKeys | None = None,
        writes: ResourceKeys | None = None,
        thread: Literal["worker", "main"] = "worker",
        final_content: FinalContent | None = None,
    ) -> None:
        if isinstance(function, Tool):
            function = function.function
        if not callable(function):
            raise InputError(f"a tool is made of a function, got {function!r}", code="INVALID_TOOL")
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name or getattr(function, "__name__", None) or getattr(innermost(function), "__name__", "")
        if not _NAME.fullmatch(self.name) or self.name == "__call__":
            raise InputError(
                f'tool name "{self.name}" must be letters, digits, "_" or "-": give one with @tool(name=...)',
                code="INVALID_TOOL",
            )
        body = innermost(function)
        if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
            raise InputError(
                f'tool "{self.name}" yields its results one by one: return them together, for example as a list',
                code="INVALID_TOOL",
            )
        if thread not in {"worker", "main"}:
            raise InputError(f'tool "{self.name}": thread is "worker" or "main", got {thread!r}', code="INVALID_TOOL")
        self.thread = thread
        self.final_content = final_content
        self.is_async = inspect.iscoroutinefunction(body)
        self._reads = _accept_keys(self.name, reads)
        self._writes = _accept_keys(self.name, writes)
        self._description = description
        self._parallel = parallel

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
        """Whether a call with these arguments may overlap with others; arguments that are no object never do."""
        if isinstance(self._parallel, bool):
            return self._parallel
        return isinstance(arguments, Mapping) and self._parallel(arguments) is True

    def access(self, arguments: Any) -> Access:
        """What a call with these arguments touches; exclusive when that cannot be told."""
        try:
            keyed = self._reads is not None or self._writes is not None
            if (not keyed or callable(self._parallel)) and self.is_parallel(arguments) is not True:
                return EXCLUSIVE
            if not keyed:
                return SHARED
            return Access(resource_keys(self._reads, arguments), resource_keys(self._writes, arguments))
        except Exception:  # a rule that fails does not vouch for the call
            return EXCLUSIVE

    def validate(self, arguments: Any) -> dict[str, Any]:
        """The model's arguments as the function takes them.

        Raises:
            ToolError: `INVALID_ARGUMENTS`, one line a fault, for the model to read.
        """
        return self._signature.validate(arguments)

    def checked(self, value: Any) -> Any:
        """The function's result, checked against its annotation where pydantic understands that.

        Raises:
            ToolError: `INVALID_TOOL_OUTPUT`.
        """
        return self._signature.checked(value)

    @cached_property
    def _signature(self) -> Signature:
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
    reads: ResourceKeys | None = None,
    writes: ResourceKeys | None = None,
    thread: Literal["worker", "main"] = "worker",
    final_content: FinalContent | None = None,
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
    except InputError:
        raise
    except Exception as fault:
        raise InputError(f'tool "{made.name}" has no usable signature: {fault}', code="INVALID_TOOL") from fault
    return made


def _accept_keys(name: str, keys: ResourceKeys | None) -> ResourceKeys | None:
    if keys is None or (callable(keys) and not inspect.iscoroutinefunction(innermost(keys))):
        return keys
    try:
        if not callable(keys):
            return resource_keys(keys, None)
    except TypeError:
        pass
    raise InputError(
        f'tool "{name}": reads and writes are names of resources, or a plain function of the arguments that answers '
        f"them, got {keys!r}"[:300],
        code="INVALID_TOOL",
    )
