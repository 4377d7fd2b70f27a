"""A call from policy to final result: the order of the stages and the texts that the model reads."""

from __future__ import annotations

import logging
from dataclasses import replace

import anyio
import pytest

from nbagent import CancelSignal, tool, user_message
from nbagent.errors import SessionError, ToolError
from nbagent.tools import ToolOutcome, current_call
from nbagent.tools.points import Accept, Ask, Deny
from nbagent.types.messages import text_block
from tests.tools.conftest import ABORTED_BEFORE_DISPATCH, code, said

pytestmark = pytest.mark.anyio


@tool
async def echo(x: int = 1) -> str:
    """Say it again."""
    return f"echo {x}"


async def test_a_success_has_content_value_and_no_error(bench):
    bench.tools.register(echo)
    outcome = await bench.call("echo", {"x": 2})
    assert outcome == ToolOutcome(content=[text_block("echo 2")], value="echo 2")
    assert bench.results == [outcome]


async def test_an_unknown_tool_is_told_by_name(bench):
    outcome = await bench.call("nope")
    assert said(outcome) == 'Error: unknown tool "nope"'
    assert outcome.error == {"name": "ToolNotFoundError", "code": "UNKNOWN_TOOL"}
    assert outcome.is_error


async def test_a_body_that_raises_is_an_error_without_a_code(bench):
    @tool
    async def explode() -> str:
        """Explode."""
        raise RuntimeError("exploded") from ValueError("inner")

    bench.tools.register(explode)
    outcome = await bench.call("explode")
    assert (said(outcome), outcome.error, outcome.value) == ("Error: exploded", None, None)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (ToolError("no such row", code="NO_ROW"), {"name": "ToolError", "code": "NO_ROW"}),
        (ToolError("no such row"), {"name": "ToolError", "code": "TOOL_FAILED"}),
        (SessionError("no such row", code="NOT_JSON"), {"name": "SessionError", "code": "NOT_JSON"}),
    ],
)
async def test_an_error_of_this_library_keeps_its_name_and_code(bench, failure, error):
    @tool
    def find() -> str:
        """Find."""
        raise failure

    bench.tools.register(find)
    outcome = await bench.call("find")
    assert (said(outcome), outcome.error) == ("Error: no such row", error)


class TestPolicy:
    async def test_a_denied_call_never_runs_and_still_reaches_post_execute(self, bench):
        seen = []

        @bench.on("tools/pre-execute")
        async def deny(payload, next):
            return Deny("blocked by policy")

        @bench.on("tools/execute")
        async def execute(payload, next):
            seen.append("execute")
            return await next()

        @bench.on("tools/post-execute")
        async def judge(payload, next):
            seen.append(said(payload.outcome))
            return await next()

        bench.tools.register(echo)
        outcome = await bench.call("echo")
        assert (said(outcome), outcome.error) == ("Error: blocked by policy", None)
        assert seen == ["Error: blocked by policy"]

    @pytest.mark.parametrize(
        ("answer", "text"),
        [
            (Ask(), 'Error: tool "echo" requires approval (not yet supported)'),
            ({"kind": "ask"}, 'Error: tool "echo" requires approval (not yet supported)'),
            ({"kind": "ask", "reason": "it writes files"}, "Error: it writes files"),
            ({"kind": "deny", "reason": "no"}, "Error: no"),
            ({"kind": "allow"}, "echo 1"),
        ],
    )
    async def test_policy_answers(self, bench, answer, text):
        bench.tools.register(echo)

        @bench.on("tools/pre-execute")
        async def decide(payload, next):
            return answer

        assert said(await bench.call("echo")) == text

    async def test_a_farther_listener_is_asked_first_and_may_overrule(self, bench):
        bench.tools.register(echo)
        order = []

        async def runtime_wide(payload, next):
            order.append("runtime")
            answer = await next()
            return Deny("not here") if payload.agent == "agent" else answer

        bench.runtime_hooks.on("tools/pre-execute", runtime_wide)

        @bench.on("tools/pre-execute")
        async def own(payload, next):
            order.append("agent")
            return await next()

        assert said(await bench.call("echo")) == "Error: not here"
        assert order == ["runtime", "agent"]

    async def test_an_answer_that_is_no_decision_is_a_final_error(self, bench):
        bench.tools.register(echo)

        @bench.on("tools/pre-execute")
        async def confused(payload, next):
            return True

        assert code(await bench.call("echo")) == "INVALID_DECISION"

    async def test_a_guard_denies_what_policy_allows(self, bench):
        bench.tools.register(echo)
        bench.tools.guard(lambda call: f"{call.name} is closed" if call.arguments["x"] > 1 else None)
        assert said(await bench.call("echo", {"x": 1})) == "echo 1"
        outcome = await bench.call("echo", {"x": 2})
        assert (said(outcome), outcome.error) == ("Error: echo is closed", None)

    async def test_guards_are_asked_farthest_first_and_only_of_allowed_calls(self, bench):
        bench.tools.register(echo)
        asked = []
        bench.tools.guard(lambda call: asked.append("agent"))
        bench.runtime.guard(lambda call: asked.append("runtime"))
        await bench.call("echo")
        assert asked == ["runtime", "agent"]

        @bench.on("tools/pre-execute")
        async def deny(payload, next):
            return {"kind": "deny", "reason": "no"}

        await bench.call("echo")
        assert asked == ["runtime", "agent"]

    @pytest.mark.parametrize("answer", [None, False])
    async def test_a_guard_without_objection_lets_the_call_run(self, bench, answer):
        bench.tools.register(echo)
        bench.tools.guard(lambda call: answer)
        assert not (await bench.call("echo")).is_error

    async def test_a_guard_that_fails_or_answers_nonsense_is_a_final_error(self, bench):
        bench.tools.register(echo)
        judged = []

        @bench.on("tools/post-execute")
        async def judge(payload, next):
            judged.append(payload)
            return await next()

        remove = bench.tools.guard(lambda call: 1 / 0)
        assert said(await bench.call("echo")) == "Error: division by zero"
        remove()
        bench.tools.guard(lambda call: 1)
        assert code(await bench.call("echo")) == "INVALID_DECISION"
        assert judged == []


