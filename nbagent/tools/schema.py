"""A function's signature as a JSON schema; arguments and results validated against it."""

from __future__ import annotations

import collections.abc
import inspect
import types
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, cast, get_args, get_origin

import orjson
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import PydanticJsonSchemaWarning

from nbagent.errors import InputError
from nbagent.tools.docstring import Described, describe
from nbagent.tools.faults import ToolArgumentsError, ToolOutputError, fault_lines
from nbagent.tools.results import without_scalar_box
from nbagent.tools.signature import Parameter, innermost, parameters_of, resolved_hints
from nbagent.types.frozen import NotJsonError, freeze, thaw

__all__ = ("Signature",)

# Nothing is declared, or what would be checked only while it is read.
_UNCHECKED = frozenset(
    {
        None,
        types.NoneType,
        Any,
        object,
        collections.abc.Iterator,
        collections.abc.Iterable,
        collections.abc.AsyncIterable,
    }
)


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
        described = describe(innermost(function))
        self.description = described.text
        hints = resolved_hints(name, function)
        self._returns = hints.get("return")
        self._parameters = parameters_of(name, function, hints)
        # Fields have neutral names: a parameter may be called like something that pydantic keeps for itself.
        self._fields = {f"field_{number}": each for number, each in enumerate(self._parameters)}
        fields: dict[str, Any] = {field: _field(each, described) for field, each in self._fields.items()}
        try:
            self._model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
            self.schema = _tidy(_schema_of(self._model))
        except (PydanticUserError, TypeError, ValueError) as fault:
            raise self._refusal(fields, fault) from fault

    def validate(self, arguments: Any) -> dict[str, Any]:
        """The model's arguments as keyword arguments of the function, each of its declared type.

        Raises:
            ToolArgumentsError: `INVALID_ARGUMENTS`, a line for each fault.
        """
        if not isinstance(arguments, dict):
            raise ToolArgumentsError(f"the arguments of {self._name} {_no_object(arguments)}")
        given = cast("dict[str, Any]", thaw(arguments))
        try:
            checked = self._model.model_validate_json(orjson.dumps(given))
        except ValidationError as faults:
            known = [each.name for each in self._parameters]
            lines = fault_lines([dict(fault) for fault in faults.errors(include_url=False)], given, known)
            listed = "\n".join(f"- {line}" for line in lines)
            raise ToolArgumentsError(f"invalid arguments for {self._name}:\n{listed}") from None
        # A parameter that was left out keeps the function's own default, unless only the schema has one.
        return {
            each.name: getattr(checked, field)
            for field, each in self._fields.items()
            if field in checked.model_fields_set or each.default is Parameter.empty or _is_field(each.default)
        }

    def checked(self, value: Any) -> Any:
        """`value`, checked against the return annotation where pydantic understands that.

        Raises:
            ToolOutputError: `INVALID_TOOL_OUTPUT`.
        """
        adapter = self._output
        value = without_scalar_box(value)
        if adapter is None or isinstance(value, collections.abc.Iterator):
            return cast("Any", value)
        try:
            validated = adapter.validate_python(value)
        except ValidationError as faults:
            lines = fault_lines([dict(fault) for fault in faults.errors(include_url=False)], value)
            raise ToolOutputError(f'tool "{self._name}" returned invalid output: {"; ".join(lines)}') from None
        # A mapping becomes the model it was declared to be; plain values stay what the body made of them.
        return validated if inspect.isclass(self._returns) and not isinstance(value, self._returns) else value

    @cached_property
    def _output(self) -> TypeAdapter[Any] | None:
        hint = self._returns
        try:
            unchecked = (get_origin(hint) or hint) in _UNCHECKED
            return None if unchecked else TypeAdapter(cast("Any", hint))
        except Exception:  # a data frame, a figure: nothing that pydantic could check
            return None

    def _refusal(self, fields: Mapping[str, Any], fault: Exception) -> InputError:
        for field, each in self._fields.items():
            try:
                _schema_of(create_model("Argument", **{field: fields[field]}))
            except (PydanticUserError, TypeError, ValueError) as cause:
                kind = each.hint.__name__ if inspect.isclass(each.hint) else str(each.hint)
                why = str(cause).splitlines()[0].split(". ")[0]
                return InputError(
                    f'tool "{self._name}": parameter "{each.name}" of type {kind} cannot be given by a model ({why}); '
                    "take text, numbers, lists or pydantic models",
                    code="INVALID_TOOL",
                )
        return InputError(f'tool "{self._name}" has no usable signature: {fault}', code="INVALID_TOOL")


def _field(parameter: Parameter, described: Described) -> tuple[Any, Any]:
    hint = parameter.hint
    told: dict[str, Any] = {}
    text = described.parameters.get(parameter.name) or _plain_note(hint)
    if text and not _has_description(hint) and not getattr(parameter.default, "description", None):
        told["description"] = text
    if _is_field(parameter.default):  # x: int = Field(3, ge=1)
        return Annotated[hint, parameter.default], Field(alias=parameter.name, **told)
    if parameter.default is Parameter.empty:
        return hint, Field(alias=parameter.name, **told)
    return hint, Field(parameter.default, alias=parameter.name, **told)


def _is_field(default: Any) -> bool:
    return isinstance(default, FieldInfo)


def _has_description(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(getattr(each, "description", None) for each in get_args(hint)[1:])


def _plain_note(hint: Any) -> str | None:
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((note for note in notes if isinstance(note, str)), None)


def _schema_of(model: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        # A default that has no JSON form is the function's own business; the model is told that it may leave it out.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        return model.model_json_schema()


def _tidy(schema: Any) -> Any:
    """The schema without the titles that pydantic makes up and without defaults that are no JSON."""
    if isinstance(schema, list):
        return [_tidy(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    tidied: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key in {"properties", "$defs", "patternProperties"}:
            tidied[key] = {name: _tidy(each) for name, each in value.items()}
        elif key in {"default", "enum", "const", "examples"}:
            if _is_json(value):
                tidied[key] = value
        elif key != "title":
            tidied[key] = _tidy(value)
    return tidied


def _is_json(value: Any) -> bool:
    try:
        freeze(value)
    except NotJsonError:
        return False
    return True


def _no_object(arguments: Any) -> str:
    shown = repr(arguments)
    shown = shown if len(shown) <= 200 else f"{shown[:200]}..."
    if isinstance(arguments, str) and arguments.lstrip().startswith("{"):
        return f"were cut off before their end or are malformed, got {shown}"
    return f"must be a JSON object, got {shown}"
