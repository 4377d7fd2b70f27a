"""The run view in a real kernel, read as a front end reads it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager


class Kernel:
    """A real kernel; remembers everything it published."""

    def __init__(self, manager: KernelManager) -> None:
        self.client = manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.messages: list[dict[str, Any]] = []

    def run(self, code: str, timeout: float = 60) -> list[dict[str, Any]]:
        """Run a cell; what it published until it was idle."""
        return self.finish(self.client.execute(code), timeout)

    def finish(self, request: str, timeout: float = 60) -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        while True:
            message = self.client.get_iopub_msg(timeout=timeout)
            seen.append({**message, "received": time.monotonic()})
            of_request = message["parent_header"].get("msg_id") == request
            if message["msg_type"] == "error" and of_request:
                raise AssertionError("\n".join(message["content"]["traceback"]))
            if message["msg_type"] == "status" and of_request and message["content"]["execution_state"] == "idle":
                return seen

    def subshell(self) -> str:
        """A new subshell, as JupyterLab opens one for widgets."""
        request = self.client.session.msg("create_subshell_request")
        self.client.control_channel.send(request)
        return self.client.get_control_msg(timeout=20)["content"]["subshell_id"]

    def send(self, comm_id: str, content: dict[str, Any], subshell: str | None = None) -> None:
        """A custom message from the page to a widget."""
        data = {"method": "custom", "content": content}
        message = self.client.session.msg("comm_msg", {"comm_id": comm_id, "data": data})
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("kernel")
    manager = KernelManager(kernel_name="python3")
    root = str(Path(__file__).parents[2])
    manager.start_kernel(cwd=str(folder), env={**os.environ, "IPYTHONDIR": str(folder / "ipython"), "PYTHONPATH": root})
    running = Kernel(manager)
    try:
        running.run(SETUP)
        yield running
    finally:
        running.client.stop_channels()
        manager.shutdown_kernel(now=True)


SETUP = """
import threading, time
from nbagent.notebook.display import bundle
from nbagent.notebook.transcript import TurnTranscript
from nbagent.notebook.views.run import RunView
from nbagent.types.messages import text_block
from nbagent.types.stream import block_start, text_delta
from tests.notebook.turns import TurnLog

stops = []

def shown(can_stop=True):
    view = RunView("analyst", on_stop=lambda: stops.append(time.monotonic()), can_stop=can_stop)
    transcript = TurnTranscript()
    log = TurnLog(lambda event: (transcript.apply(event), view.update(transcript)))
    view.show()
    return view, transcript, log

def ended(view, transcript, log, answer):
    log.answer(text_block(answer))
    log.end()
    view.finish(bundle([transcript], agent_name="analyst"))
"""


def of_kind(messages: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [message["content"] for message in messages if message["msg_type"] == kind]


def custom(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    contents = [content["data"] for content in of_kind(messages, "comm_msg")]
    return [data["content"] for data in contents if data.get("method") == "custom"]


def test_one_output_and_one_widget_show_a_turn_and_plain_output_replaces_them(kernel: Kernel) -> None:
    messages = kernel.run(
        """
view, transcript, log = shown()
log.begin("a prompt"); log.frame(block_start(0, "text"), text_delta(0, "Hello"))
time.sleep(0.2)
ended(view, transcript, log, "Hello *world*")
"""
    )
    displayed, updated = of_kind(messages, "display_data"), of_kind(messages, "update_display_data")
    assert len(displayed) == len(updated) == 1
    assert "application/vnd.jupyter.widget-view+json" in displayed[0]["data"]
    assert "%agent show" in displayed[0]["data"]["text/plain"]
    assert sorted(updated[0]["data"]) == ["text/html", "text/markdown", "text/plain"]
    assert updated[0]["transient"] == displayed[0]["transient"]
    opened = [content["comm_id"] for content in of_kind(messages, "comm_open")]
    assert set(opened) == {content["comm_id"] for content in of_kind(messages, "comm_close")}
    sent = custom(messages)
    assert [message["seq"] for message in sent] == list(range(1, len(sent) + 1))
    assert sent[-1]["head"]["line"] == "Finished"
    assert sent[-1]["parts"][1]["blocks"] == ["<p>Hello <em>world</em></p>\n"]


def test_ten_streaming_views_stay_within_the_budget(kernel: Kernel) -> None:
    messages = kernel.run(
        """
