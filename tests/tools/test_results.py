"""What a model reads of a returned value, and how much of it."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from nbagent.tools.outcome import accept_content
from nbagent.tools.results import TEXT_BOUND, cut, text_of_value


class Pair(NamedTuple):
    left: int
    right: int


class Colour(enum.Enum):
    RED = "red"


class Weather(BaseModel):
    at: dt.date
    degrees: float


@dataclass
class Row:
    name: str
    tags: set[str]


class Scalar:
    """Looks like a number in an array library."""

    shape = ()
    dtype = "int64"

    def item(self):
        return 7


class Array:
    shape = (2,)
    dtype = "int64"
    size = 2

    def tolist(self):
        return [1, 2]


class Mute:
    def __str__(self):
        raise RuntimeError("no")


class Grabby:
    """Answers every attribute one asks for, as proxies and mocks do."""

    def __getattr__(self, name):
        if name.startswith("__") or name in {"shape", "tolist"}:
            raise AttributeError(name)
        return lambda *args, **kwargs: 1 / 0

    def __str__(self):
        return "grabby"


CYCLE: list = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "(no output)"),
        ("", "(no output)"),
        ("as it is \n", "as it is \n"),
        ("half \ud800 pair", "half ? pair"),
        (5, "5"),
        (2**80, str(2**80)),
        (1.5, "1.5"),
        (True, "true"),
        (float("nan"), "NaN"),
        ([], "[]"),
        ({"a": [1, None, "ø"]}, '{"a":[1,null,"ø"]}'),
        ({1: "a", None: "b"}, '{"1":"a","null":"b"}'),
        ({(1, 2): "a"}, "{(1, 2): 'a'}"),
        ((1, 2), "[1,2]"),
        (Pair(1, 2), "[1,2]"),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        (range(3), "[0,1,2]"),
        ({"a": 1}.keys(), '["a"]'),
        ({"a": 1}.items(), '[["a",1]]'),
        (iter([1, 2]), "[1,2]"),
        (map(str, [1]), '["1"]'),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        (OrderedDict(a=1), '{"a":1}'),
        (Counter("aab"), '{"a":2,"b":1}'),
        (Row("x", {"b", "a"}), '{"name":"x","tags":["a","b"]}'),
        ([Weather(at=dt.date(2024, 5, 1), degrees=3)], '[{"at":"2024-05-01","degrees":3.0}]'),
        (Weather(at=dt.date(2024, 5, 1), degrees=3), '{"at":"2024-05-01","degrees":3.0}'),
        (Colour.RED, "red"),
        ({"c": Colour.RED}, '{"c":"red"}'),
        (dt.date(2024, 5, 1), "2024-05-01"),
        ({"at": dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)}, '{"at":"2024-05-01T12:00:00+00:00"}'),
        (decimal.Decimal("1.10"), "1.10"),
        (Scalar(), "7"),
        ({"n": Scalar()}, '{"n":7}'),
        (Array(), "[1,2]"),
        (deque([1]), "deque([1])"),
        (Mute(), "<Mute that cannot be shown>"),
        ({"m": Mute()}, '{"m":"<Mute that cannot be shown>"}'),
        (Grabby(), "grabby"),
        (Row, "<class 'tests.tools.test_results.Row'>"),
        (CYCLE, "[[...]]"),
        (b"raw", "b'raw'"),
    ],
)
def test_values(value, text):
    assert text_of_value(value) == text


def test_an_endless_iterator_is_read_in_part():
    import itertools

    assert len(json.loads(text_of_value(itertools.count()))) == 10_000


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
values = st.recursive(
    scalars, lambda each: st.lists(each) | st.dictionaries(st.text(st.characters(codec="utf-8")), each)
)


@given(values.filter(lambda value: value is not None and not isinstance(value, str)))
def test_json_values_are_their_compact_json(value):
    assert json.loads(text_of_value(value)) == value


@given(st.text(), st.integers(12, 400))
def test_what_is_kept_is_within_the_bound_and_comes_from_both_ends(text, bound):
    text = text.encode(errors="replace").decode()
    shown = cut(text, bound)
    if len(text.encode()) <= bound:
        assert shown is text
        return
    head, rest = shown.split("\n\n[... ", 1) if shown.count("\n\n[... ") == 1 else shown.rsplit("\n\n[... ", 1)
    count, tail = rest.split(" characters left out ...]\n\n", 1)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + int(count) + len(tail) == len(text)
    assert bound - 8 <= len((head + tail).encode()) <= bound


@given(st.text())
def test_content_is_always_text_that_a_log_can_hold(text):
    (block,) = accept_content(cut(text_of_value(text)))
    block["text"].encode()


def test_the_bound_counts_bytes():
    assert cut("x" * TEXT_BOUND) == "x" * TEXT_BOUND
    assert len(cut("ø" * TEXT_BOUND).encode()) < TEXT_BOUND + 60
