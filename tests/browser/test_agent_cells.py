"""The magics in JupyterLab: an agent cell from its first word to the saved notebook."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.browser.harness import NotebookPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

Opened = Callable[..., NotebookPage]

SETUP = "import os, time, nbagent; os.environ['NBAGENT_DEMO_DELAY_MS'] = '60'\n%load_ext nbagent\n%agent create analyst --model demo"
STATIC = ["text/html", "text/markdown", "text/plain"]


def test_an_agent_cell_streams_and_leaves_plain_output(notebook: Opened) -> None:
    page = notebook(SETUP, "%%agent analyst\n>>> what is it?", "%agent list")
    page.run_and_wait(0)
    assert f"Session: {page.name.removesuffix('.ipynb')}.nbagent" in page.text(0)
    page.run(1)
    page.output(1).get_by_text("Your prompt went").wait_for()
    assert page.is_running(1)
    page.wait_for_cell(1)
    saved = page.save()
    (output,) = saved.cells[1].outputs
    assert sorted(output.data) == STATIC
    assert "> >>> what is it?" in output.data["text/plain"]
    page.run_and_wait(2)
    assert "idle" in page.text(2)
    (folder,) = page.server.root.glob(f"{page.name.removesuffix('.ipynb')}.nbagent")
    assert len(list(folder.glob("analyst-session-*.jsonl"))) == 1


def test_stop_ends_the_turn_keeps_the_text_and_does_not_fail_the_cell(notebook: Opened) -> None:
    page = notebook(SETUP, "%%agent analyst --as reply\nhello", "print(reply.reason['kind'])")
    page.run_and_wait(0)
    page.run(1)
    page.output(1).get_by_text("Your prompt went").wait_for()
    pressed = time.monotonic()
    page.output(1).get_by_role("button", name="Stop").click()
    page.wait_for_cell(1, 5)
    took = time.monotonic() - pressed
    outputs = page.outputs(1)
    assert [each["output_type"] for each in outputs] == ["display_data"]
    assert "Your prompt went" in page.text(1)
    assert "Stopped" in page.text(1)
    assert took < 1.5
    page.run_and_wait(2)
    assert page.text(2).strip() == "aborted"


def test_the_kernels_interrupt_ends_the_cell_with_one_line(notebook: Opened) -> None:
    page = notebook(SETUP, "%%agent analyst\nhello", "print('goes on')")
    page.run_and_wait(0)
    page.run(1)
    page.output(1).get_by_text("Your prompt went").wait_for()
    page.interrupt()
    page.wait_for_cell(1, 5)
    kinds = [(each["output_type"], each.get("ename")) for each in page.outputs(1)]
    assert kinds == [("display_data", None), ("error", "KeyboardInterrupt")]
    assert "Your prompt went" in page.text(1)
    page.run_and_wait(2)
    assert "goes on" in page.text(2)


def test_a_background_turn_streams_on_while_another_cell_blocks(notebook: Opened) -> None:
    page = notebook(SETUP, "%%agent analyst --bg\nhello", "time.sleep(2)", "%agent wait")
    page.run_and_wait(0)
    page.run_and_wait(1)
    page.run(2)
    page.output(1).get_by_text("Your prompt went through the whole loop").wait_for(timeout=10_000)
    assert page.is_running(2)
    page.wait_for_cell(2)
    page.run_and_wait(3)
    page.output(1).get_by_text("Finished").wait_for()
    assert sorted(page.save().cells[1].outputs[0].data) == STATIC


def test_a_background_turn_is_stopped_from_its_view_and_from_another_cell(notebook: Opened) -> None:
    page = notebook(SETUP, "%%agent analyst --bg\nhello", "%%agent analyst --bg\nhello", "%agent cancel", "%agent wait")
    page.run_and_wait(0)
    for index in (1, 2):
        page.run_and_wait(index)
        page.output(index).get_by_text("Your prompt went").wait_for()
        if index == 1:
            page.output(1).get_by_role("button", name="Stop").click()
        else:
            page.run_and_wait(3)
        page.output(index).get_by_text("Stopped").wait_for(timeout=5_000)
    assert "analyst: cancelled" in page.text(3)