views = [shown() for _ in range(10)]
for view, transcript, log in views:
    log.begin("p"); log.frame(block_start(0, "text"))
end = time.monotonic() + 2
while time.monotonic() < end:
    for view, transcript, log in views:
        log.frame(text_delta(0, "word "))
    time.sleep(0.01)
"""
    )
    sent = [message for message in messages if message["msg_type"] == "comm_msg"]
    assert 20 <= len(sent) <= 2.5 * 20 + 2
    kernel.run("for view, transcript, log in views: ended(view, transcript, log, 'x')")


def test_updates_from_another_thread_return_at_once(kernel: Kernel) -> None:
    kernel.run(
        """
view, transcript, log = shown()
slowest = []
def work():
    log.begin("p"); log.frame(block_start(0, "text"))
    for number in range(300):
        started = time.perf_counter()
        log.frame(text_delta(0, f"Sentence {number}. "))
        slowest.append(time.perf_counter() - started)
    ended(view, transcript, log, "done")
thread = threading.Thread(target=work); thread.start(); thread.join()
assert sorted(slowest)[len(slowest) // 2] < 0.01, slowest
"""
    )


def test_stop_is_heard_while_the_cell_blocks(kernel: Kernel) -> None:
    if tuple(int(part) for part in version("ipykernel").split(".")[:1]) < (7,):
        pytest.skip("this kernel has no subshells")
    opened = kernel.run("stops.clear(); view, transcript, log = shown(); log.begin('p')")
    comm_id = of_kind(opened, "comm_open")[-1]["comm_id"]
    subshell = kernel.subshell()
    request = kernel.client.execute("began = time.monotonic(); time.sleep(2); late = time.monotonic()")
    time.sleep(0.5)
    kernel.send(comm_id, {"op": "stop"}, subshell)
    kernel.finish(request)
    kernel.run("assert len(stops) == 1 and stops[0] < late - 0.5, (stops, began, late)")
    kernel.run("ended(view, transcript, log, 'x')")


def test_a_hello_is_answered_and_nonsense_is_not(kernel: Kernel) -> None:
    opened = kernel.run("view, transcript, log = shown(); log.begin('p'); time.sleep(0.3)")
    comm_id = of_kind(opened, "comm_open")[-1]["comm_id"]
    for content in ({"op": "no such thing"}, {"op": 3}, {"op": "hello", "page": "p1"}):
        kernel.send(comm_id, content)
    messages = kernel.run("time.sleep(0.3)")
    assert [message["op"] for message in custom(messages)] == ["snapshot"]
    kernel.run("ended(view, transcript, log, 'x')")


def test_after_a_reload_the_widget_stays_and_answers_with_the_whole_turn(kernel: Kernel) -> None:
    opened = kernel.run("view, transcript, log = shown(); log.begin('p'); time.sleep(0.2)")
    comm_id = of_kind(opened, "comm_open")[-1]["comm_id"]
    for page in ("before", "after"):
        kernel.send(comm_id, {"op": "hello", "page": page})
    kernel.run("time.sleep(0.2)")
    messages = kernel.run("ended(view, transcript, log, 'the end')")
    assert not of_kind(messages, "comm_close")
    kernel.send(comm_id, {"op": "hello", "page": "third"})
    messages = kernel.run("time.sleep(0.3)")
    assert custom(messages)[-1]["head"]["line"] == "Finished"
    assert custom(messages)[-1]["parts"][1]["blocks"] == ["<p>the end</p>\n"]


def test_a_turn_can_finish_without_ever_having_been_shown(kernel: Kernel) -> None:
    messages = kernel.run(
        """
view = RunView("analyst", on_stop=lambda: None, can_stop=True)
transcript = TurnTranscript(); log = TurnLog(transcript.apply); log.begin("p")
ended(view, transcript, log, "x"); view.finish({"text/plain": "again"})
"""
    )
    assert [sorted(content["data"]) for content in of_kind(messages, "display_data")] == [
        ["text/html", "text/markdown", "text/plain"]
    ]
