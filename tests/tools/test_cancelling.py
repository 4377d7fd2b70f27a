"""An abort in every phase of a call: what the model reads, what is awaited, what is kept."""

from __future__ import annotations

import asyncio
import threading
import time

import anyio
import pytest

from nbagent import CancelSignal, tool
from nbagent.cancellation import Interrupted
from nbagent.tools import current_call
from nbagent.tools.points import Accept, Deny
from tests.tools.conftest import ABORTED, ABORTED_BEFORE_DISPATCH, code, said

pytestmark = pytest.mark.anyio


@tool
async def echo() -> str:
    """Say it."""
    return "echo"


async def cancel_after(bench, seconds=0.02):
    await anyio.sleep(seconds)
    bench.signal.cancel({"kind": "user"})


async def called_and_cancelled(bench, name, seconds=0.02):
    outcome = None
    started = time.monotonic()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_after, bench, seconds)
            outcome = await bench.call(name)
    return outcome, time.monotonic() - started


def judged(bench):
    seen = []

    @bench.on("tools/post-execute")
    async def judge(payload, next):
        seen.append(code(payload.outcome))
        return await next()

    return seen


class TestInPolicy:
    async def test_a_listener_that_heeds_the_abort(self, bench):
        bench.tools.register(echo)
        seen = judged(bench)

        @bench.on("tools/pre-execute")
        async def wait(payload, next):
            await payload.signal.wait()
            return await next()

        outcome, _ = await called_and_cancelled(bench, "echo")
        assert (said(outcome), outcome.error) == ("Error: tool call aborted before dispatch", ABORTED_BEFORE_DISPATCH)
        assert seen == ["ABORTED_BEFORE_DISPATCH"]

    async def test_a_listener_that_does_not_is_ended_soon(self, bench):
        bench.tools.register(echo)
        seen = judged(bench)

        @bench.on("tools/pre-execute")
        async def hang(payload, next):
            await anyio.sleep(60)

        outcome, took = await called_and_cancelled(bench, "echo")
        assert outcome.error == ABORTED_BEFORE_DISPATCH
        assert seen == ["ABORTED_BEFORE_DISPATCH"]
        assert took < 0.4

    async def test_a_denial_stands(self, bench):
        bench.tools.register(echo)

        @bench.on("tools/pre-execute")
        async def deny(payload, next):
            await payload.signal.wait()
            return Deny("too late anyway")

        outcome, _ = await called_and_cancelled(bench, "echo")
        assert (said(outcome), outcome.error) == ("Error: too late anyway", None)

    async def test_a_guard_that_aborts(self, bench):
        bench.tools.register(echo)
        bench.tools.guard(lambda call: bench.signal.cancel() and None)
        assert (await bench.call("echo")).error == ABORTED_BEFORE_DISPATCH

    async def test_between_policy_and_body(self, bench):
        bench.tools.register(echo)
        execution = bench.execution("echo")
        await execution.prepare()
        assert not execution.decided
        bench.signal.cancel()
        await execution.dispatch()
        assert (await execution.finalize()).error == ABORTED_BEFORE_DISPATCH

    async def test_a_prepared_call_that_is_never_dispatched(self, bench):
        bench.tools.register(echo)
        execution = bench.execution("echo")
        await execution.prepare()
        bench.signal.cancel()
        assert (await execution.finalize()).error == ABORTED_BEFORE_DISPATCH


