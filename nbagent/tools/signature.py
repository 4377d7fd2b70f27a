"""The parameters of a function: which there are, and what their annotations mean."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nbagent.errors import InputError

__all__ = ("Parameter", "innermost", "parameters_of", "resolved_hints")


_MAKERS = ("nbagent.tools", "functools")
"""Modules whose frames stand between the code that makes a tool and the look at its annotations."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that a model gives.

    Attributes:
        name: As in the signature.
        hint: Its resolved annotation.
        default: Its default, or `Parameter.empty`.
    """

    name: str
    hint: Any
    default: Any

    empty: typing.ClassVar[Any] = inspect.Parameter.empty


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under partial applications, or the `__call__` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def parameters_of(tool: str, function: Callable[..., Any], hints: dict[str, Any]) -> list[Parameter]:
    """The parameters of a tool's function; what a partial application has bound by name is not among them.

    Raises:
        InputError: `INVALID_TOOL`, a parameter has no annotation or cannot be given by name.
    """
    bound: set[str] = set()
    layer = function
    while isinstance(layer, functools.partial):
        bound.update(layer.keywords)
        layer = layer.func
    found: list[Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in bound:
            continue
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            written = str(parameter).split(":")[0].split("=")[0]
            raise InputError(
                f'tool "{tool}": parameter "{written}" has no name that a model could give; use plain parameters',
                code="INVALID_TOOL",
            )
        if name not in hints:
            if name in {"self", "cls"} and not found:
                raise InputError(
                    f'tool "{tool}" is a method without its object: make the tool of the bound method, tool(thing.{tool})',
                    code="INVALID_TOOL",
                )
            raise InputError(
                f'tool "{tool}": parameter "{name}" needs a type, for example {name}: str', code="INVALID_TOOL"
            )
        found.append(Parameter(name, hints[name], parameter.default))
    return found


def resolved_hints(tool: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function with names looked up, also those that are local to where the tool is made.

    Raises:
        InputError: `INVALID_TOOL`, a name is not defined.
    """
    target = innermost(function)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError:
        pass
    try:
        return typing.get_type_hints(target, localns=_names_around(), include_extras=True)
    except NameError as fault:
        raise InputError(
            f'tool "{tool}": its annotations name something that is not defined: {fault}', code="INVALID_TOOL"
        ) from fault


def _names_around() -> dict[str, Any]:
    """The local names of the code that is making a tool."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_MAKERS):
        frame = frame.f_back
    return dict(frame.f_locals)
