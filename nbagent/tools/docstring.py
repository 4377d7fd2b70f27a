"""What a docstring says of a function and its parameters, in any of the usual styles."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ("Described", "describe")


@dataclass(frozen=True, slots=True)
class Described:
    """A docstring taken apart.

    Attributes:
        text: The description, without the sections.
        parameters: Descriptions by parameter name.
    """

    text: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def describe(function: Callable[..., object]) -> Described:
    """Read the docstring of a function in Google, NumPy or Sphinx style."""
    text = inspect.getdoc(function)
    if not text:
        return Described()
    from griffe import Docstring, DocstringSectionKind, Parser

    # The parser warns about everything a docstring could say better; that is not for a notebook's output.
    logging.getLogger("griffe").setLevel(logging.CRITICAL)
    best = Described(text)
    for style in (Parser.google, Parser.numpy, Parser.sphinx):
        parameters: dict[str, str] = {}
        prose: list[str] = []
        for section in Docstring(text).parse(style):
            if section.kind is DocstringSectionKind.text:
                prose.append(section.value.strip())
            elif section.kind is DocstringSectionKind.parameters:
                parameters.update({each.name: " ".join(each.description.split()) for each in section.value})
        if len(parameters) > len(best.parameters) or (not best.parameters and style is Parser.google):
            best = Described("\n\n".join(part for part in prose if part), parameters)
    return best