class TestInWrappers:
    async def test_before_the_body(self, bench):
        bench.tools.register(echo)

        @bench.on("tools/execute")
        async def wrap(payload, next):
            payload.attach_context("kept")
            bench.signal.cancel()
            return await next()

        outcome = await bench.call("echo")
        assert outcome.error == ABORTED_BEFORE_DISPATCH
        assert [message.text for message in outcome.contexts] == ["kept"]

    async def test_after_the_body(self, bench):
        bench.tools.register(echo)

        @bench.on("tools/execute")
        async def wrap(payload, next):
            outcome = await next()
            bench.signal.cancel()
            return outcome

        assert (await bench.call("echo")).error == ABORTED

    @pytest.mark.parametrize(("before", "error"), [(True, ABORTED_BEFORE_DISPATCH), (False, ABORTED)])
    async def test_one_that_hangs_is_ended_soon(self, bench, before, error):
        bench.tools.register(echo)
        seen = judged(bench)

        @bench.on("tools/execute")
        async def wrap(payload, next):
            outcome = None if before else await next()
            await anyio.sleep(60)
            return outcome

        outcome, took = await called_and_cancelled(bench, "echo")
        assert outcome.error == error
        assert seen == [error["code"]]
        assert took < 0.6

    async def test_one_that_lets_its_own_wait_be_interrupted(self, bench):
        bench.tools.register(echo)

        @bench.on("tools/execute")
        async def wrap(payload, next):
            await payload.signal.run(lambda: anyio.sleep(60))
            return await next()

        outcome, _ = await called_and_cancelled(bench, "echo")
        assert outcome.error == ABORTED_BEFORE_DISPATCH

    async def test_a_time_limit_ends_the_body_and_the_wrapper_says_so(self, bench):
        @tool
        async def slow() -> str:
            """Take long."""
            await anyio.sleep(60)
            return "late"

        bench.tools.register(slow)

        @bench.on("tools/execute")
        async def limit(payload, next):
            watch = CancelSignal()
            async with anyio.create_task_group() as tasks:

                async def ring():
                    await anyio.sleep(0.02)
                    watch.cancel()

                tasks.start_soon(ring)
                outcome = await next(signal=watch)
                tasks.cancel_scope.cancel()
            if code(outcome) == "ABORTED":
                raise RuntimeError("slow took longer than 20 ms")
            return outcome

        with anyio.fail_after(5):
            outcome = await bench.call("slow")
        assert said(outcome) == "Error: slow took longer than 20 ms"
        assert not bench.signal.aborted


class TestInAsyncBodies:
    async def outcome_of(self, bench, body):
        bench.tools.register(tool(name="body")(body))
        return await called_and_cancelled(bench, "body")

    async def test_one_that_returns_on_the_abort(self, bench):
        seen = judged(bench)

        async def body() -> str:
            call = current_call()
            call.attach_context("kept")
            call.conclude_turn()
            await call.signal.wait()
            return "partial"

        outcome, took = await self.outcome_of(bench, body)
        assert (said(outcome), outcome.error) == ("Error: tool call aborted", ABORTED)
        assert [message.text for message in outcome.contexts] == ["kept"]
        assert (outcome.value, outcome.concludes_turn) == (None, False)
        assert seen == ["ABORTED"]
        assert took < 0.1

    async def test_one_that_does_not_heed_it_is_cancelled_soon(self, bench):
        async def body() -> str:
            current_call().attach_context("kept")
            await anyio.sleep(60)
            return "late"

        outcome, took = await self.outcome_of(bench, body)
        assert outcome.error == ABORTED
        assert [message.text for message in outcome.contexts] == ["kept"]
        assert took < 0.4

    async def test_one_that_cleans_up_is_awaited(self, bench):
        cleaned = []

        async def body() -> str:
            try:
                await anyio.sleep(60)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.2)
                    cleaned.append(True)
            return "late"

        outcome, _ = await self.outcome_of(bench, body)
        assert (outcome.error, cleaned) == (ABORTED, [True])

    async def test_one_that_swallows_the_cancel_is_awaited(self, bench):
        swallowed = []

        async def body() -> str:
            for _ in range(3):
                try:
                    await anyio.sleep(60)
                except anyio.get_cancelled_exc_class():
                    swallowed.append(True)
            return "at last"

        outcome, _ = await self.outcome_of(bench, body)
        assert (outcome.error, len(swallowed)) == (ABORTED, 3)

    async def test_its_own_failure_is_not_overwritten(self, bench):
        async def body() -> str:
            await current_call().signal.wait()
            raise RuntimeError("could not undo")

        outcome, _ = await self.outcome_of(bench, body)
        assert (said(outcome), outcome.error) == ("Error: could not undo", None)

    async def test_a_failure_in_its_clean_up_is_not_overwritten(self, bench):
        async def body() -> str:
            try:
                await anyio.sleep(60)
            finally:
                raise RuntimeError("could not undo")

        outcome, _ = await self.outcome_of(bench, body)
        assert (said(outcome), outcome.error) == ("Error: could not undo", None)

    async def test_one_that_uses_the_signal_itself(self, bench):
        async def body() -> str:
            try:
                await current_call().signal.run(lambda: anyio.sleep(60))
            except Interrupted:
                return "stopped"
            return "late"

        outcome, took = await self.outcome_of(bench, body)
        assert (outcome.error, took < 0.1) == (ABORTED, True)

    async def test_a_cancel_from_outside_goes_through(self, bench):
        @tool
        async def body() -> str:
            """Wait."""
            await anyio.sleep(60)
            return "late"

        bench.tools.register(body)
        with anyio.move_on_after(0.02) as scope:
            await bench.call("body")
        assert scope.cancelled_caught
        assert bench.results == []


