"""The switch goes one way, the first reason stays, and what is stopped is stopped at once or after its grace."""

from __future__ import annotations

import asyncio
import logging

import anyio
import anyio.lowlevel
import pytest

from nbagent.cancellation import CancelSignal, Interrupted, WaitCancelledError

pytestmark = pytest.mark.anyio


def test_the_first_reason_wins_and_is_the_object_that_was_given():
    signal, reason = CancelSignal(), {"kind": "user"}
    assert signal.cancel(reason)
    assert not signal.cancel("other")
    assert signal.aborted
    assert signal.reason is reason


def test_observers_are_told_once_and_one_that_fails_does_not_keep_it_from_the_others(caplog):
    signal, heard = CancelSignal(), []
    signal.subscribe(lambda: heard.append(1))
    signal.subscribe(lambda: 1 / 0)
    signal.subscribe(lambda: heard.append(2))
    with caplog.at_level(logging.ERROR):
        signal.cancel()
        signal.cancel()
    assert heard == [1, 2]
    assert "ZeroDivisionError" in caplog.text


def test_who_comes_late_is_told_at_once_and_contained_alike(caplog):
    signal, heard = CancelSignal(), []
    signal.cancel()
    signal.subscribe(lambda: heard.append(1))
    with caplog.at_level(logging.ERROR):
        signal.subscribe(lambda: 1 / 0)
    assert heard == [1]
    assert "ZeroDivisionError" in caplog.text


def test_who_unsubscribed_is_not_told_and_unsubscribing_twice_takes_away_one():
    signal, heard = CancelSignal(), []

    def observer():
        heard.append(1)

    unsubscribe = signal.subscribe(observer)
    signal.subscribe(observer)
    unsubscribe()
    unsubscribe()
    signal.cancel()
    assert heard == [1]


def test_a_child_follows_with_the_reason_and_can_be_cancelled_alone():
    signal = CancelSignal()
    alone, following = signal.child(), signal.child()
    alone.cancel("mine")
    assert not signal.aborted
    signal.cancel("all")
    assert (alone.reason, following.reason) == ("mine", "all")
    assert signal.child().reason == "all"


async def test_waiting_ends_with_the_abort():
    signal = CancelSignal()
    with anyio.fail_after(2):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(signal.wait)
            tasks.start_soon(signal.wait)
            await anyio.wait_all_tasks_blocked()
            signal.cancel()
        await signal.wait()


async def test_a_wait_that_was_given_up_leaves_nothing_behind():
    signal = CancelSignal()
    with anyio.move_on_after(0.01):
        await signal.wait()
    signal.cancel()


async def test_work_that_is_not_stopped_gives_its_result_or_its_failure():
    async def give():
        await anyio.lowlevel.checkpoint()
        return 42

    async def fail():
        raise ValueError("its own")

    assert await CancelSignal().run(give) == 42
    with pytest.raises(ValueError, match="its own"):
        await CancelSignal().run(fail)


async def test_work_is_stopped_at_its_next_await():
    signal = CancelSignal()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_soon, signal)
        with pytest.raises(Interrupted), anyio.fail_after(2):
            await signal.run(anyio.sleep_forever)


async def test_work_of_an_aborted_signal_ends_before_its_first_await():
    signal, reached = CancelSignal(), []

    async def work():
        reached.append("begun")
        await anyio.lowlevel.checkpoint()
        reached.append("gone on")

    signal.cancel()
    with pytest.raises(Interrupted):
        await signal.run(work)
    assert reached == ["begun"]


async def test_work_that_ends_within_its_grace_keeps_its_result():
    signal = CancelSignal()

    async def heed():
        await signal.wait()
        await anyio.sleep(0.01)
        return "tidied up"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_soon, signal)
        assert await signal.run(heed, grace=5) == "tidied up"


async def test_work_that_does_not_heed_is_stopped_when_its_grace_is_over():
    signal = CancelSignal()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_soon, signal)
        began = anyio.current_time()
        with pytest.raises(Interrupted), anyio.fail_after(2):
            await signal.run(anyio.sleep_forever, grace=0.05)
        assert anyio.current_time() - began >= 0.05


async def test_work_that_shields_itself_is_awaited():
    signal, done = CancelSignal(), []

    async def careful():
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.05)
            done.append(True)
        await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_soon, signal)
        with pytest.raises(Interrupted):
            await signal.run(careful)
    assert done == [True]


async def test_cancelling_the_awaiting_task_is_not_an_abort():
    signal = CancelSignal()
    with anyio.move_on_after(0.02) as scope:
        await signal.run(anyio.sleep_forever)
    assert scope.cancelled_caught
    assert not signal.aborted


async def test_an_abort_after_the_work_touches_nothing_that_follows():
    signal = CancelSignal()
    await signal.run(anyio.lowlevel.checkpoint)
    signal.cancel()
    await anyio.sleep(0.01)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancelled_future_does_not_cancel_who_waits_for_it(anyio_backend):
    async def work():
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    with pytest.raises(WaitCancelledError, match="something that was waited for was cancelled"):
        await CancelSignal().run(work)
    assert not asyncio.current_task().cancelling()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelling_the_task_goes_through(anyio_backend):
    task = asyncio.ensure_future(CancelSignal().run(anyio.sleep_forever))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancel_soon(signal):
    await anyio.sleep(0.01)
    signal.cancel("soon")
