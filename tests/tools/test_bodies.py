"""Where bodies run, and what becomes of anything they do."""

from __future__ import annotations

import contextvars
import functools
import threading
import time

import anyio
import pytest

from nbagent import tool
from nbagent.errors import LifecycleError
from nbagent.tools import current_call
from tests.tools.conftest import code, said

pytestmark = pytest.mark.anyio

place = contextvars.ContextVar("place", default="nowhere")


async def test_a_sync_body_runs_off_the_loop_with_its_callers_context(bench):
    @tool
    def where() -> str:
        """Say where."""
        return f"{threading.current_thread() is threading.main_thread()} {place.get()} {current_call().call_id}"

    bench.tools.register(where)
    place.set("here")
    assert said(await bench.call("where")) == "False here c1"


async def test_an_async_body_runs_on_the_loop(bench):
    @tool
    async def where() -> str:
        """Say where."""
        return f"{threading.current_thread() is threading.main_thread()} {current_call().call_id}"

    bench.tools.register(where)
    assert said(await bench.call("where")) == "True c1"


async def test_the_loop_goes_on_while_sync_bodies_work_side_by_side(bench):
    together = threading.Barrier(3, timeout=5)

    @tool
    def work() -> str:
        """Work."""
        together.wait()
        return "ok"

    bench.tools.register(work)
    ticks = []

    async def tick():
        while True:
            ticks.append(time.monotonic())
            await anyio.sleep(0.001)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        async with anyio.create_task_group() as bodies:
            for _ in range(3):
                bodies.start_soon(bench.call, "work")
        tasks.cancel_scope.cancel()
    assert [said(outcome) for outcome in bench.results] == ["ok"] * 3
    assert ticks


async def test_a_plain_function_that_answers_an_awaitable_is_awaited_on_the_loop(bench):
    async def inner(x):
        await anyio.sleep(0.001)
        return f"{x} {threading.current_thread() is threading.main_thread()}"

    def outer(x: int):
        """Call another."""
        return inner(x)

    bench.tools.register(outer)
    assert said(await bench.call("outer", {"x": 1})) == "1 True"


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (ValueError("wrong"), "wrong"),
        (ValueError(), "ValueError"),
        (KeyError("price"), "KeyError: 'price'"),
        (SystemExit(2), "SystemExit: 2"),
        (ExceptionGroup("two things", [ValueError("a"), OSError("b")]), "two things [a; b]"),
    ],
)
async def test_whatever_a_body_raises_is_a_result(bench, kind, failure, text):
    def sync_body() -> str:
        raise failure

    async def async_body() -> str:
        raise failure

    bench.tools.register(tool(name="body")(sync_body if kind == "sync" else async_body))
    outcome = await bench.call("body")
    assert (said(outcome), outcome.is_error) == (f"Error: {text}", True)


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (StopIteration("end"), "end"),
        (StopIteration(), "StopIteration"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit("x"), "GeneratorExit: x"),
    ],
)
async def test_exceptions_that_threads_and_futures_treat_specially_are_results_too(bench, failure, text):
    @tool
    def body() -> str:
        """Raise."""
        raise failure

    bench.tools.register(body)
    assert said(await bench.call("body")) == f"Error: {text}"


async def test_an_exception_that_cannot_be_printed_is_a_result(bench):
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    @tool
    def body() -> str:
        """Raise."""
        raise Silent

    bench.tools.register(body)
    assert said(await bench.call("body")) == "Error: Silent (it has no printable message)"


async def test_a_huge_message_is_cut(bench):
    @tool
    def body() -> str:
        """Raise."""
        raise ValueError("x" * 100_000)

    bench.tools.register(body)
    text = said(await bench.call("body"))
    assert len(text) < 33_000
    assert "characters left out" in text


async def test_a_result_over_the_bound_says_so_for_views(bench):
    @tool
    def body() -> str:
        """Say much."""
        return "x" * 100_000

    bench.tools.register(body)
    outcome = await bench.call("body")
    assert outcome.meta == {"cutFrom": 100_000}
    assert len(outcome.value) == 100_000


def test_outside_a_body_there_is_no_current_call():
    with pytest.raises(LifecycleError) as refusal:
        current_call()
    assert refusal.value.code == "NO_CURRENT_CALL"


@pytest.mark.parametrize("message", [3, {"role": "assistant", "content": "x"}, {"text": "x"}])
async def test_a_context_that_is_no_user_message_fails_the_call(bench, message):
    @tool
    def body() -> str:
        """Attach."""
        current_call().attach_context(message)
        return "ok"

    bench.tools.register(body)
    assert code(await bench.call("body")) == "INVALID_CONTEXT"


class TestMainThread:
    @staticmethod
    def where_tool():
        @tool(thread="main")
        def where() -> str:
            """Say where."""
            return f"{threading.current_thread() is threading.main_thread()} {current_call().call_id}"

        return where

    async def test_a_loop_on_the_main_thread_runs_the_body_itself(self, bench):
        bench.tools.register(self.where_tool())
        assert said(await bench.call("where")) == "True c1"

    async def test_a_runner_gets_the_job_and_the_signal(self, bench):
        given = []

        async def runner(job, signal):
            given.append(signal)
            return await anyio.to_thread.run_sync(job)

        bench.runtime.main_thread = runner
        bench.tools.register(self.where_tool())
        assert said(await bench.call("where")) == "False c1"
        assert given == [bench.signal]

    async def test_without_a_runner_another_thread_cannot(self, bench):
        bench.tools.register(self.where_tool())
        outcomes = []

        def elsewhere():
            outcomes.append(anyio.run(bench.call, "where"))

        await anyio.to_thread.run_sync(elsewhere)
        assert code(outcomes[0]) == "NO_MAIN_THREAD"
        assert said(outcomes[0]) == 'Error: tool "where" must run on the main thread, and nothing runs jobs there'


async def test_methods_objects_and_partials_are_tools(bench):
    class Counter:
        def __init__(self, start):
            self.count = start

        def add(self, by: int) -> int:
            """Add to the counter."""
            self.count += by
            return self.count

        async def __call__(self, by: int) -> int:
            """Add to the counter, on the loop."""
            return self.add(by)

    counter = Counter(1)
    bench.tools.register(counter.add)
    bench.tools.register(tool(name="call_it")(counter))
    bench.tools.register(tool(name="add_two")(functools.partial(counter.add, by=2)))
    assert said(await bench.call("add", {"by": 2})) == "3"
    assert said(await bench.call("call_it", {"by": 2})) == "5"
    assert said(await bench.call("add_two")) == "7"
    descriptions = {each.name: each.description for each in bench.tools.declarations()}
    assert descriptions["add"] == descriptions["add_two"] == "Add to the counter."
    assert descriptions["call_it"] == "Add to the counter, on the loop."


async def test_a_decorated_function_keeps_its_signature(bench):
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return f"logged {function(*args, **kwargs)}"

        return wrapper

    @tool
    @logged
    def double(x: int) -> int:
        """Double it."""
        return 2 * x

    del double._signature._returns  # the wrapper answers a text
    bench.tools.register(double)
    assert double.declaration.parameters["properties"] == {"x": {"type": "integer"}}
