"""What a call touches, and which calls may overlap."""

from __future__ import annotations

import pytest

from nbagent import tool
from nbagent.errors import InputError
from nbagent.tools.access import EXCLUSIVE, SHARED, Access


def copy(source: str, target: str) -> str:
    """Copy a file."""
    return f"{source} to {target}"


ARGUMENTS = {"source": "a", "target": "b"}


def touches(reads=(), writes=()):
    return Access(frozenset(reads), frozenset(writes))


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        (touches(reads="a"), touches(reads="a"), False),
        (touches(reads="a"), touches(writes="a"), True),
        (touches(writes="a"), touches(writes="a"), True),
        (touches(writes="a"), touches(writes="b"), False),
        (touches(reads="ab", writes="c"), touches(reads="d", writes="b"), True),
        (touches(writes="a"), SHARED, False),
        (touches(reads="a"), EXCLUSIVE, True),
        (SHARED, SHARED, False),
        (SHARED, EXCLUSIVE, True),
        (EXCLUSIVE, EXCLUSIVE, True),
    ],
)
def test_a_writer_is_alone_with_its_resource_and_an_exclusive_call_with_everything(one, other, conflict):
    assert one.conflicts_with(other) is conflict
    assert other.conflicts_with(one) is conflict


@pytest.mark.parametrize(
    ("options", "access"),
    [
        ({}, EXCLUSIVE),
        ({"parallel": True}, SHARED),
        ({"reads": "table"}, touches(reads={"table"})),
        ({"reads": ["x", "y"], "writes": {"z"}}, touches(reads="xy", writes="z")),
        ({"reads": iter(["x"])}, touches(reads="x")),
        ({"writes": []}, SHARED),
        ({"reads": lambda a: a["source"], "writes": lambda a: [a["target"]]}, touches(reads="a", writes="b")),
        ({"parallel": True, "writes": "x"}, touches(writes="x")),
        ({"parallel": lambda a: a["source"] == "a", "writes": "x"}, touches(writes="x")),
        ({"parallel": lambda a: a["source"] != "a", "writes": "x"}, EXCLUSIVE),
    ],
)
def test_resources_are_names_or_a_function_of_the_arguments(options, access):
    copying = tool(**options)(copy)
    assert [copying.access(ARGUMENTS), copying.access(ARGUMENTS)] == [access, access]


@pytest.mark.parametrize("rule", [lambda a: 1 / 0, lambda a: a["nope"], lambda a: None, lambda a: 3, lambda a: [1]])
@pytest.mark.parametrize("kind", ["reads", "writes"])
def test_a_call_whose_resources_cannot_be_told_is_exclusive(rule, kind):
    assert tool(**{kind: rule})(copy).access(ARGUMENTS) is EXCLUSIVE


def test_a_function_is_not_asked_about_arguments_that_are_no_object():
    assert tool(reads=lambda a: "all")(copy).access("not json") is EXCLUSIVE
    assert tool(reads="all")(copy).access("not json") == touches(reads={"all"})


@pytest.mark.parametrize("rule", [lambda a: 1, lambda a: "yes", lambda a: 1 / 0, 1, "yes"])
def test_a_classifier_that_does_not_answer_true_leaves_the_call_exclusive(rule):
    assert tool(parallel=rule)(copy).access(ARGUMENTS) is EXCLUSIVE


async def later(arguments):
    return "x"


@pytest.mark.parametrize("keys", [3, [1], ["a", None], later, {"a": 1}.values()])
@pytest.mark.parametrize("kind", ["reads", "writes"])
def test_what_names_no_resource_is_refused_where_the_tool_is_made(kind, keys):
    with pytest.raises(InputError, match="reads and writes are names of resources") as refused:
        tool(**{kind: keys})(copy)
    assert refused.value.code == "INVALID_TOOL"
