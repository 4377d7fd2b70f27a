"""Which tools a prompt names, and with which arguments: plain text rules, no language model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import orjson

from nbagent.types.config import ToolDeclaration

__all__ = ("calls_in",)

_PAIR = re.compile(r"(\w+)\s*[=:]\s*(\"[^\"]*\"|'[^']*'|[^\s,)]+)")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
_QUOTED = re.compile(r"\"([^\"]+)\"|'([^'\n]+)'")
_PROPER = re.compile(r"\b[A-Z][\w-]+(?: [A-Z][\w-]+)*")
_SENTENCE_START = re.compile(r"(?:^|[.!?]\s+|\n\s*)(?=[A-Z])")
_MOST_CALLS = 8


def calls_in(prompt: str, tools: Iterable[ToolDeclaration]) -> list[tuple[str, dict[str, Any]]]:
    """`(tool name, arguments)` for each call that the prompt asks for, in the order of the names.

    `name(key=value)` and `name({...})` give the arguments; otherwise they are taken from the quoted texts, proper names
    and numbers of the prompt, one call for each value when a tool takes a single text.
    """
    found: list[tuple[int, ToolDeclaration]] = []
    for tool in tools:
        at = re.search(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])", prompt)
        if at is not None:
            found.append((at.start(), tool))
    calls: list[tuple[str, dict[str, Any]]] = []
    for _, tool in sorted(found, key=lambda each: each[0]):
        written = _written_calls(prompt, tool)
        calls += [(tool.name, arguments) for arguments in written or _gathered(prompt, tool)]
    return calls[:_MOST_CALLS]


def _written_calls(prompt: str, tool: ToolDeclaration) -> list[dict[str, Any]]:
    """Arguments that are written out as a call."""
    written: list[dict[str, Any]] = []
    properties = _properties(tool)
    for match in re.finditer(rf"(?<![\w-]){re.escape(tool.name)}\s*\(([^()]*)\)", prompt):
        inside = match.group(1).strip()
        pairs = _as_object(inside)
        if pairs is None:
            pairs = {key: value for key, value in _PAIR.findall(inside) if key in properties}
        if not pairs and inside:
            pairs = dict(zip(properties, (part.strip() for part in inside.split(",")), strict=False))
        written.append(_complete(pairs, tool))
    return written


def _gathered(prompt: str, tool: ToolDeclaration) -> list[dict[str, Any]]:
    """Arguments that have to be found in the words of the prompt."""
    rest = re.sub(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])", " ", prompt)
    properties = _properties(tool)
    required = [key for key in properties if key in tool.parameters.get("required", ())]
    pairs: dict[str, Any] = {key: value for key, value in _PAIR.findall(rest) if key in properties}
    open_keys = [key for key in required if key not in pairs]
    texts = [key for key in open_keys if _type(properties[key]) == "string" and "enum" not in properties[key]]
    numbers = iter(_NUMBER.findall(rest))
    for key in open_keys:
        if _type(properties[key]) in {"integer", "number"}:
            value = next(numbers, None)
            if value is not None:
                pairs[key] = value
    values = _values(rest)
    if len(texts) == 1 and values:
        return [_complete({**pairs, texts[0]: value}, tool) for value in values]
    pairs.update(zip(texts, values, strict=False))
    return [_complete(pairs, tool)]


def _values(text: str) -> list[str]:
    """The texts that a prompt talks about: what is quoted, else its proper names."""
    quoted = [first or second for first, second in _QUOTED.findall(text)]
    if quoted:
        return list(dict.fromkeys(quoted))
    starts = {match.end() for match in _SENTENCE_START.finditer(text)}
    names = [match.group() for match in _PROPER.finditer(text) if match.start() not in starts]
    return list(dict.fromkeys(names))


def _complete(pairs: Mapping[str, Any], tool: ToolDeclaration) -> dict[str, Any]:
    """The arguments with their types, and something for each required one that was not found."""
    properties = _properties(tool)
    arguments = {key: _typed(value, properties[key]) for key, value in pairs.items() if key in properties}
    for key in tool.parameters.get("required", ()):
        if key not in arguments:
            arguments[key] = _stand_in(properties.get(key, {}))
    return {key: arguments[key] for key in properties if key in arguments}


def _typed(value: Any, schema: Mapping[str, Any]) -> Any:
    if not isinstance(value, str):
        return value
    kind = _type(schema)
    bare = value[1:-1] if len(value) >= 2 and value[0] in "\"'" and value[-1] == value[0] else value
    if kind == "string":
        return bare
    if kind == "integer" and re.fullmatch(r"-?\d{1,18}", bare):
        return int(bare)
    if kind in {"integer", "number"} and _NUMBER.fullmatch(bare):
        return float(bare) if "." in bare else int(bare)
    if kind == "boolean":
        return bare.lower() in {"true", "yes", "1", "on"}
    parsed = _as_json(value)
    return bare if parsed is None else parsed


def _stand_in(schema: Mapping[str, Any]) -> Any:
    for given in (schema.get("examples"), schema.get("enum")):
        if given:
            return given[0]
    stand_ins: dict[str, Any] = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    return stand_ins.get(_type(schema), "demo")


def _properties(tool: ToolDeclaration) -> dict[str, Any]:
    return tool.parameters.get("properties", {})


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, str):
        return kind
    options: Sequence[Mapping[str, Any]] = schema.get("anyOf", ())
    return next((str(each["type"]) for each in options if each.get("type") not in {None, "null"}), "")


def _as_object(text: str) -> dict[str, Any] | None:
    parsed = _as_json(text)
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else None


def _as_json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
