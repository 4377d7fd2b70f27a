"""What happens to an outcome after the body: the check of its value, the judgement, the final content."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from nbagent import tool
from nbagent.errors import ToolError
from nbagent.tools import ToolOutcome, current_call
from nbagent.tools.points import Accept, Block
from nbagent.types.messages import text_block
from tests.tools.conftest import code, said

pytestmark = pytest.mark.anyio


@tool
async def echo(x: int = 1) -> str:
    """Say it again."""
    return f"echo {x}"


class TestPostExecute:
    async def judge_with(self, bench, answer, body=echo):
        bench.tools.register(body)

        @bench.on("tools/post-execute")
        async def judge(payload, next):
            return answer

        return await bench.call(body.name)

    @pytest.mark.parametrize("content", ["short", [text_block("short")]])
    async def test_new_content_keeps_the_value(self, bench, content):
        outcome = await self.judge_with(bench, {"kind": "accept", "content": content})
        assert (said(outcome), outcome.value, outcome.is_error) == ("short", "echo 1", False)

    async def test_a_new_value_is_made_into_content_anew(self, bench):
        @tool
        def count() -> list[int]:
            """Count."""
            return [1, 2, 3]

        outcome = await self.judge_with(bench, Accept(value=[1]), count)
        assert (said(outcome), outcome.value) == ("[1]", [1])

    async def test_a_new_value_must_fit_what_the_tool_declares(self, bench):
        outcome = await self.judge_with(bench, {"kind": "accept", "value": 5})
        assert said(outcome) == 'Error: tool "echo" returned invalid output: should be a valid string, got 5'
        assert outcome.error == {"name": "ToolOutputError", "code": "INVALID_TOOL_OUTPUT"}

    async def test_content_and_value_together_are_refused(self, bench):
        outcome = await self.judge_with(bench, Accept(content="a", value="b"))
        assert said(outcome) == "Error: tools/post-execute cannot replace both content and value"

    async def test_the_value_of_a_failure_cannot_be_replaced(self, bench):
        @tool
        async def explode() -> str:
            """Explode."""
            current_call().attach_context("lost")
            raise RuntimeError("exploded")

        outcome = await self.judge_with(bench, Accept(value="fine"), explode)
        assert said(outcome) == "Error: tools/post-execute cannot replace the value of a failed result"
        assert outcome.contexts == ()

    async def test_the_content_of_a_failure_can(self, bench):
        @tool
        async def explode() -> str:
            """Explode."""
            raise ToolError("exploded", code="BOOM")

        outcome = await self.judge_with(bench, Accept(content="try another way"), explode)
        assert (said(outcome), outcome.is_error, code(outcome)) == ("try another way", True, "BOOM")

    @pytest.mark.parametrize("feedback", ["not so", [text_block("not so")]])
    async def test_a_block_is_a_failure_with_its_own_contexts_only(self, bench, feedback):
        @tool
        async def talk() -> str:
            """Talk."""
            current_call().attach_context("of the body")
            return "ok"

        outcome = await self.judge_with(
            bench, {"kind": "block", "feedback": feedback, "contexts": ["of the block"]}, talk
        )
        assert (said(outcome), outcome.is_error, outcome.error, outcome.value) == ("not so", True, None, None)
        assert [message.text for message in outcome.contexts] == ["of the block"]

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            ("yes", "INVALID_DECISION"),
            ({"kind": "block"}, "INVALID_DECISION"),
            ({"kind": "accept", "content": [{"text": "no type"}]}, "INVALID_CONTENT"),
            ({"kind": "accept", "content": [{"type": "text", "text": 3}]}, "INVALID_CONTENT"),
            ({"kind": "accept", "content": 3}, "INVALID_CONTENT"),
            ({"kind": "accept", "contexts": [{"role": "assistant", "content": "x"}]}, "INVALID_CONTEXT"),
            (Block("no", [3]), "INVALID_CONTEXT"),
        ],
    )
    async def test_an_answer_that_is_no_decision_is_a_final_error(self, bench, answer, expected):
        outcome = await self.judge_with(bench, answer)
        assert code(outcome) == expected
        assert outcome.is_error

    async def test_content_that_is_no_json_is_a_final_error(self, bench):
        outcome = await self.judge_with(bench, {"kind": "accept", "content": [{"type": "image", "data": object()}]})
        assert said(outcome) == "Error: object is not a JSON value"


class TestFinalContent:
    async def outcome_of(self, bench, final_content, **arguments):
        @tool(final_content=final_content)
        async def echo(x: int = 1) -> str:
            """Say it again."""
            return f"echo {x}"

        bench.tools.register(echo)
        return await bench.call("echo", arguments)

    async def test_it_makes_the_content_once_after_everything_else(self, bench):
        made = []

        @bench.on("tools/post-execute")
        async def judge(payload, next):
            return {"kind": "accept", "content": "judged"}

        def final(outcome):
            made.append(said(outcome))
            return f"<{said(outcome)}>"

        outcome = await self.outcome_of(bench, final)
        assert (said(outcome), outcome.value, made) == ("<judged>", "echo 1", ["judged"])

    async def test_it_sees_failures_too_and_cannot_mend_them(self, bench):
        outcome = await self.outcome_of(bench, lambda outcome: "never mind", x="many")
        assert (said(outcome), outcome.is_error, code(outcome)) == ("never mind", True, "INVALID_ARGUMENTS")

    async def test_none_keeps_the_content(self, bench):
        assert said(await self.outcome_of(bench, lambda outcome: None)) == "echo 1"

    @pytest.mark.parametrize(
        ("final", "text"), [(lambda outcome: 1 / 0, "division by zero"), (lambda outcome: 3, "content must be")]
    )
    async def test_one_that_fails_is_an_error(self, bench, final, text):
        outcome = await self.outcome_of(bench, final)
        assert said(outcome).startswith(f"Error: {text}")
        assert outcome.is_error

    async def test_it_is_that_of_the_tool_when_the_call_began(self, bench):
        remove = bench.tools.register(tool(final_content=lambda outcome: "the old one")(echo.function))
        execution = bench.execution("echo")
        remove()
        await execution.prepare()
        await execution.dispatch()
        outcome = await execution.finalize()
        assert (said(outcome), code(outcome)) == ("the old one", "UNKNOWN_TOOL")


class TestOutput:
    @dataclass
    class Point:
        x: int
        y: int = 0

    class Weather(BaseModel):
        city: str
        degrees: float = 0.0

    async def outcome_of(self, bench, annotation, value):
        def body():
            """Give."""
            return value

        body.__annotations__["return"] = annotation
        bench.tools.register(tool(body))
        return await bench.call("body")

    @pytest.mark.parametrize(
        ("annotation", "value", "text"),
        [
            (int, 5, "5"),
            (list[int], [1, 2], "[1,2]"),
            (Point, Point(1, 2), '{"x":1,"y":2}'),
            (Point, {"x": 1}, '{"x":1,"y":0}'),
            (Weather, {"city": "Oslo"}, '{"city":"Oslo","degrees":0.0}'),
            (Weather | None, None, "(no output)"),
            (dict[str, Point], {"a": Point(1)}, '{"a":{"x":1,"y":0}}'),
            (float, float("nan"), "NaN"),
            (None, "said anyway", "said anyway"),
            (object, "anything", "anything"),
        ],
    )
    async def test_what_fits_the_annotation_is_a_success(self, bench, annotation, value, text):
        outcome = await self.outcome_of(bench, annotation, value)
        assert (said(outcome), outcome.is_error) == (text, False)

    @pytest.mark.parametrize(
        ("annotation", "value", "fault"),
        [
            (int, "five", 'should be a valid integer, got "five"'),
            (str, None, "should be a valid string, got null"),
            (list[int], [1, "b"], '[1]: should be a valid integer, got "b"'),
            (Weather, {}, "city: is required"),
        ],
    )
    async def test_what_does_not_is_told(self, bench, annotation, value, fault):
        outcome = await self.outcome_of(bench, annotation, value)
        assert said(outcome) == f'Error: tool "body" returned invalid output: {fault}'
        assert outcome.error == {"name": "ToolOutputError", "code": "INVALID_TOOL_OUTPUT"}

    async def test_a_class_that_pydantic_does_not_know_is_shown(self, bench):
        class Frame:
            def __str__(self):
                return "a  b\n1  2"

        assert said(await self.outcome_of(bench, Frame, Frame())) == "a  b\n1  2"

    async def test_a_body_may_make_its_own_outcome(self, bench):
        made = ToolOutcome([{"type": "image", "mediaType": "image/png", "data": "aGk="}])
        assert await self.outcome_of(bench, ToolOutcome, made) == made

    async def test_its_content_may_be_a_text(self, bench):
        made = await self.outcome_of(bench, ToolOutcome, ToolOutcome("plain"))
        assert made.content == [text_block("plain")]

    @pytest.mark.parametrize(
        "made",
        [
            ToolOutcome(3),
            ToolOutcome([{"type": "image", "data": object()}]),
            ToolOutcome("x", meta={"at": object()}),
            ToolOutcome("x", contexts=[7]),
            ToolOutcome("x", contexts=None),
        ],
    )
    async def test_one_that_no_log_can_hold_is_an_error_of_the_call(self, bench, made):
        assert (await self.outcome_of(bench, ToolOutcome, made)).is_error