class TestExceptionsOfListeners:
    @pytest.mark.parametrize(
        ("point", "judged"), [("tools/pre-execute", False), ("tools/execute", False), ("tools/post-execute", True)]
    )
    async def test_they_are_final_errors(self, bench, point, judged):
        bench.tools.register(echo)
        seen = []

        @bench.on("tools/post-execute")
        async def judge(payload, next):
            seen.append(payload.outcome)
            return await next()

        @bench.on(point)
        async def explode(payload, next):
            raise RuntimeError("pre exploded")

        outcome = await bench.call("echo")
        assert (said(outcome), outcome.error, outcome.is_error) == ("Error: pre exploded", None, True)
        assert bool(seen) is judged
        assert bench.results == [outcome]

    async def test_a_failure_of_the_body_still_reaches_post_execute(self, bench):
        @tool
        async def explode() -> str:
            """Explode."""
            raise RuntimeError("exploded")

        bench.tools.register(explode)
        seen = []

        @bench.on("tools/post-execute")
        async def judge(payload, next):
            seen.append(said(payload.outcome))
            return await next()

        await bench.call("explode")
        assert seen == ["Error: exploded"]

    async def test_a_failing_observer_of_results_is_contained(self, bench, caplog):
        bench.tools.register(echo)
        bench.hooks.on("tools/result", lambda payload: 1 / 0)
        with caplog.at_level(logging.CRITICAL):
            assert said(await bench.call("echo")) == "echo 1"


class TestWrappers:
    async def test_it_may_replace_the_outcome(self, bench):
        bench.tools.register(echo)

        @bench.on("tools/execute")
        async def shout(payload, next):
            outcome = await next()
            return replace(outcome, content=[text_block(outcome.value.upper())])

        assert said(await bench.call("echo")) == "ECHO 1"

    async def test_it_may_try_again(self, bench):
        attempts = []

        @tool
        def flaky() -> str:
            """Fail once."""
            attempts.append(1)
            current_call().attach_context(f"attempt {len(attempts)}")
            if len(attempts) == 1:
                raise RuntimeError("busy")
            return "fine"

        @bench.on("tools/execute")
        async def retry(payload, next):
            outcome = await next()
            return await next() if outcome.is_error else outcome

        bench.tools.register(flaky)
        outcome = await bench.call("flaky")
        assert said(outcome) == "fine"
        assert [message.text for message in outcome.contexts] == ["attempt 1", "attempt 2"]

    @pytest.mark.parametrize("aborted", ["first", "second", "turn"])
    async def test_every_narrowed_signal_and_the_turns_own_reach_the_body(self, bench, aborted):
        signals = {"first": CancelSignal(), "second": CancelSignal(), "turn": bench.signal}

        @tool
        async def wait() -> str:
            """Wait for the abort."""
            signals[aborted].cancel("because")
            await current_call().signal.wait()
            return str(current_call().signal.reason)

        @bench.on("tools/execute")
        async def first(payload, next):
            return await next(signal=signals["first"])

        @bench.on("tools/execute")
        async def second(payload, next):
            outcome = await next(signal=signals["second"])
            assert (code(outcome), payload.signal.aborted) == ("ABORTED", aborted != "second")
            return outcome

        @bench.on("tools/execute")
        async def third(payload, next):
            return await next()

        bench.tools.register(wait)
        with anyio.fail_after(5):
            assert code(await bench.call("wait")) == "ABORTED"
        assert [signal._callbacks for signal in signals.values()] == [[], [], []]
        assert bench.signal.aborted is (aborted == "turn")

    async def test_a_signal_that_is_aborted_already_keeps_the_body_from_running(self, bench):
        bench.tools.register(echo)
        done = CancelSignal()
        done.cancel()

        @bench.on("tools/execute")
        async def narrow(payload, next):
            return await next(signal=done)

        assert code(await bench.call("echo")) == "ABORTED_BEFORE_DISPATCH"

    async def test_an_answer_that_is_no_outcome_is_a_final_error(self, bench):
        bench.tools.register(echo)

        @bench.on("tools/execute")
        async def confused(payload, next):
            await next()

        assert code(await bench.call("echo")) == "INVALID_DECISION"


