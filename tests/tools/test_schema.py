"""What a model is told of a function: schema and descriptions from signature and docstring."""

from __future__ import annotations

import datetime as dt
import enum
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from nbagent import tool
from nbagent.errors import InputError
from nbagent.testing import as_json
from nbagent.tools import Tool, as_tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """Where it is."""

    city: str
    title: str = "none"
    inside: Place | None = None


@dataclass
class Point:
    x: int
    y: int = 0


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    return as_json(as_tool(function).declaration)["parameters"]


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    return parameters(function)["properties"]


def test_a_tool_declares_name_description_and_parameters_and_nothing_else():
    @tool(parallel=True, thread="main", final_content=lambda outcome: None)
    def lookup(city: str, units: Literal["C", "F"] = "C") -> str:
        """Look the weather up."""
        return city

    assert as_json(lookup.declaration) == {
        "name": "lookup",
        "description": "Look the weather up.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "units": {"type": "string", "enum": ["C", "F"], "default": "C"},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    }


def test_a_function_without_parameters():
    def now() -> str:
        return ""

    assert as_json(as_tool(now).declaration) == {
        "name": "now",
        "description": "",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    }


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (tuple[int, int], {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [{"type": "integer"}] * 2}),
        (set[int], {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - people write it
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (dt.date, {"type": "string", "format": "date"}),
        (Path, {"type": "string", "format": "path"}),
        (Any, {}),
        (
            Annotated[int, Field(ge=1, description="How many")],
            {"type": "integer", "minimum": 1, "description": "How many"},
        ),
        (Annotated[int, "How many"], {"type": "integer", "description": "How many"}),
    ],
)
def test_types(hint, schema):
    def body(value):
        return value

    body.__annotations__["value"] = hint
    assert properties(body) == {"value": schema}


def test_models_dataclasses_and_enums_are_described_without_made_up_titles():
    def body(place: Place, point: Point, colour: Colour = Colour.RED) -> str:
        return ""

    assert parameters(body) == {
        "$defs": {
            "Colour": {"enum": ["red", "blue"], "type": "string"},
            "Place": {
                "description": "Where it is.",
                "properties": {
                    "city": {"type": "string"},
                    "title": {"default": "none", "type": "string"},
                    "inside": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None},
                },
                "required": ["city"],
                "type": "object",
            },
            "Point": {
                "additionalProperties": False,
                "properties": {"x": {"type": "integer"}, "y": {"default": 0, "type": "integer"}},
                "required": ["x"],
                "type": "object",
            },
        },
        "additionalProperties": False,
        "properties": {
            "place": {"$ref": "#/$defs/Place"},
            "point": {"$ref": "#/$defs/Point"},
            "colour": {"$ref": "#/$defs/Colour", "default": "red"},
        },
        "required": ["place", "point"],
        "type": "object",
    }


def test_parameters_may_be_called_anything():
    def body(title: str, schema: str, copy: str, model_config: str, json: str, field_0: str, _x: str = "") -> str:
        return title + schema + copy + model_config + json + field_0 + _x

    assert list(properties(body)) == ["title", "schema", "copy", "model_config", "json", "field_0", "_x"]
    given = {name: name for name in properties(body)}
    assert as_tool(body).validate(given) == given


def test_a_field_as_default_gives_constraints_description_and_default():
    def body(count: int = Field(3, ge=1, description="How many"), name: str = Field(description="Whose")) -> str:
        return f"{count} {name}"

    assert parameters(body)["required"] == ["name"]
    assert properties(body)["count"] == {"type": "integer", "default": 3, "minimum": 1, "description": "How many"}
    assert body(**as_tool(body).validate({"name": "a"})) == "3 a"


@pytest.mark.parametrize("default", [object(), float("nan"), dt.timedelta.max, {1, 2}, float("inf")])
def test_a_default_that_is_no_json_stays_the_functions_own(default):
    def body(value: Any = default) -> Any:
        return value

    assert "required" not in parameters(body)
    json.dumps(properties(body), allow_nan=False)
    assert as_tool(body).validate({}) == {}


GOOGLE = """Find a place.

    Looks in the index first.

    Args:
        city: The city, as people
            there call it.
        units (str): Celsius or Fahrenheit.

    Returns:
        What was found.

    Warning:
        Counts against the quota.
    """
NUMPY = """Find a place.

    Looks in the index first.

    Parameters
    ----------
    city : str
        The city, as people
        there call it.
    units : {"C", "F"}, optional
        Celsius or Fahrenheit.

    Returns
    -------
    str
        What was found.

    Warnings
    --------
    Counts against the quota.
    """
