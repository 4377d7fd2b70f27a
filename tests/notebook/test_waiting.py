"""Waits that hear interrupts."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest

from nbagent.notebook.waiting import Interrupts, StoppedByUser, settle, wait


def later(seconds: float, action: Any, *args: Any) -> None:
    timer = threading.Timer(seconds, action, args)
    timer.daemon = True
    timer.start()


def waited(future: Future[Any], interrupts: Interrupts, how: str, **options: Any) -> bool:
    with interrupts:
        if how == "wait":
            return wait(future, interrupts, **options)

        async def main() -> bool:
            return await settle(future, interrupts, **options)

        return asyncio.run(main())


HOW = pytest.mark.parametrize("how", ["wait", "settle"])


@HOW
def test_a_wait_ends_as_soon_as_there_is_an_answer(how: str) -> None:
    future: Future[int] = Future()
    later(0.05, future.set_result, 1)
    began = time.monotonic()
    assert waited(future, Interrupts(), how)
    assert time.monotonic() - began < 0.5


@HOW
def test_the_first_interrupt_asks_to_stop_and_the_wait_goes_on(how: str) -> None:
    future: Future[str] = Future()
    heard: list[str] = []

    def stop() -> None:
        heard.append("stop")
        later(0.1, future.set_result, "settled")

    interrupts = Interrupts(stop)
    later(0.05, signal.raise_signal, signal.SIGINT)
    assert waited(future, interrupts, how)
    assert (heard, interrupts.count, future.result()) == (["stop"], 1, "settled")


@HOW
def test_the_second_interrupt_stops_waiting_and_cancels_nothing(how: str) -> None:
    future: Future[str] = Future()
    heard: list[str] = []
    interrupts = Interrupts(lambda: heard.append("stop"))
    for moment in (0.05, 0.4):
        later(moment, signal.raise_signal, signal.SIGINT)
    assert not waited(future, interrupts, how)
    assert (heard, interrupts.count) == (["stop"], 2)
    assert not future.cancelled()


@HOW
def test_a_time_limit_ends_the_wait(how: str) -> None:
    future: Future[str] = Future()
    began = time.monotonic()
    assert not waited(future, Interrupts(), how, timeout=0.15)
    assert 0.1 < time.monotonic() - began < 1


@HOW
def test_the_former_handler_is_put_back(how: str) -> None:
    before = signal.getsignal(signal.SIGINT)
    future: Future[str] = Future()
    future.set_result("x")
    waited(future, Interrupts(), how)
    assert signal.getsignal(signal.SIGINT) is before


def test_cancelling_the_awaiting_task_counts_as_an_interrupt() -> None:
    future: Future[str] = Future()
    interrupts = Interrupts(lambda: future.set_result("settled"))

    async def main() -> bool:
        task = asyncio.ensure_future(settle(future, interrupts))
        await asyncio.sleep(0.05)
        task.cancel()
        return await task

    assert asyncio.run(main())
    assert interrupts.count == 1


def test_on_another_thread_there_are_no_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    answers: list[bool] = []

    def work() -> None:
        future: Future[str] = Future()
        with Interrupts() as interrupts:
            answers.append(wait(future, interrupts, timeout=0.01))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert answers == [False]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_shows_as_one_line_under_its_usual_name() -> None:
    stopped = StoppedByUser("stopped; the text so far is kept")
    assert isinstance(stopped, KeyboardInterrupt)
    assert type(stopped).__name__ == "KeyboardInterrupt"
    assert stopped._render_traceback_() == ["KeyboardInterrupt: stopped; the text so far is kept"]