async def test_contexts_come_from_the_body_then_wrappers_then_post_execute(bench):
    @tool
    async def talk() -> str:
        """Talk."""
        current_call().attach_context("body")
        current_call().attach_context(user_message("body too", id="m1"))
        return "ok"

    @bench.on("tools/execute")
    async def wrap(payload, next):
        payload.attach_context("wrapper")
        outcome = await next()
        return replace(outcome, contexts=[*outcome.contexts, user_message("authored")])

    @bench.on("tools/post-execute")
    async def judge(payload, next):
        return Accept(contexts=[{"role": "user", "content": [text_block("post")]}])

    bench.tools.register(talk)
    outcome = await bench.call("talk")
    assert [message.text for message in outcome.contexts] == ["body", "body too", "wrapper", "authored", "post"]
    assert outcome.contexts[1].id == "m1"
    assert all(message.id and message.source for message in outcome.contexts)


async def test_a_body_concludes_the_turn_by_a_success_only(bench):
    @tool
    async def finish(ok: bool) -> str:
        """Finish."""
        current_call().conclude_turn()
        if not ok:
            raise RuntimeError("not yet")
        return "done"

    bench.tools.register(finish)
    assert (await bench.call("finish", {"ok": True})).concludes_turn
    assert not (await bench.call("finish", {"ok": False})).concludes_turn


class TestArgumentsAndAbort:
    @pytest.mark.parametrize("arguments", [{"x": float("nan")}, {"x": object()}, {1: 2}, {"x": (1,)}])
    async def test_arguments_that_are_no_json_are_refused_even_after_an_abort(self, bench, arguments):
        bench.tools.register(echo)
        bench.signal.cancel()
        outcome = await bench.call("echo", arguments)
        assert said(outcome) == "Error: tool execution arguments must be losslessly JSON-serializable"
        assert outcome.error is None

    async def test_listeners_see_frozen_arguments(self, bench):
        bench.tools.register(echo)
        given = {"x": 1}

        @bench.on("tools/pre-execute")
        async def meddle(payload, next):
            with pytest.raises(TypeError):
                payload.call.arguments["x"] = 2
            given["x"] = 3
            return await next()

        assert said(await bench.call("echo", given)) == "echo 1"

    async def test_a_call_after_the_abort_meets_no_policy_and_is_told_once(self, bench):
        stages = []
        bench.tools.register(echo)
        for point in ("tools/pre-execute", "tools/execute", "tools/post-execute"):

            @bench.on(point)
            async def stage(payload, next, point=point):
                stages.append(point)
                return await next()

        bench.signal.cancel()
        outcome = await bench.call("echo")
        assert (said(outcome), outcome.error) == ("Error: tool call aborted before dispatch", ABORTED_BEFORE_DISPATCH)
        assert stages == []
        assert bench.results == [outcome]

    async def test_raw_text_is_shown_to_policy_and_never_to_the_body(self, bench):
        bench.tools.register(echo)
        seen = []

        @bench.on("tools/pre-execute")
        async def look(payload, next):
            seen.append(payload.call.arguments)
            return await next()

        outcome = await bench.call("echo", "not json")
        assert seen == ["not json"]
        assert said(outcome) == "Error: the arguments of echo must be a JSON object, got 'not json'"
        assert outcome.error == {"name": "ToolArgumentsError", "code": "INVALID_ARGUMENTS"}

    async def test_arguments_that_were_cut_are_told_so(self, bench):
        bench.tools.register(echo)
        outcome = await bench.call("echo", '{"x": 1')
        assert said(outcome).startswith("Error: the arguments of echo were cut off before their end or are malformed")
