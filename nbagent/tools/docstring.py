"""What a docstring says of a function and its parameters, in any of the usual styles."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ("Described", "describe")

_SECTION = re.compile(r"^[ \t]*(?:[A-Za-z][A-Za-z ]*:[ \t]*$|-{3,}[ \t]*$|:[a-z]+\b[^:\n]*:)", re.MULTILINE)
"""Something that only a docstring with sections has: a heading, an underline or a field."""


@dataclass(frozen=True, slots=True)
class Described:
    """A docstring taken apart.

    Attributes:
        text: The description with its notes and warnings, without the other sections.
        parameters: Descriptions by parameter name.
    """

    text: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def describe(function: Callable[..., object]) -> Described:
    """Read the docstring of a function in Google, NumPy or Sphinx style."""
    text = inspect.getdoc(function) or ""
    # Importing the parser takes longer than everything else that makes a tool; most docstrings are prose.
    if not _SECTION.search(text):
        return Described(text)
    return _parsed(text)


def _parsed(text: str) -> Described:
    from griffe import Docstring, DocstringSectionKind, Parser

    best, most = Described(text), -1
    for style in (Parser.google, Parser.numpy, Parser.sphinx):
        parameters: dict[str, str] = {}
        prose: list[str] = []
        sections = Docstring(text).parse(style, warnings=False)
        for section in sections:
            if section.kind is DocstringSectionKind.parameters:
                parameters.update({each.name: " ".join(each.description.split()) for each in section.value})
            elif section.kind is DocstringSectionKind.text:
                prose.append(section.value.strip())
            elif section.kind is DocstringSectionKind.admonition:
                prose.append(f"{section.title or section.value.kind}: {section.value.contents.strip()}")
        # The style that finds the most structure is the one it was written in.
        found = len(parameters) * 100 + sum(section.kind is not DocstringSectionKind.text for section in sections)
        if found > most:
            best, most = Described("\n\n".join(part for part in prose if part), parameters), found
    return best
