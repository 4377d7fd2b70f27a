"""How the system prompt is put together: sections, variables, and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbagent.agent.prompt import Section
from nbagent.errors import InputError
from nbagent.testing import text

pytestmark = pytest.mark.anyio


async def prompt_of(w):
    await w.ask("hi")
    return w.sent("system")[-1]


async def failure_of(w):
    await w.ask("hi")
    assert w.model.requests == []
    assert w.of("system/message", "user/message", "request/header") == []
    return w.reasons[-1]["error"]["message"]


async def test_sections_are_sorted_by_order_and_empty_ones_dropped(world):
    async with world(text("ok"), system=None) as w:
        w.agent.prompt.section("last", "C", order=2)
        w.agent.prompt.section("first", "A", order=-1)
        w.agent.prompt.section("empty", "")
        w.agent.prompt.section("same-1", "B1", order=1)
        w.agent.prompt.section("same-2", "B2", order=1)
        assert await prompt_of(w) == ["A\n\nB1\n\nB2\n\nC"]


async def test_the_agents_section_shadows_the_runtimes_of_the_same_name(world):
    async with world(text("ok"), system=None) as w:
        w.runtime.prompt.section("persona", "You are anybody.")
        w.agent.prompt.section("persona", "You are Ada.")
        assert await prompt_of(w) == ["You are Ada."]


async def test_a_section_may_be_a_function_that_is_called_once_a_step(world):
    calls = []

    async def now():
        calls.append(1)
        return f"call {len(calls)}"

    async with world(text("ok"), text("ok"), system=now) as w:
        assert await prompt_of(w) == ["call 1"]
        assert await prompt_of(w) == ["call 2"]


async def test_the_loop_supplies_provider_model_and_working_directory(world, tmp_path):
    async with world(text("ok"), system="{{provider}}/{{model}} in {{cwd}}", cwd=tmp_path) as w:
        assert await prompt_of(w) == [f"scripted/m in {tmp_path}"]


async def test_a_substituted_value_is_not_read_again(world):
    async with world(text("ok"), system="{{quote}}") as w:
        w.agent.prompt.variable("quote", "{{model}}")
        assert await prompt_of(w) == ["{{model}}"]


async def test_a_lone_opening_is_text(world):
    async with world(text("ok"), system="a {{ b } c") as w:
        assert await prompt_of(w) == ["a {{ b } c"]


async def test_a_variable_without_a_value_fails_the_step_and_a_later_turn_recovers(world):
    async with world(text("ok"), system="In {{cwd}}.") as w:
        failures = w.hear("agent/error", lambda p: str(p.error))
        says = 'prompt variable "{{cwd}}" has no value for this assembly (section "system")'
        assert await failure_of(w) == says
        assert failures == [says]
        assert w.types() == ["turn/start", "step/start", "step/end", "turn/end"]
        w.agent.prompt.variable("cwd", lambda: "/home")
        assert await prompt_of(w) == ["In /home."]


@pytest.mark.parametrize("reference", ["{{Name}}", "{{ name }}", "{{}}", "{{1st}}", "{{a.b}}", "{{{name}}}"])
async def test_a_malformed_reference_fails_the_step(world, reference):
    async with world(system=f"Hi {reference}!") as w:
        w.agent.prompt.variable("name", "Ada")
        assert (await failure_of(w)).startswith('malformed prompt variable reference "{{')


async def test_an_unknown_variable_fails_the_step_and_names_the_known_ones(world):
    async with world(system="{{place}}") as w:
        says = 'unknown prompt variable "{{place}}" in section "system"; registered variables: cwd, model, provider'
        assert await failure_of(w) == says


async def test_without_any_variable_none_is_named(world):
    async with world(system="{{place}}") as w:

        @w.on("system-prompt/assemble")
        async def none(payload, next):
            return replace(await next(), variables={})

        assert (await failure_of(w)).endswith("registered variables: (none)")


async def test_a_variables_name_is_checked(world):
    async with world() as w:
        with pytest.raises(InputError) as refused:
            w.agent.prompt.variable("Place", "Oslo")
        assert refused.value.code == "INVALID_NAME"


async def test_one_complete_section_is_the_whole_prompt(world):
    async with world(text("ok")) as w:
        w.agent.prompt.section("all", "Only this.", complete=True)
        w.agent.prompt.section("inactive", "", complete=True)

        @w.on("system-prompt/assemble")
        async def one_more(payload, next):
            answer = await next()
            return replace(answer, sections=[*answer.sections, Section("late", "And this.")])

        assert await prompt_of(w) == ["Only this."]


async def test_two_complete_sections_fail_the_turn_before_its_step(world):
    async with world() as w:
        w.agent.prompt.section("one", "1", complete=True)
        w.agent.prompt.section("two", "2", complete=True)
        assert await failure_of(w) == "more than one complete prompt section: one, two"
        assert w.types() == ["turn/start", "turn/end"]


async def test_a_listener_of_the_assembly_has_the_last_word_on_sections_and_tools(world):
    async with world(text("ok")) as w:

        @w.on("system-prompt/assemble")
        async def change(payload, next):
            declared = {"name": "extra", "description": "", "parameters": {"type": "object"}}
            return replace(await next(), sections=[Section("mine", "Mine.")], tools=[declared])

        assert await prompt_of(w) == ["Mine."]
        assert [declared.name for declared in w.model.requests[0].tools] == ["extra"]


async def test_assembly_runs_even_when_the_step_is_then_rejected(world):
    async with world(system="In {{cwd}}.") as w:
        assembled = []

        @w.on("system-prompt/assemble")
        async def count(payload, next):
            assembled.append(1)
            return await next()

        @w.on("agent/pre-step")
        async def gate(payload, next):
            return {"kind": "reject"}

        await w.ask("hi")
        assert assembled == [1]
        assert w.reasons == [{"kind": "blocked"}]
