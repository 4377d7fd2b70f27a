"""What may be stored, and that nobody changes it afterwards."""

from __future__ import annotations

import copy
import enum
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.types.frozen import MAX_DEPTH, FrozenDict, FrozenList, NotJsonError, freeze, thaw
from nbagent.types.messages import Message, user_message

texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda n: str(n) != "-0.0"
)
json = st.recursive(
    st.none() | st.booleans() | numbers | texts, lambda each: st.lists(each) | st.dictionaries(texts, each)
)


def nested(levels, kind=list):
    value = kind()
    for _ in range(levels - 1):
        value = [value] if kind is list else {"in": value}
    return value


def cycle():
    value = []
    value.append(value)
    return value


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -0.0,
        2**64,
        -(2**63) - 1,
        {1},
        (1,),
        b"x",
        object(),
        1j,
        Colour.RED,
        {1: "a key that is no text"},
        {"a": [{"b": float("nan")}]},
        "\ud800",
        {"\udfff": 1},
        cycle(),
        nested(MAX_DEPTH + 1),
        nested(MAX_DEPTH + 1, dict),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_hold_without_loss_is_refused(value):
    with pytest.raises(NotJsonError):
        freeze(value)


@pytest.mark.parametrize("kind", [list, dict])
def test_two_hundred_levels_are_fine(kind):
    freeze(nested(MAX_DEPTH, kind))


def test_frozen_parts_count_towards_the_depth():
    deep = freeze(nested(MAX_DEPTH))
    assert freeze(deep) is deep
    with pytest.raises(NotJsonError):
        freeze([deep])


@given(json)
def test_a_snapshot_is_equal_detached_and_thaws_to_what_it_was(value):
    frozen = freeze(value)
    assert thaw(frozen) == value
    assert freeze(frozen) is frozen or not isinstance(value, dict | list)
    if isinstance(value, list):
        value.append(1)
        assert len(frozen) == len(value) - 1


MUTATIONS = {
    "item": lambda v: v["object"].__setitem__("a", 2),
    "delete": lambda v: v["object"].__delitem__("a"),
    "update": lambda v: v["object"].update(a=2),
    "pop": lambda v: v["object"].pop("a"),
    "popitem": lambda v: v["object"].popitem(),
    "clear": lambda v: v["object"].clear(),
    "setdefault": lambda v: v["object"].setdefault("b", 1),
    "or": lambda v: v["object"].__ior__({"b": 1}),
    "append": lambda v: v["array"].append(1),
    "extend": lambda v: v["array"].extend([1]),
    "insert": lambda v: v["array"].insert(0, 1),
    "remove": lambda v: v["array"].remove(1),
    "list item": lambda v: v["array"].__setitem__(0, 2),
    "slice": lambda v: v["array"].__delitem__(slice(None)),
    "sort": lambda v: v["array"].sort(),
    "reverse": lambda v: v["array"].reverse(),
    "add": lambda v: v["array"].__iadd__([1]),
    "times": lambda v: v["array"].__imul__(2),
}


@pytest.mark.parametrize("mutate", MUTATIONS.values(), ids=MUTATIONS)
def test_a_frozen_value_refuses_every_change(mutate):
    value = freeze({"object": {"a": 1}, "array": [1]})
    with pytest.raises(TypeError, match="frozen"):
        mutate(value)
    assert value == {"object": {"a": 1}, "array": [1]}


def test_a_copy_of_a_frozen_value_is_the_value_and_pickling_keeps_its_kind():
    message = user_message("hi", id="m")
    assert copy.deepcopy(message) is message
    assert copy.copy(message.content) is message.content
    again = pickle.loads(pickle.dumps(message))
    assert again == message
    assert type(again) is Message
    assert type(again.content) is FrozenList


def test_replacing_fields_makes_a_new_record_and_none_leaves_one_out():
    message = user_message("hi", id="m")
    changed = message.replace(id="n", source=None)
    assert (changed.id, "source" in changed, message.id) == ("n", False, "m")
    assert type(changed) is Message
    assert type(message.source) is FrozenDict