SPHINX = """Find a place.

    Looks in the index first.

    :param city: The city, as people
        there call it.
    :param str units: Celsius or Fahrenheit.
    :returns: What was found.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_docstrings_in_every_style_describe_the_parameters(docstring):
    def find(city: str, units: str = "C") -> str:
        return city + units

    find.__doc__ = docstring
    assert properties(find)["city"]["description"] == "The city, as people there call it."
    assert properties(find)["units"]["description"] == "Celsius or Fahrenheit."
    description = as_tool(find).declaration.description
    assert description.startswith("Find a place.\n\nLooks in the index first.")
    assert "What was found" not in description
    assert ("quota" in description) is (docstring is not SPHINX)


def test_a_field_description_wins_over_the_docstring():
    def find(city: Annotated[str, Field(description="Of the field")]) -> str:
        """Find.

        Args:
            city: Of the docstring.
        """
        return city

    assert properties(find)["city"]["description"] == "Of the field"


def test_prose_that_looks_a_little_like_sections_is_kept():
    def find() -> str:
        """Find it: quickly.

        Example: find()
        Two things matter:
        - order
        - a table
        """
        return ""

    description = as_tool(find).declaration.description
    assert description.startswith("Find it: quickly.\n\nExample: find()\nTwo things matter:")
    assert description.endswith("- a table")


def test_a_given_description_and_name_win():
    @tool(name="other-name", description="Said here.")
    def find() -> str:
        """Find."""
        return ""

    assert (find.name, find.declaration.description) == ("other-name", "Said here.")


def test_a_tool_is_still_the_function():
    @tool
    def double(x: int) -> int:
        """Double it."""
        return 2 * x

    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Double it.")
    assert repr(double) == "<tool double>"
    assert tool(double).function is double.function
    assert as_tool(double) is double


def test_a_function_of_a_notebook_cell_is_a_tool():
    cell = """
from __future__ import annotations
from pydantic import BaseModel
from nbagent import tool

class Row(BaseModel):
    price: float

@tool
def total(rows: list[Row]) -> float:
    "Add up."
    return sum(row.price for row in rows)
"""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(cell, names)
    total = names["total"]
    assert total.declaration.parameters["$defs"]["Row"]["properties"] == {"price": {"type": "number"}}
    assert total(**total.validate({"rows": [{"price": "1.5"}, {"price": 2}]})) == 3.5


def test_names_that_are_local_to_where_the_tool_is_made_are_found():
    class Local(BaseModel):
        x: int

    @tool
    def body(value: Local) -> str:
        return str(value.x)

    assert body(**body.validate({"value": {"x": 1}})) == "1"


def test_what_a_partial_has_bound_is_not_the_models_to_give():
    def query(connection: object, text: str, limit: int = 10) -> str:
        """Ask the database."""
        return f"{connection} {text} {limit}"

    asking = as_tool(functools.partial(query, connection="db", limit=3))
    assert asking.name == "query"
    assert list(asking.declaration.parameters["properties"]) == ["text"]
    assert asking(**asking.validate({"text": "x"})) == "db x 3"


def _generator() -> Any:
    yield 1


async def _async_generator() -> Any:
    yield 1


def _positional(x: int, /) -> int:
    return x


def _variadic(*values: int) -> int:
    return len(values)


def _keywords(**values: int) -> int:
    return len(values)


def _untyped(x) -> int:
    return x


def _callback(f: Callable[[], int]) -> int:
    return f()


def _undefined(x: NoSuchName) -> int:  # noqa: F821
    return x


class _Opaque:
    def method(self, x: int) -> int:
        return x


def _opaque(thing: _Opaque) -> int:
    return thing.method(1)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (3, "a tool is made of a function, got 3"),
        (_generator, "yields its results one by one"),
        (_async_generator, "yields its results one by one"),
        (_positional, 'parameter "x" has no name that a model could give'),
        (_variadic, 'parameter "*values" has no name that a model could give'),
        (_keywords, 'parameter "**values" has no name that a model could give'),
        (_untyped, 'parameter "x" needs a type, for example x: str'),
        (_callback, 'parameter "f" of type collections.abc.Callable[[], int] cannot be given by a model'),
        (_opaque, 'parameter "thing" of type _Opaque cannot be given by a model'),
        (_undefined, "name 'NoSuchName' is not defined"),
        (_Opaque.method, "is a method without its object"),
        (lambda: "x", 'tool name "<lambda>" must be letters, digits'),
    ],
)
def test_what_cannot_be_a_tool_is_refused_where_it_is_made(function, words):
    with pytest.raises(InputError) as refusal:
        tool(function)
    assert refusal.value.code == "INVALID_TOOL"
    assert words in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["two words", "1st", "", "a" * 65, "é"])
def test_names_that_servers_refuse_are_refused(name):
    with pytest.raises(InputError):
        Tool(lambda: None, name=name)


def test_an_unknown_thread_is_refused():
    with pytest.raises(InputError, match='thread is "worker" or "main"'):
        tool(thread="gpu")(_keywords)


class TestParallel:
    @pytest.mark.parametrize(("rule", "expected"), [(True, True), (False, False), (lambda a: a["n"] > 1, True)])
    def test_the_rule_is_a_flag_or_a_function_of_the_arguments(self, rule, expected):
        assert tool(parallel=rule)(_with_n).is_parallel({"n": 2}) is expected

    @pytest.mark.parametrize("rule", [lambda a: 1, lambda a: "yes", lambda a: None])
    def test_only_true_counts(self, rule):
        assert tool(parallel=rule)(_with_n).is_parallel({"n": 2}) is False

    def test_arguments_that_are_no_object_are_not_asked_about(self):
        assert tool(parallel=lambda a: True)(_with_n).is_parallel("not json") is False

    def test_by_default_a_tool_is_exclusive(self):
        assert as_tool(_with_n).is_parallel({"n": 2}) is False


def _with_n(n: int) -> int:
    return n
