"""Layers of tools: shadowing, restriction, duplicates, and what is left when a layer closes."""

from __future__ import annotations

import pytest

from nbagent import tool
from nbagent.errors import InputError, LifecycleError
from nbagent.hooks import Hooks
from nbagent.tools import ToolRegistry


def named(name, description=""):
    @tool(name=name, description=description)
    def body() -> str:
        return name

    return body


@pytest.fixture
def layers():
    runtime = ToolRegistry(Hooks())
    return runtime, ToolRegistry(Hooks(), runtime)


def names(registry):
    return [each.name for each in registry.visible()]


def code_of(action):
    with pytest.raises((InputError, LifecycleError)) as refusal:
        action()
    return refusal.value.code


def test_tools_are_listed_by_name_and_taken_away_again(layers):
    runtime, agent = layers
    remove = runtime.register(named("b"))
    agent.register(named("c"))
    agent.register(named("a"))
    assert (names(runtime), names(agent)) == (["b"], ["a", "b", "c"])
    remove()
    remove()
    assert names(agent) == ["a", "c"]


def test_a_nearer_tool_shadows_a_farther_one_while_it_is_there(layers):
    runtime, agent = layers
    runtime.register(named("a", "far"))
    remove = agent.register(named("a", "near"))
    assert [each.description for each in agent.declarations()] == ["near"]
    assert [each.description for each in runtime.declarations()] == ["far"]
    remove()
    assert [each.description for each in agent.declarations()] == ["far"]


def test_removing_twice_does_not_take_a_later_tool_of_the_same_name(layers):
    _, agent = layers
    remove = agent.register(named("a", "first"))
    remove()
    agent.register(named("a", "second"))
    remove()
    assert [each.description for each in agent.declarations()] == ["second"]


def test_the_same_name_twice_in_one_layer_is_refused(layers):
    _, agent = layers
    agent.register(named("a"))
    assert code_of(lambda: agent.register(named("a"))) == "DUPLICATE_TOOL"


def test_a_plain_function_becomes_a_tool(layers):
    _, agent = layers

    def double(x: int) -> int:
        """Double it."""
        return 2 * x

    agent.register(double)
    assert agent.get("double").declaration.description == "Double it."


class TestRestrict:
    def test_it_hides_what_is_inherited_and_nothing_else(self, layers):
        runtime, agent = layers
        for name in ("a", "b", "c"):
            runtime.register(named(name))
        agent.register(named("own"))
        lift = agent.restrict(["a", "b"])
        assert names(agent) == ["a", "b", "own"]
        assert agent.get("c") is None
        assert names(runtime) == ["a", "b", "c"]
        lift()
        lift()
        assert names(agent) == ["a", "b", "c", "own"]

    def test_restrictions_intersect(self, layers):
        runtime, agent = layers
        for name in ("a", "b", "c"):
            runtime.register(named(name))
        agent.restrict(["a", "b"])
        lift = agent.restrict(["b", "c"])
        assert names(agent) == ["b"]
        agent.restrict(without=["b"])
        assert names(agent) == []
        lift()
        assert names(agent) == ["a"]

    def test_a_tool_that_shadows_a_hidden_one_is_visible(self, layers):
        runtime, agent = layers
        runtime.register(named("a", "far"))
        runtime.register(named("b"))
        agent.restrict("b")
        agent.register(named("a", "near"))
        assert agent.get("a").declaration.description == "near"

    def test_later_tools_of_the_farther_layer_are_hidden_too(self, layers):
        runtime, agent = layers
        runtime.register(named("a"))
        agent.restrict(["a"])
        runtime.register(named("b"))
        assert names(agent) == ["a"]

    def test_equal_restrictions_are_lifted_one_by_one(self, layers):
        runtime, agent = layers
        runtime.register(named("a"))
        runtime.register(named("b"))
        agent.restrict(["a"])
        agent.restrict(["a"])()
        assert names(agent) == ["a"]

    @pytest.mark.parametrize(
        ("restriction", "code"),
        [
            ({}, "INVALID_OPTION"),
            ({"names": []}, "INVALID_OPTION"),
            ({"names": ["nope"]}, "UNKNOWN_TOOL"),
            ({"without": ["nope"]}, "UNKNOWN_TOOL"),
            ({"names": ["own"]}, "UNKNOWN_TOOL"),
        ],
    )
    def test_unknown_names_and_empty_filters_are_refused(self, layers, restriction, code):
        runtime, agent = layers
        runtime.register(named("a"))
        agent.register(named("own"))
        assert code_of(lambda: agent.restrict(**restriction)) == code
        assert names(agent) == ["a", "own"]

    def test_a_layer_that_inherits_nothing_cannot_be_restricted(self, layers):
        runtime, _ = layers
        runtime.register(named("a"))
        assert code_of(lambda: runtime.restrict(["a"])) == "INVALID_OPTION"


def test_a_guard_is_a_plain_function(layers):
    _, agent = layers

    async def slow(call):
        return None

    assert code_of(lambda: agent.guard(slow)) == "INVALID_LISTENER"


def test_a_closed_layer_is_empty_and_takes_nothing(layers):
    runtime, agent = layers
    runtime.register(named("a"))
    agent.register(named("own"))
    agent.close()
    for action in (
        lambda: agent.register(named("x")),
        lambda: agent.guard(lambda call: None),
        lambda: agent.restrict(["a"]),
    ):
        assert code_of(action) == "SCOPE_DISPOSED"
    assert names(agent) == ["a"]
