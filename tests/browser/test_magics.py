"""Turns through the magics, as a person in JupyterLab meets them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.harness import NotebookPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

Opened = Callable[..., NotebookPage]

SLOW = "import os; os.environ['NBAGENT_DEMO_DELAY_MS'] = '150'"
SETUP = f"""%load_ext nbagent
{SLOW}
import time, nbagent

@nbagent.tool
def lookup(city: str) -> str:
    "Weather of a city."
    return "mean 6.7 in " + city
"""
CREATE = "%agent create analyst --model demo --tools lookup"
ASK = "%%agent analyst\nhello there"
FIRST_WORDS = "Your prompt went"
LAST_WORDS = "base-url"


def prepared(notebook: Opened, *cells: str) -> NotebookPage:
    """A notebook with a demo agent; the first of `cells` has index 2."""
    page = notebook(SETUP, CREATE, *cells)
    for index in (0, 1):
        page.run_and_wait(index)
    return page


def milliseconds_to(page: NotebookPage, index: int, act: str, text: str) -> float:
    """Do `act` in the page; how long until the cell's output shows `text`."""
    return page.page.evaluate(
        f"""async ([index, text]) => {{
            const node = window.jupyterapp.shell.currentWidget.content.widgets[index].node;
            const began = performance.now();
            {act}
            while (!node.querySelector('.jp-Cell-outputArea').innerText.includes(text)) {{
                if (performance.now() - began > 20000) return Infinity;
                await new Promise(done => setTimeout(done, 5));
            }}
            return performance.now() - began;
        }}""",
        [index, text],
    )


PRESS_STOP = "node.querySelector('.nbagent-stop').click();"
INTERRUPT = "window.jupyterapp.commands.execute('notebook:interrupt-kernel');"


def test_the_answer_streams_into_the_cell_and_stays_as_plain_output(notebook: Opened) -> None:
    page = prepared(notebook, ASK)
    page.run(2)
    output = page.output(2)
    output.get_by_text(FIRST_WORDS).wait_for()
    assert page.is_running(2)
    assert LAST_WORDS not in page.text(2)
    assert output.get_by_role("status").inner_text() == "Running"
    page.wait_for_cell(2)
    output.get_by_text("Finished").wait_for()
    assert LAST_WORDS in page.text(2) and "hello there" in page.text(2) and "demo" in page.text(2)
    saved = page.save().cells[2].outputs
    assert [sorted(each.data) for each in saved] == [["text/html", "text/markdown", "text/plain"]]


def test_a_tool_call_shows_its_arguments_and_its_result(notebook: Opened) -> None:
    page = prepared(notebook, "%%agent\nlookup(city='Oslo') please")
    page.run_and_wait(2)
    output = page.output(2)
    output.get_by_text("Finished").wait_for()
    row = output.locator("summary", has_text="lookup")
    assert "done" in row.inner_text()
    row.click()
    output.locator("pre", has_text="mean 6.7 in Oslo").wait_for()
    assert output.locator("pre", has_text='city = "Oslo"').is_visible()
    plain = page.save().cells[2].outputs[0].data["text/plain"]
    assert "lookup" in plain and "mean 6.7 in Oslo" in plain


def test_stop_takes_effect_at_once_keeps_the_text_and_does_not_fail_the_cell(notebook: Opened) -> None:
    page = prepared(notebook, ASK, "print('still here', analyst.status)")
    page.run(2)
    page.output(2).get_by_text(FIRST_WORDS).wait_for()
    elapsed = milliseconds_to(page, 2, PRESS_STOP, "Stopped")
    print(f"\nStop to stopped output: {elapsed:.0f} ms")
    assert elapsed < 5_000
    page.wait_for_cell(2, 10)
    assert FIRST_WORDS in page.text(2) and LAST_WORDS not in page.text(2)
    assert [each["output_type"] for each in page.outputs(2)] == ["display_data"]
    page.run_and_wait(3)
    assert "still here idle" in page.text(3)


def test_a_kernel_interrupt_stops_the_turn_keeps_the_text_and_ends_the_cell_in_one_line(notebook: Opened) -> None:
    page = prepared(notebook, ASK, "print('still here', analyst.status)")
    page.run(2)
    page.output(2).get_by_text(FIRST_WORDS).wait_for()
    elapsed = milliseconds_to(page, 2, INTERRUPT, "Stopped")
    print(f"\ninterrupt to stopped output: {elapsed:.0f} ms")
    assert elapsed < 5_000
    page.wait_for_cell(2, 10)
    assert FIRST_WORDS in page.text(2) and LAST_WORDS not in page.text(2)
    errors = [each for each in page.outputs(2) if each["output_type"] == "error"]
    assert [each["ename"] for each in errors] == ["KeyboardInterrupt"]
    assert len(errors[0]["traceback"]) == 1
    page.run_and_wait(3)
    assert "still here idle" in page.text(3)


def test_a_background_turn_streams_into_its_own_cell_while_another_cell_blocks(notebook: Opened) -> None:
    page = prepared(notebook, "%%agent analyst --bg\nhello there", "time.sleep(8); print('slept')")
    page.run_and_wait(2, 5)
    page.run(3)
    page.output(2).get_by_text(FIRST_WORDS).wait_for(timeout=6_000)
    assert page.is_running(3)
    before = page.text(2)
    time.sleep(1)
    assert page.is_running(3) and len(page.text(2)) > len(before)
    page.output(2).get_by_text("Finished").wait_for(timeout=20_000)
    page.wait_for_cell(3)
    assert page.text(3).strip() == "slept"


