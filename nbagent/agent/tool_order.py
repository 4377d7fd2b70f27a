"""The order in which a model is told of its tools: by name, or as configured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nbagent.errors import InputError, NbagentError
from nbagent.types.config import ToolDeclaration

__all__ = ("UNLISTED_TOOLS", "checked_order", "ordered_tools")

UNLISTED_TOOLS = "<unlisted-tools>"
"""The entry of an order that stands for every tool that it does not name."""


def checked_order(names: Iterable[str]) -> tuple[str, ...]:
    """A configured order, checked.

    Raises:
        InputError: `TOOL_ORDER`, it names something twice, or has not exactly one `<unlisted-tools>` entry.
    """
    order = tuple(names)
    twice = [name for position, name in enumerate(order) if name in order[:position]]
    if twice:
        raise InputError(f'the order of tools names "{twice[0]}" twice', code="TOOL_ORDER")
    if UNLISTED_TOOLS not in order:
        raise InputError(
            f'the order of tools needs one "{UNLISTED_TOOLS}" entry, which says where the other tools go',
            code="TOOL_ORDER",
        )
    return order


def ordered_tools(
    tools: Sequence[ToolDeclaration], order: Sequence[str] | None, known: Sequence[str]
) -> list[ToolDeclaration]:
    """The tools in the configured order, else by name.

    Args:
        tools: The visible tools.
        order: A checked order, or none.
        known: Names of all tools, hidden ones included: an order may name a tool that this agent does not see.

    Raises:
        NbagentError: `TOOL_ORDER`, the order names a tool that is not there.
    """
    by_name = sorted(tools, key=lambda tool: tool.name)
    if order is None:
        return by_name
    missing = [name for name in order if name != UNLISTED_TOOLS and name not in known]
    if missing:
        there = ", ".join(sorted(known)) or "(none)"
        raise NbagentError(f'the order of tools names unknown tool "{missing[0]}"; tools: {there}', code="TOOL_ORDER")
    rest = order.index(UNLISTED_TOOLS)
    place = {name: position for position, name in enumerate(order)}
    return sorted(by_name, key=lambda tool: place.get(tool.name, rest))
