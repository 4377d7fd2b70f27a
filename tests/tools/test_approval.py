"""Asking somebody whether a call may run."""

from __future__ import annotations

import asyncio
import functools

import anyio
import pytest

from nbagent import tool
from nbagent.errors import InputError, LifecycleError
from nbagent.tools import Approval
from nbagent.tools.points import Ask
from tests.tools.conftest import ABORTED_BEFORE_DISPATCH, code, said

pytestmark = pytest.mark.anyio


@tool
async def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@pytest.fixture
def asking(bench):
    """A bench whose policy asks about every call."""
    bench.tools.register(delete)

    @bench.on("tools/pre-execute")
    async def ask(payload, next):
        return Ask("it cannot be undone")

    return bench


def answers(value):
    async def service(request):
        return value

    return service


ALLOWED = "deleted /data/x"
REJECTED = 'Error: the user rejected tool "delete"'
CANCELLED = 'Error: approval for tool "delete" was cancelled'
UNAVAILABLE = 'Error: tool "delete" requires approval, but no approval channel is available'


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Approval.ALLOWED_ONCE, ALLOWED),
        ("allowed-once", ALLOWED),
        (Approval.REJECTED, REJECTED),
        ("rejected", REJECTED),
        (Approval.CANCELLED, CANCELLED),
        ("cancelled", CANCELLED),
        (Approval.UNAVAILABLE, UNAVAILABLE),
        ("unavailable", UNAVAILABLE),
    ],
)
async def test_every_answer_has_its_text(asking, answer, told):
    asking.tools.approve_with(answers(answer))
    outcome = await asking.call("delete", {"path": "/data/x"})
    assert (said(outcome), outcome.error, outcome.is_error) == (told, None, told != ALLOWED)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (None, 'Error: tool "delete" requires approval (not yet supported)'),
        ("it cannot be undone", "Error: it cannot be undone"),
    ],
)
@pytest.mark.parametrize("agent", ["agent", None])
async def test_without_a_service_the_call_is_denied(bench, reason, told, agent):
    bench.tools.register(delete)

    @bench.on("tools/pre-execute")
    async def ask(payload, next):
        return Ask(reason)

    execution = bench.execution("delete", {"path": "/data/x"}, agent=agent)
    await execution.prepare()
    assert execution.decided
    assert said(await execution.finalize()) == told


async def test_a_call_without_an_agent_is_nobodys_to_approve(asking):
    asking.tools.approve_with(answers("allowed-once"))
    execution = asking.execution("delete", {"path": "/data/x"}, agent=None)
    await execution.prepare()
    told = 'Error: tool "delete" requires approval, but the call has no agent to route it through'
    assert said(await execution.finalize()) == told


async def test_the_service_is_told_agent_frozen_call_reason_and_signal(asking):
    seen = []

    async def service(request):
        seen.append(request)
        return "allowed-once"

    asking.tools.approve_with(service)
    await asking.call("delete", {"path": "/data/x"})
    request = seen[0]
    assert (request.agent, request.call.name, request.reason) == ("agent", "delete", "it cannot be undone")
    assert request.call.arguments == {"path": "/data/x"}
    assert request.signal is asking.signal
    with pytest.raises(AttributeError):
        request.reason = "none"


async def test_a_guard_overrules_an_approval_and_is_not_asked_after_a_rejection(asking):
    guarded = []
    asking.tools.guard(lambda call: guarded.append(call.name) or "not on this machine")
    remove = asking.tools.approve_with(answers("allowed-once"))
    assert said(await asking.call("delete", {"path": "/data/x"})) == "Error: not on this machine"
    remove()
    asking.tools.approve_with(answers("rejected"))
    assert said(await asking.call("delete", {"path": "/data/x"})) == REJECTED
    assert guarded == ["delete"]


async def test_a_rejected_call_reaches_post_execute_and_never_its_body(asking):
    judged = []

    @asking.on("tools/post-execute")
    async def judge(payload, next):
        judged.append(said(payload.outcome))
        return await next()

    @asking.on("tools/execute")
    async def never(payload, next):
        raise AssertionError

    asking.tools.approve_with(answers("rejected"))
    await asking.call("delete", {"path": "/data/x"})
    assert judged == [REJECTED]


