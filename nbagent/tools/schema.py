"""A function's signature as a JSON schema, and arguments validated against it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

from nbagent.errors import InputError, ToolError
from nbagent.tools.docstring import Described, describe
from nbagent.types.frozen import thaw

__all__ = ("Signature",)


class Signature:
    """What a function takes and gives.

    Attributes:
        description: What the docstring says of the function.
        schema: JSON schema of the arguments, an object.

    Args:
        name: The tool's name, for errors.
        function: The function.

    Raises:
        InputError: `INVALID_TOOL`.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        described = describe(function)
        self.description = described.text
        hints = _hints(name, function)
        self._fields = _fields(name, function, hints, described)
        try:
            self._model = create_model(
                "Arguments", __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **self._fields
            )
            self.schema = _tidy(self._model.model_json_schema())
        except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, TypeError, ValueError) as fault:
            first = str(fault).splitlines()[0]
            raise InputError(
                f'tool "{name}": a parameter cannot be described to a model: {first}', code="INVALID_TOOL"
            ) from fault
        self._names = {f"field_{n}": key for n, key in enumerate(self._parameters(function))}
        self._output = _output_adapter(hints.get("return"))

    def validate(self, arguments: Any) -> dict[str, Any]:
        """The model's arguments as keyword arguments of the function.

        Raises:
            ToolError: `INVALID_ARGUMENTS`, a line for each fault.
        """
        if not isinstance(arguments, Mapping):
            shown = repr(arguments) if len(repr(arguments)) <= 200 else repr(arguments)[:200] + "..."
            cut = isinstance(arguments, str) and arguments.lstrip().startswith("{")
            fault = "were cut off before their end or are malformed" if cut else "must be a JSON object"
            raise ToolError(f"the arguments of {self._name} {fault}, got {shown}", code="INVALID_ARGUMENTS")
        try:
            checked = self._model.model_validate(thaw(arguments))
        except ValidationError as faults:
            lines = [_fault_line(dict(fault)) for fault in faults.errors(include_url=False)]
            raise ToolError(
                f"invalid arguments for {self._name}:\n" + "\n".join(lines), code="INVALID_ARGUMENTS"
            ) from None
        return {self._names[field]: getattr(checked, field) for field in checked.model_fields_set}

    def checked(self, value: Any) -> Any:
        """`value`, checked against the return annotation where that is a model or a dataclass.

        Raises:
            ToolError: `INVALID_TOOL_OUTPUT`.
        """
        if self._output is None or value is None:
            return value
        try:
            return self._output.validate_python(value)
        except ValidationError as faults:
            first = _fault_line(dict(faults.errors(include_url=False)[0]))
            raise ToolError(
                f'tool "{self._name}" returned invalid output: {first.strip("- ")}', code="INVALID_TOOL_OUTPUT"
            ) from None

    @staticmethod
    def _parameters(function: Callable[..., Any]) -> list[str]:
        return list(inspect.signature(function).parameters)


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    target = function
    while hasattr(target, "func"):
        target = target.func  # type: ignore[attr-defined]  # a functools.partial
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as fault:
        raise InputError(
            f'tool "{name}": its annotations name something that is not defined: {fault}', code="INVALID_TOOL"
        ) from fault


def _fields(name: str, function: Callable[..., Any], hints: Mapping[str, Any], described: Described) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for number, (key, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            raise InputError(
                f'tool "{name}": parameter "{parameter}" has no name that a model could give; use plain parameters',
                code="INVALID_TOOL",
            )
        if key not in hints:
            raise InputError(
                f'tool "{name}": parameter "{key}" needs a type, for example {key}: str', code="INVALID_TOOL"
            )
        default: Any = ... if parameter.default is parameter.empty else parameter.default
        text = described.parameters.get(key)
        told: dict[str, Any] = {"description": text} if text and not _has_description(hints[key]) else {}
        # Fields have neutral names: a parameter may be called like something that pydantic keeps for itself.
        fields[f"field_{number}"] = (hints[key], Field(default, alias=key, **told))
    return fields


def _has_description(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(getattr(each, "description", None) for each in get_args(hint)[1:])


def _output_adapter(hint: Any) -> TypeAdapter[Any] | None:
    if inspect.isclass(hint) and (issubclass(hint, BaseModel) or hasattr(hint, "__dataclass_fields__")):
        return TypeAdapter(hint)
    return None


def _tidy(schema: Any) -> Any:
    """The schema without the titles that pydantic makes up."""
    if isinstance(schema, dict):
        known = cast("dict[str, Any]", schema)
        tidied: dict[str, Any] = {}
        for key, value in known.items():
            if key == "title" and isinstance(value, str):
                continue
            if key in {"properties", "$defs"}:
                tidied[key] = {name: _tidy(each) for name, each in value.items()}
            else:
                tidied[key] = value if key in {"default", "enum", "const", "examples"} else _tidy(value)
        return tidied
    if isinstance(schema, list):
        return [_tidy(item) for item in cast("list[Any]", schema)]
    return schema


def _fault_line(fault: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in fault["loc"]) or "arguments"
    message = str(fault["msg"])
    given = fault.get("input")
    if fault["type"] in {"missing", "extra_forbidden"}:
        message = "is required" if fault["type"] == "missing" else "is not a parameter"
        return f"- {place}: {message}"
    shown = repr(given)
    return f"- {place}: {message[:1].lower()}{message[1:]}, got {shown[:100]}"
