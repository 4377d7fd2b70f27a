"""Which headers and contexts are logged at all: none without a change, and one for every beginning of a series."""

from __future__ import annotations

import pytest

from nbagent import tool
from nbagent.agent.points import Enter
from nbagent.testing import as_json, fail, sent_requests, text, tool_calls

pytestmark = pytest.mark.anyio


def same_as_logged(w):
    return [as_json(r) for r in sent_requests(w.agent.session)] == [as_json(r) for r in w.model.requests]


async def test_nothing_new_is_logged_while_nothing_changes(world):
    @tool
    def echo() -> str:
        """Say it again."""
        return "echo"

    async with world(tool_calls(("c1", "echo", {})), text("2"), text("3"), tools=[echo]) as w:
        await w.ask("1")
        await w.ask("2")
        assert w.header_reasons == ["initial"]
        assert len(w.of("request/context")) == 1


@pytest.mark.parametrize(
    ("changes_tools", "logged"),
    [(False, {"reason": "series"}), (True, {"reason": "change", "startsSeries": True})],
)
async def test_a_decision_may_begin_a_new_series(world, changes_tools, logged):
    @tool
    def echo() -> str:
        """Say it again."""
        return "echo"

    async with world(text("1"), text("2"), text("3")) as w:

        @w.on("agent/pre-step")
        async def begin(payload, next):
            decision = await next()
            return Enter(decision.messages, starts_request_series=payload.turn == 2)

        await w.ask("1")
        if changes_tools:
            w.agent.tools.register(echo)
        await w.ask("2")
        await w.ask("3")
        assert [{k: v for k, v in e.data.items() if k != "header"} for e in w.of("request/header")] == [
            {"reason": "initial"},
            logged,
        ]


async def test_a_first_request_that_begins_a_series_says_so(world):
    async with world(text("1")) as w:

        @w.on("agent/pre-step")
        async def begin(payload, next):
            return Enter((await next()).messages, starts_request_series=True)

        await w.ask("1")
        assert w.of("request/header")[0].data["startsSeries"] is True


async def test_a_series_begins_once_however_often_the_request_is_tried(world):
    async with world(text("1"), fail("a"), fail("b"), text("2")) as w:

        @w.on("agent/pre-step")
        async def begin(payload, next):
            return Enter((await next()).messages, starts_request_series=payload.turn == 2)

        @w.on("agent/request-error")
        async def again(payload, next):
            return {"kind": "retry"}

        await w.ask("1")
        await w.ask("2")
        assert w.header_reasons == ["initial", "series"]


async def test_another_model_on_the_retry_is_a_change_before_it(world):
    async with world(fail("a"), text("ok")) as w:

        @w.on("agent/request-error")
        async def again(payload, next):
            return {"kind": "retry"}

        @w.on("agent/request")
        async def switch(payload, next):
            config = await next()
            return {**config, "model": "other"} if w.model.requests else config

        await w.ask("hi")
        assert w.header_reasons == ["initial", "change"]
        assert [r.config.model for r in w.model.requests] == ["m", "other"]
        assert len(w.of("system/message")) == 1
        assert same_as_logged(w)


async def test_a_replacement_begins_a_series_even_when_the_log_refused_to_say_so_at_first(world):
    async with world(text("1"), text("2")) as w:
        refused = []

        def veto(payload):
            if payload.event.type == "request/header" and payload.event.data["reason"] == "series" and not refused:
                refused.append(payload.event)
                raise ValueError("disk full")

        w.agent.on("session/validate", veto)
        await w.ask("1")
        w.shadow(w.of("user/message")[0].seq)
        await w.ask("2")
        assert w.reasons[-1]["kind"] == "error"
        await w.ask("3")
        assert w.header_reasons == ["initial", "series"]


async def test_the_first_header_of_a_resumed_agent_says_so_even_when_it_is_equal(world):
    async with world(text("1"), text("2"), text("3")) as w:
        await w.ask("1")
        await w.resume(system="Be brief.")
        await w.ask("2")
        await w.ask("3")
        assert w.header_reasons == ["initial", "resume"]
        assert len(w.of("request/context")) == 1
        assert same_as_logged(w)


async def test_a_context_is_logged_when_one_of_its_fields_changes(world):
    async with world(*[text("x")] * 9) as w:
        steps = [
            {"context_window": 100},
            {"context_window": 100},
            {"context_window": 200},
            {"context_window": None},
            {"system_prompt_update": "in-history"},
            {"system_prompt_update": None},
        ]
        await w.ask("0")
        for number, step in enumerate(steps):
            for name, value in step.items():
                setattr(w.model, name, value)
            await w.ask(str(number))
        base = {"provider": "scripted", "model": "m"}
        assert [event.data for event in w.of("request/context")] == [
            base,
            {**base, "contextWindow": 100},
            {**base, "contextWindow": 200},
            base,
            {**base, "systemPromptUpdate": "in-history"},
            base,
        ]
        assert w.header_reasons == ["initial"]


async def test_without_any_one_header_a_request_could_not_be_rebuilt(world):
    async with world(*[text("x")] * 6) as w:

        @w.on("agent/request")
        async def choose(payload, next):
            return {**await next(), "model": ["m", "m", "n", "n", "m"][payload.turn - 1]}

        for number in range(5):
            await w.ask(str(number))
        assert same_as_logged(w)
        models = [r.config.model for r in sent_requests(w.agent.session)]
        for event in w.of("request/header", "request/context"):
            others = [e for e in w.of(event.type) if e is not event]
            assert rebuilt_models(w, event.type, others) != models
        assert w.header_reasons == ["initial", "change", "change"]


def rebuilt_models(w, kind, kept):
    """What each answer's request would be taken for, were only `kept` in the log."""
    models, latest = [], None
    for event in w.events:
        if event.type == kind and event in kept:
            latest = event.data.get("model") or event.data["header"]["config"]["model"]
        if event.type == "assistant/message":
            models.append(latest)
    return models