class TestWhoDecides:
    async def test_the_nearest_layer_and_there_the_last_registered(self, asking):
        asking.runtime.approve_with(answers("unavailable"))
        assert said(await asking.call("delete", {"path": "/data/x"})) == UNAVAILABLE
        remove_first = asking.tools.approve_with(answers("rejected"))
        remove_second = asking.tools.approve_with(answers("cancelled"))
        assert said(await asking.call("delete", {"path": "/data/x"})) == CANCELLED
        remove_second()
        remove_second()
        assert said(await asking.call("delete", {"path": "/data/x"})) == REJECTED
        remove_first()
        assert said(await asking.call("delete", {"path": "/data/x"})) == UNAVAILABLE

    @pytest.mark.parametrize("service", [lambda request: "allowed-once", "yes", None])
    def test_only_an_async_function_can(self, bench, service):
        with pytest.raises(InputError) as refused:
            bench.tools.approve_with(service)
        assert refused.value.code == "INVALID_LISTENER"

    async def test_objects_and_partials_are_functions_too(self, asking):
        class Desk:
            async def __call__(self, request):
                return "rejected"

        async def service(answer, request):
            return answer

        asking.tools.approve_with(Desk())
        assert said(await asking.call("delete", {"path": "/data/x"})) == REJECTED
        asking.tools.approve_with(functools.partial(service, "cancelled"))
        assert said(await asking.call("delete", {"path": "/data/x"})) == CANCELLED

    def test_a_closed_layer_has_none_and_takes_none(self, bench):
        bench.tools.approve_with(answers("allowed-once"))
        bench.tools.close()
        assert bench.tools.approval_service is None
        with pytest.raises(LifecycleError):
            bench.tools.approve_with(answers("allowed-once"))


class TestServicesThatFail:
    async def test_a_raise_is_a_final_error(self, asking):
        async def service(request):
            raise ConnectionError("nobody at the desk")

        @asking.on("tools/post-execute")
        async def never(payload, next):
            raise AssertionError

        asking.tools.approve_with(service)
        assert said(await asking.call("delete", {"path": "/data/x"})) == "Error: nobody at the desk"

    @pytest.mark.parametrize("answer", [True, "yes", None, "ALLOWED_ONCE", ["allowed-once"], {"kind": "allow"}])
    async def test_what_is_no_answer_never_allows(self, asking, answer):
        asking.tools.approve_with(answers(answer))
        outcome = await asking.call("delete", {"path": "/data/x"})
        assert code(outcome) == "INVALID_DECISION"
        assert "allowed-once, rejected, cancelled, unavailable" in said(outcome)

    @pytest.mark.parametrize("anyio_backend", ["asyncio"])
    async def test_a_wait_that_something_else_cancels_is_a_cancelled_question(self, asking, anyio_backend):
        async def service(request):
            view = asyncio.get_running_loop().create_future()
            view.cancel()
            return await view

        asking.tools.approve_with(service)
        assert said(await asking.call("delete", {"path": "/data/x"})) == CANCELLED


class TestAborts:
    async def test_a_service_that_heeds_the_abort(self, asking):
        async def service(request):
            await request.signal.wait()
            return "cancelled"

        assert await self.aborted_while_asking(asking, service) == ABORTED_BEFORE_DISPATCH

    async def test_a_service_that_does_not_is_ended_soon(self, asking):
        async def service(request):
            await anyio.sleep(60)

        assert await self.aborted_while_asking(asking, service) == ABORTED_BEFORE_DISPATCH

    async def test_an_approval_that_comes_too_late(self, asking):
        async def service(request):
            await request.signal.wait()
            return "allowed-once"

        assert await self.aborted_while_asking(asking, service) == ABORTED_BEFORE_DISPATCH

    @pytest.mark.parametrize("anyio_backend", ["asyncio"])
    async def test_a_service_whose_wait_is_cancelled_by_it(self, asking, anyio_backend):
        async def service(request):
            view = asyncio.get_running_loop().create_future()
            request.signal.subscribe(view.cancel)
            return await view

        assert await self.aborted_while_asking(asking, service) == ABORTED_BEFORE_DISPATCH

    async def test_a_rejection_stands(self, asking):
        async def service(request):
            await request.signal.wait()
            return "rejected"

        assert await self.aborted_while_asking(asking, service) is None

    async def test_nobody_is_asked_after_the_abort(self, bench):
        bench.tools.register(delete)

        @bench.on("tools/pre-execute")
        async def ask(payload, next):
            bench.signal.cancel()
            return Ask()

        async def service(request):
            raise AssertionError

        bench.tools.approve_with(service)
        outcome = await bench.call("delete", {"path": "/data/x"})
        assert outcome.error == ABORTED_BEFORE_DISPATCH

    async def aborted_while_asking(self, bench, service):
        bench.tools.approve_with(service)

        async def cancel():
            await anyio.sleep(0.01)
            bench.signal.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            with anyio.fail_after(2):
                outcome = await bench.call("delete", {"path": "/data/x"})
        return outcome.error
