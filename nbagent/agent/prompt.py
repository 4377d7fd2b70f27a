"""The system prompt: sections, variables, tools and runtime context, gathered once a step and rendered.

A registry is a layer; an agent's sections and variables shadow the runtime's of the same name.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nbagent.agent.tool_order import checked_order, ordered_tools
from nbagent.cancellation import CancelSignal
from nbagent.errors import InputError, LifecycleError, NbagentError
from nbagent.types.config import ToolDeclaration

if TYPE_CHECKING:
    from nbagent.agent.agent import Agent

__all__ = ("Assembly", "PromptAssembly", "PromptRegistry", "Section", "assemble", "render_prompt")

Provider = str | Callable[..., Any]
_VARIABLE = re.compile(r"[a-z][a-z0-9_]*")
_REFERENCE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the prompt or of the runtime context, as assembled.

    Attributes:
        name: Its name, unique in its layer.
        text: Before interpolation.
        order: Sections are sorted by it, equal ones by registration.
        complete: Whether it replaces the whole prompt.
    """

    name: str
    text: str
    order: float = 0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Assembly:
    """What one step's prompt is made of."""

    sections: Sequence[Section] = ()
    tools: Sequence[ToolDeclaration] = ()
    variables: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    context: Sequence[Section] = ()
    live_context: bool = False
    """Whether `context` is what the registries say, to be read again when the request is admitted."""


@dataclass(frozen=True, slots=True)
class PromptAssembly:
    """`system-prompt/assemble`: the prompt of a step is being gathered; answer a changed assembly."""

    agent: Agent
    signal: CancelSignal


@dataclass(slots=True)
class _Entry:
    provider: Provider
    order: float = 0
    complete: bool = False


class PromptRegistry:
    """One layer of prompt sections, variables and context sections."""

    def __init__(self, parent: PromptRegistry | None = None) -> None:
        self._parent = parent
        self._sections: dict[str, _Entry] = {}
        self._variables: dict[str, _Entry] = {}
        self._context: dict[str, _Entry] = {}
        self._tool_order: tuple[str, ...] | None = None
        self._closed = False

    def section(self, name: str, text: Provider, order: float = 0, *, complete: bool = False) -> Callable[[], None]:
        """Add a section; `text` is a string or a function called once an assembly. Answers a remover."""
        return self._add(self._sections, name, _Entry(text, order, complete))

    def variable(self, name: str, provider: Provider) -> Callable[[], None]:
        """Add a variable that sections use as `{{name}}`. Answers a remover.

        Raises:
            InputError: `INVALID_NAME`.
        """
        if not _VARIABLE.fullmatch(name):
            raise InputError(f'prompt variable "{name}" must match [a-z][a-z0-9_]*', code="INVALID_NAME")
        return self._add(self._variables, name, _Entry(provider))

    def context(self, name: str, text: Provider, order: float = 0) -> Callable[[], None]:
        """Add a section of the runtime context, read at every step. Answers a remover."""
        return self._add(self._context, name, _Entry(text, order))

    def tool_order(self, names: Iterable[str]) -> Callable[[], None]:
        """Tell the model of its tools in this order instead of by name; a nearer layer's order wins.

        Args:
            names: Tool names, and one `<unlisted-tools>` where all the others go, by name.

        Returns:
            A remover.

        Raises:
            InputError: `TOOL_ORDER`, a name twice or not exactly one `<unlisted-tools>`; `DUPLICATE_NAME`, this layer
                has an order already.
            LifecycleError: `SCOPE_DISPOSED`.
        """
        self._check_open()
        if self._tool_order is not None:
            raise InputError("this layer has an order of tools already", code="DUPLICATE_NAME")
        order = self._tool_order = checked_order(names)

        def remove() -> None:
            if self._tool_order is order:
                self._tool_order = None

        return remove

    @property
    def present_tool_order(self) -> tuple[str, ...] | None:
        """The order of tools that applies to an agent of this layer, or none."""
        orders = [layer._tool_order for layer in self._layers() if layer._tool_order is not None]
        return orders[-1] if orders else None

    def close(self) -> None:
        """Forget everything in this layer and refuse more."""
        self._closed = True
        self._tool_order = None
        for entries in (self._sections, self._variables, self._context):
            entries.clear()

    async def sections(self) -> list[Section]:
        """The prompt sections of this layer and the farther ones, in prompt order."""
        return await _read_sections(self._merged("_sections"))

    async def context_sections(self) -> list[Section]:
        """The runtime context sections, in order."""
        return await _read_sections(self._merged("_context"))

    async def variables(self) -> dict[str, str | None]:
        """The variables and their present values."""
        return {name: await _text(entry.provider) for name, entry in self._merged("_variables").items()}

    def _add(self, entries: dict[str, _Entry], name: str, entry: _Entry) -> Callable[[], None]:
        self._check_open()
        if name in entries:
            raise InputError(f'"{name}" is already registered in this layer', code="DUPLICATE_NAME")
        entries[name] = entry

        def remove() -> None:
            if entries.get(name) is entry:
                del entries[name]

        return remove

    def _check_open(self) -> None:
        if self._closed:
            raise LifecycleError("this layer is disposed and takes no more sections", code="SCOPE_DISPOSED")

    def _merged(self, attribute: str) -> dict[str, _Entry]:
        merged: dict[str, _Entry] = {}
        for layer in self._layers():
            merged.update(getattr(layer, attribute))
        return merged

    def _layers(self) -> Iterator[PromptRegistry]:
        if self._parent is not None:
            yield from self._parent._layers()
        yield self