class TestInSyncBodies:
    async def test_one_is_awaited_to_its_end(self, bench):
        released = threading.Event()

        @tool
        def work() -> str:
            """Work."""
            current_call().attach_context("kept")
            released.wait(5)
            time.sleep(0.1)
            released.clear()
            return "done"

        bench.tools.register(work)
        bench.signal.subscribe(released.set)
        outcome, _ = await called_and_cancelled(bench, "work")
        assert outcome.error == ABORTED
        assert [message.text for message in outcome.contexts] == ["kept"]
        assert not released.is_set()

    async def test_one_may_look_at_the_signal(self, bench):
        @tool
        def work() -> str:
            """Work."""
            deadline = time.monotonic() + 5
            while not current_call().signal.aborted and time.monotonic() < deadline:
                time.sleep(0.005)
            raise RuntimeError("gave up")

        bench.tools.register(work)
        outcome, took = await called_and_cancelled(bench, "work")
        assert said(outcome) == "Error: gave up"
        assert took < 1

    async def test_a_cancel_from_outside_waits_for_it(self, bench):
        ended = []

        @tool
        def work() -> str:
            """Work."""
            time.sleep(0.1)
            ended.append(True)
            return "done"

        bench.tools.register(work)
        with anyio.move_on_after(0.02):
            await bench.call("work")
        assert ended == [True]

    async def test_a_wrapper_that_is_ended_waits_for_it(self, bench):
        ended = []

        @tool
        def work() -> str:
            """Work."""
            time.sleep(0.5)
            ended.append(True)
            return "done"

        bench.tools.register(work)

        @bench.on("tools/execute")
        async def wrap(payload, next):
            return await next()

        outcome, _ = await called_and_cancelled(bench, "work")
        assert (outcome.error, ended) == (ABORTED, [True])


class TestInPostExecute:
    async def test_a_success_becomes_aborted_and_its_contexts_are_kept(self, bench):
        bench.tools.register(echo)

        @bench.on("tools/post-execute")
        async def judge(payload, next):
            bench.signal.cancel()
            return Accept(content="new", contexts=["kept"])

        outcome = await bench.call("echo")
        assert (said(outcome), outcome.error) == ("Error: tool call aborted", ABORTED)
        assert [message.text for message in outcome.contexts] == ["kept"]

    async def test_a_listener_that_hangs_is_ended_soon(self, bench):
        @tool
        async def talk() -> str:
            """Talk."""
            current_call().attach_context("kept")
            return "ok"

        bench.tools.register(talk)

        @bench.on("tools/post-execute")
        async def hang(payload, next):
            await anyio.sleep(60)

        outcome, took = await called_and_cancelled(bench, "talk")
        assert outcome.error == ABORTED
        assert [message.text for message in outcome.contexts] == ["kept"]
        assert took < 0.4

    async def test_a_success_that_waited_for_its_turn_becomes_aborted(self, bench):
        bench.tools.register(echo)
        execution = bench.execution("echo")
        await execution.prepare()
        await execution.dispatch()
        bench.signal.cancel()
        outcome = await execution.finalize()
        assert (outcome.error, bench.results) == (ABORTED, [outcome])

    async def test_a_block_stands(self, bench):
        bench.tools.register(echo)

        @bench.on("tools/post-execute")
        async def judge(payload, next):
            bench.signal.cancel()
            return {"kind": "block", "feedback": "not so"}

        outcome = await bench.call("echo")
        assert (said(outcome), outcome.error) == ("not so", None)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
class TestForeignCancels:
    """What an asyncio body awaits may be cancelled while the body is not."""

    async def test_it_is_a_failure_of_the_body(self, bench, anyio_backend):
        @tool
        async def body() -> str:
            """Wait for something that is cancelled."""
            other = asyncio.ensure_future(asyncio.sleep(60))
            other.cancel()
            await other
            return "never"

        bench.tools.register(body)
        outcome = await bench.call("body")
        assert said(outcome) == "Error: something that the tool waited for was cancelled"
        assert not asyncio.current_task().cancelling()

    async def test_during_an_abort_it_is_the_abort(self, bench, anyio_backend):
        @tool
        async def body() -> str:
            """Stop what it started."""
            other = asyncio.ensure_future(asyncio.sleep(60))
            current_call().signal.subscribe(other.cancel)
            await other
            return "never"

        bench.tools.register(body)
        outcome, took = await called_and_cancelled(bench, "body")
        assert (outcome.error, took < 0.1) == (ABORTED, True)

    async def test_cancelling_the_task_itself_goes_through(self, bench, anyio_backend):
        @tool
        async def body() -> str:
            """Wait."""
            await asyncio.sleep(60)
            return "late"

        bench.tools.register(body)
        task = asyncio.ensure_future(bench.call("body"))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
