"""What can be wrong with a call, in words that a model can act on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from nbagent.errors import ToolError

__all__ = ("ToolArgumentsError", "ToolNotFoundError", "ToolOutputError", "fault_lines")

_SHOWN = 100
"""Characters of a wrong value that are quoted back."""


class ToolNotFoundError(ToolError):
    """A call of a tool that the agent does not have."""

    default_code = "UNKNOWN_TOOL"


class ToolArgumentsError(ToolError):
    """Arguments that do not fit the tool's parameters; the message has a line for each fault."""

    default_code = "INVALID_ARGUMENTS"


class ToolOutputError(ToolError):
    """A body returned something else than its annotation says."""

    default_code = "INVALID_TOOL_OUTPUT"


def fault_lines(faults: Sequence[Mapping[str, Any]], given: Any, known: Sequence[str] = ()) -> list[str]:
    """One line for each wrong place, `place: what is wrong, got ...`.

    Args:
        faults: What pydantic's `ValidationError.errors()` answers.
        given: The value that was validated.
        known: Names that may be given, told when another one was.
    """
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for fault in faults:
        grouped.setdefault(_place(fault, given), []).append(fault)
    return [_line(place, members, known) for place, members in grouped.items()]


def _place(fault: Mapping[str, Any], given: Any) -> str:
    # A location also names the branches of unions; only what leads through the value is a place.
    place = ""
    value = given
    parts: Sequence[Any] = fault["loc"]
    for part in parts:
        if isinstance(value, dict) and part in value:
            place = f"{place}.{part}" if place else str(part)
            value = cast("dict[Any, Any]", value)[part]
        elif isinstance(value, list) and type(part) is int and part < len(cast("list[Any]", value)):
            place = f"{place}[{part}]"
            value = cast("list[Any]", value)[part]
    if fault["type"] == "missing":
        place = f"{place}.{parts[-1]}" if place else str(parts[-1])
    return place


def _line(place: str, faults: Sequence[Mapping[str, Any]], known: Sequence[str]) -> str:
    kinds = {fault["type"] for fault in faults}
    subject = f"{place}: " if place else ""
    if kinds == {"missing"}:
        return f"{subject}is required"
    if kinds <= {"extra_forbidden", "unexpected_keyword_argument"}:
        if "." in place:
            return f"{subject}is not a field"
        return f"{subject}is not a parameter; there are: {', '.join(known) or 'none'}"
    expected: list[str] = []
    other: list[str] = []
    for fault in faults:
        message = " ".join(str(fault["msg"]).split()).removeprefix("Value error, ")
        if message.startswith("Input should be "):
            expected.append(message.removeprefix("Input should be ").split(", unable to parse")[0])
        else:
            other.append(f"{message[:1].lower()}{message[1:]}")
    if expected:
        other.insert(0, f"should be {' or '.join(dict.fromkeys(expected))}")
    return f"{subject}{'; '.join(dict.fromkeys(other))}, got {_quoted(faults[0].get('input'))}"


def _quoted(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