async def assemble(agent: Agent, variables: Mapping[str, str | None], signal: CancelSignal) -> Assembly:
    """Gather the prompt of a step and let `system-prompt/assemble` listeners change it.

    Args:
        agent: Whose step.
        variables: The prompt variables that the loop supplies; registered ones of the same name win.
        signal: Aborts the turn.

    Raises:
        NbagentError: `TOOL_ORDER`, the configured order does not fit the tools; `PROMPT_COMPLETE`, two sections claim to
            be the whole prompt.
        InputError: `INVALID_DECISION`, a listener answered no assembly.
    """
    prompt = agent.prompt
    context: list[Section] = []

    async def default() -> Assembly:
        context.extend(await prompt.context_sections())
        return Assembly(
            sections=await prompt.sections(),
            tools=ordered_tools(agent.tools.declarations(), prompt.present_tool_order, agent.tools.names()),
            variables={**variables, **await prompt.variables()},
            context=context,
        )

    answer = await agent.hooks.waterfall("system-prompt/assemble", PromptAssembly(agent, signal), default, _accept)
    return replace(answer, sections=_effective(answer.sections), live_context=answer.context is context)


def render_prompt(assembly: Assembly) -> str:
    """The system prompt of an assembly; empty when it has no text.

    Raises:
        NbagentError: `PROMPT_VARIABLE`, a reference is malformed, unknown or has no value.
    """
    ordered = sorted(assembly.sections, key=lambda section: section.order)
    texts = [_interpolate(section, assembly.variables) for section in ordered]
    return "\n\n".join(text for text in texts if text)


def _effective(sections: Sequence[Section]) -> Sequence[Section]:
    complete = [section for section in sections if section.complete and section.text]
    if len(complete) > 1:
        names = ", ".join(section.name for section in complete)
        raise NbagentError(f"more than one complete prompt section: {names}", code="PROMPT_COMPLETE")
    return complete or sections


def _interpolate(section: Section, variables: Mapping[str, str | None]) -> str:
    def value_of(match: re.Match[str]) -> str:
        name = match.group(1)
        where = f'(section "{section.name}")'
        if not _VARIABLE.fullmatch(name):
            raise NbagentError(
                f'malformed prompt variable reference "{match.group(0)}" {where}', code="PROMPT_VARIABLE"
            )
        if name not in variables:
            known = ", ".join(sorted(variables)) or "(none)"
            raise NbagentError(
                f'unknown prompt variable "{{{{{name}}}}}" in section "{section.name}"; registered variables: {known}',
                code="PROMPT_VARIABLE",
            )
        value = variables[name]
        if value is None:
            raise NbagentError(
                f'prompt variable "{{{{{name}}}}}" has no value for this assembly {where}', code="PROMPT_VARIABLE"
            )
        return value

    return _REFERENCE.sub(value_of, section.text)


async def _read_sections(entries: Mapping[str, _Entry]) -> list[Section]:
    sections = [
        Section(name, await _text(entry.provider) or "", entry.order, entry.complete) for name, entry in entries.items()
    ]
    return sorted(sections, key=lambda section: section.order)


async def _text(provider: Provider) -> str | None:
    if isinstance(provider, str):
        return provider
    text = provider()
    if inspect.isawaitable(text):
        text = await text
    return None if text is None else str(text)


def _accept(answer: Any) -> Assembly:
    if isinstance(answer, Assembly):
        return replace(answer, tools=[ToolDeclaration.of(tool) for tool in answer.tools])
    raise InputError(
        f'a "system-prompt/assemble" listener must answer an assembly, got {answer!r}', code="INVALID_DECISION"
    )