def test_stop_reaches_a_background_turn_while_another_cell_blocks(notebook: Opened) -> None:
    page = prepared(notebook, "%%agent analyst --bg\nhello there", "time.sleep(8); print('slept')")
    page.run_and_wait(2, 5)
    page.run(3)
    page.output(2).get_by_text(FIRST_WORDS).wait_for(timeout=6_000)
    elapsed = milliseconds_to(page, 2, PRESS_STOP, "Stopped")
    print(f"\nStop to stopped output beside a blocking cell: {elapsed:.0f} ms")
    assert elapsed < 5_000
    assert page.is_running(3)
    page.wait_for_cell(3)


def test_a_stop_says_which_tool_is_waited_for(notebook: Opened) -> None:
    slow_tool = "@nbagent.tool\ndef slow(seconds: float) -> str:\n    time.sleep(seconds)\n    return 'late'"
    page = prepared(
        notebook, slow_tool, "%agent create worker --model demo --tools slow", "%%agent worker\nslow(seconds=4)"
    )
    page.run_and_wait(2)
    page.run_and_wait(3)
    page.run(4)
    output = page.output(4)
    output.locator("summary", has_text="running").wait_for()
    output.get_by_role("button", name="Stop").click()
    output.get_by_text("waiting for slow").wait_for(timeout=5_000)
    output.get_by_text("Stopped", exact=True).wait_for(timeout=15_000)


HOSTILE = """
evil = '<img src=x onerror="window.hit=1"><script>window.hit=2</script><b onclick="window.hit=3">b</b> [l](javascript:window.hit=4) ![p](/hit.png)'
from nbagent.testing import ScriptedAdapter, text, tool_calls

@nbagent.tool
def hostile() -> str:
    "Answers with markup."
    return evil

%agent create victim --model demo --tools hostile
script = ScriptedAdapter([tool_calls(("c1", "hostile", {}), (evil, evil, {"x": evil})), text(evil)])

async def scripted(payload, next):
    return script.stream(payload.request, payload.signal)

undo = victim.host.call(victim.core.on, "llm/stream", scripted)
"""


def assert_harmless(page: NotebookPage, output: Any) -> None:
    for summary in output.locator("summary").all():
        summary.click()
    assert output.get_by_text("onerror").count() >= 3
    assert output.locator("img, script, b, iframe").count() == 0
    links = [link.get_attribute("href") or "#" for link in output.locator("a").all()]
    assert all(re.match(r"https?:|mailto:|#", link) for link in links)
    assert page.page.evaluate("() => window.hit") is None
    assert not [address for address in page.requests if "hit.png" in address or address.endswith("/x")]


def test_markup_from_a_model_a_tool_or_a_prompt_does_nothing(notebook: Opened) -> None:
    prompt = '<img src=x onerror="window.hit=5"> ![p](/hit.png)'
    page = prepared(notebook, HOSTILE, f"%%agent victim\n{prompt}")
    page.run_and_wait(2)
    page.run(3)
    page.output(3).get_by_text("onerror").first.wait_for()
    page.wait_for_cell(3)
    page.output(3).get_by_text("Finished").wait_for()
    assert_harmless(page, page.output(3))
    page.save()
    page.reload()
    page.output(3).get_by_text("Finished").wait_for()
    assert_harmless(page, page.output(3))


def test_a_reload_in_the_middle_of_a_turn_loses_nothing(notebook: Opened) -> None:
    page = prepared(notebook, "%%agent analyst --bg\nhello there", "%agent show analyst")
    page.run_and_wait(2)
    page.output(2).get_by_text(FIRST_WORDS).wait_for()
    page.save()
    page.reload()
    page.output(2).get_by_text("Finished").wait_for(timeout=40_000)
    assert LAST_WORDS in page.text(2)
    page.wait_for_kernel()
    page.run_and_wait(3)
    page.output(3).get_by_text("Finished").wait_for()
    assert FIRST_WORDS in page.text(3) and LAST_WORDS in page.text(3)
    assert "application/vnd.jupyter.widget-view+json" not in page.outputs(3)[0]["data"]


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_a_turn_looks_nearly_the_same_before_and_after_it_ends(notebook: Opened, theme: str) -> None:
    page = prepared(notebook, "%%agent\nlookup(city='Oslo') please")
    page.set_theme(theme)
    measured: list[dict[str, float]] = []
    page.run(2)
    output = page.output(2)
    output.locator("summary", has_text="done").wait_for()
    measured.append(measures(output))
    page.wait_for_cell(2)
    output.get_by_text("Finished").wait_for()
    measured.append(measures(output))
    live, saved = measured
    assert live.keys() == saved.keys()
    for name in live:
        assert abs(live[name] - saved[name]) <= 2, (name, live, saved)


def measures(output: Any) -> dict[str, float]:
    """Where the prompt and the first tool row stand in the output, and how large their text is, in pixels."""
    return output.evaluate(
        """node => {
            const area = node.getBoundingClientRect();
            const found = {};
            const row = node.querySelector('summary').parentElement;
            const prompt = [...node.querySelectorAll('div')].find(each => each.textContent === "lookup(city='Oslo') please");
            for (const [name, element] of Object.entries({row, prompt})) {
                const box = element.getBoundingClientRect();
                Object.assign(found, {
                    [`${name} left`]: box.left - area.left,
                    [`${name} top`]: box.top - area.top,
                    [`${name} width`]: box.width,
                    [`${name} height`]: box.height,
                    [`${name} font`]: parseFloat(getComputedStyle(element).fontSize),
                });
            }
            return found;
        }"""
    )
