"""Request headers and contexts: what the log says of the configuration before a request is sent."""

from __future__ import annotations

import pytest

from nbagent.testing import ScriptedAdapter, as_json, sent_requests, text

pytestmark = pytest.mark.anyio


def headers(w):
    """Reason, configuration beyond the model's name, and what the route had filled in, for each header."""
    found = []
    for event in w.of("request/header"):
        config = dict(event.data["header"]["config"])
        found.append((event.data["reason"], config, dict(event.data["header"].get("adapterDefaults", {}))))
    return found


def same_as_logged(w):
    return [as_json(r) for r in sent_requests(w.agent.session)] == [as_json(r) for r in w.model.requests]


MODEL = {"provider": "scripted", "model": "m"}


async def test_an_effort_of_the_route_is_marked_and_one_that_was_chosen_is_not(world):
    adapter = {"default_effort": "high", "efforts": ["high", "max"]}
    async with world(*[text("x")] * 9, adapter=adapter) as w:
        await w.ask("1")
        stop = choose_effort(w, "max")
        await w.ask("2")
        stop()
        await w.ask("3")
        assert headers(w) == [
            ("initial", {**MODEL, "reasoningEffort": "high"}, {"reasoningEffort": True}),
            ("change", {**MODEL, "reasoningEffort": "max"}, {}),
        ]
        await w.resume()
        await w.ask("4")
        assert headers(w)[2:] == [("resume", {**MODEL, "reasoningEffort": "max"}, {})]
        await w.resume(provider="scripted", model="other")
        await w.ask("5")
        other = {**MODEL, "model": "other", "reasoningEffort": "high"}
        assert headers(w)[3:] == [("resume", other, {"reasoningEffort": True})]
        assert same_as_logged(w)


def choose_effort(w, effort):
    async def choose(payload, next):
        return {**await next(), "reasoningEffort": effort}

    return w.agent.on("agent/request", choose)


async def test_what_a_route_filled_in_is_not_proposed_to_the_next_route(world):
    async with world(text("1"), text("2"), adapter={"default_max_tokens": 100}) as w:
        await w.ask("1")
        w.model.default_max_tokens = 200
        await w.ask("2")
        assert [config["maxTokens"] for _, config, _ in headers(w)] == [100, 200]


async def test_the_agents_own_options_are_in_the_first_header(world):
    async with world(text("1"), reasoning_effort="low", max_tokens=50, adapter={"default_max_tokens": 100}) as w:
        await w.ask("1")
        assert headers(w) == [("initial", {**MODEL, "reasoningEffort": "low", "maxTokens": 50}, {})]


async def test_an_effort_that_the_model_does_not_take_fails_the_step_before_any_header(world):
    async with world(adapter={"efforts": ["low"]}, reasoning_effort="max") as w:
        offered = []

        @w.on("agent/request-error")
        async def offer(payload, next):
            offered.append(payload)

        await w.ask("1")
        assert w.reasons[0]["error"]["code"] == "UNSUPPORTED_REASONING_EFFORT"
        assert w.types() == ["turn/start", "step/start", "step/end", "turn/end"]
        assert (w.model.requests, offered) == ([], [])


async def test_a_route_that_cannot_be_asked_fails_the_step_before_any_header(world):
    async with world() as w:

        class Broken(ScriptedAdapter):
            def facts(self, model):
                raise ValueError("no such model")

        w.agent.llm.register(["scripted"], Broken([]))
        await w.ask("1")
        assert w.reasons == [{"kind": "error", "error": {"message": "no such model", "code": "UNKNOWN"}}]
        assert w.of("request/header", "system/message", "user/message") == []


async def test_a_route_that_is_replaced_while_it_is_asked_serves_the_call_it_prepared(world):
    async with world() as w:
        second = ScriptedAdapter([text("second")], context_window=2000)
        taken = []

        class First(ScriptedAdapter):
            async def facts(self, model):
                taken.pop()()
                w.agent.llm.register(["scripted"], second)
                return ScriptedAdapter.facts(self, model)

        first = First([text("first")], context_window=1000)
        taken.append(w.agent.llm.register(["scripted"], first))
        await w.ask("1")
        assert w.of("assistant/message")[0].data["message"].text == "first"
        assert w.of("request/context")[0].data["contextWindow"] == 1000
        assert second.requests == []


async def test_a_listener_supplies_the_model_of_an_agent_that_has_none(world):
    async with world(text("ok")) as w:
        agent = (await w.runtime.agents.create(session_id="bare")).agent

        async def supply(payload, next):
            assert dict(payload.config) == {"provider": "", "model": ""}
            return MODEL

        agent.on("agent/request", supply)
        agent.followup("hi")
        await agent.when_idle()
        assert agent.session.events[-1].data["reason"] == {"kind": "completed"}


async def test_a_listener_may_stream_a_route_that_nobody_registered(world):
    async with world() as w:
        agent = (await w.runtime.agents.create(session_id="own", provider="nowhere", model="x")).agent

        async def serve(payload, next):
            return own_answer()

        agent.on("llm/stream", serve)
        agent.followup("hi")
        await agent.when_idle()
        assert agent.session.messages()[-1].text == "mine"
        assert agent.session.request_header() == {"config": {"provider": "nowhere", "model": "x"}}


async def own_answer():
    for chunk in text("mine").chunks:
        yield chunk


async def test_a_route_that_nobody_serves_is_offered_to_recovery_and_ends_the_turn(world):
    async with world() as w:
        agent = (await w.runtime.agents.create(session_id="none", provider="nowhere", model="x")).agent
        offered = []

        async def offer(payload, next):
            offered.append(payload.failure["code"])

        agent.on("agent/request-error", offer)
        agent.followup("hi")
        await agent.when_idle()
        assert offered == ["NO_ADAPTER"]
        error = agent.session.events[-1].data["reason"]["error"]
        assert error == {"message": 'no adapter registered for provider "nowhere"', "code": "NO_ADAPTER"}
