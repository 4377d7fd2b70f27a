"""Arguments as models give them: coerced to what is declared, or refused with a line for each fault."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from nbagent import tool
from nbagent.errors import ToolError
from nbagent.types.frozen import freeze


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Filter(BaseModel):
    column: str
    above: float | None = None

    @field_validator("column")
    @classmethod
    def known(cls, column: str) -> str:
        if column == "nope":
            raise ValueError("there is no column nope; there are price, city")
        return column


@dataclass
class Point:
    x: int
    y: int = 0


@tool
def search(
    city: str,
    count: int = 3,
    colour: Colour = Colour.RED,
    filters: list[Filter] = [],  # noqa: B006 - people write it
    point: Point | None = None,
    size: Literal["small", "large"] = "small",
    since: dt.date | None = None,
    either: int | list[int] = 0,
    few: Annotated[int, Field(ge=1, le=3)] = 1,
) -> str:
    """Search."""
    return ""


def faults(arguments) -> list[str]:
    with pytest.raises(ToolError) as refusal:
        search.validate(freeze(arguments))
    assert refusal.value.code == "INVALID_ARGUMENTS"
    first, *lines = str(refusal.value).splitlines()
    assert first == "invalid arguments for search:"
    return lines


def test_only_what_was_given_is_passed_on():
    assert search.validate({"city": "Oslo"}) == {"city": "Oslo"}


def test_values_arrive_as_their_declared_types():
    given = {
        "city": "Oslo",
        "count": "5",
        "colour": "blue",
        "filters": [{"column": "price", "above": 1}],
        "point": {"x": 1.0},
        "since": "2024-05-01",
        "either": ["1"],
    }
    assert search.validate(freeze(given)) == {
        "city": "Oslo",
        "count": 5,
        "colour": Colour.BLUE,
        "filters": [Filter(column="price", above=1.0)],
        "point": Point(1),
        "since": dt.date(2024, 5, 1),
        "either": [1],
    }


def test_a_container_may_be_changed_by_the_body():
    arguments = freeze({"city": "Oslo", "either": [1]})
    search.validate(arguments)["either"].append(2)
    assert arguments == {"city": "Oslo", "either": [1]}


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ({}, ["- city: is required"]),
        (
            {"city": "Oslo", "town": 1},
            [
                "- town: is not a parameter; there are: city, count, colour, filters, point, size, since, either, few",
            ],
        ),
        ({"city": 5}, ["- city: should be a valid string, got 5"]),
        (
            {"city": "x", "count": "five"},
            ['- count: should be a valid integer, got "five"'],
        ),
        ({"city": "x", "colour": "pink"}, ["- colour: should be 'red' or 'blue', got \"pink\""]),
        ({"city": "x", "size": "big"}, ["- size: should be 'small' or 'large', got \"big\""]),
        ({"city": "x", "few": 9}, ["- few: should be less than or equal to 3, got 9"]),
        ({"city": "x", "filters": [{}]}, ["- filters[0].column: is required"]),
        (
            {"city": "x", "filters": [{"column": "nope"}]},
            ['- filters[0].column: there is no column nope; there are price, city, got "nope"'],
        ),
        (
            {"city": "x", "either": "a"},
            ['- either: should be a valid integer or a valid array, got "a"'],
        ),
        (
            {"city": "x", "point": {"x": 1, "z": 2}},
            ["- point.z: is not a field"],
        ),
        (
            {"city": "x", "point": {"x": "a"}},
            ['- point.x: should be a valid integer, got "a"'],
        ),
    ],
)
def test_every_fault_is_a_line_that_says_what_to_give(given, lines):
    assert faults(given) == lines


def test_several_faults_are_several_lines():
    lines = faults({"count": [], "size": None, "town": True})
    assert [line.split(":")[0] for line in lines] == ["- city", "- count", "- size", "- town"]


def test_a_long_value_is_quoted_in_part():
    (line,) = faults({"city": "x", "count": "y" * 10_000})
    assert len(line) < 220
    assert line.endswith("...")


@pytest.mark.parametrize("given", ["text", 3, None, [1, 2], True])
def test_anything_but_an_object_is_refused(given):
    with pytest.raises(ToolError, match="must be a JSON object, got"):
        search.validate(given)


def test_half_an_object_is_told_from_no_object():
    with pytest.raises(ToolError, match="were cut off before their end or are malformed, got "):
        search.validate('{"city": "Os')
