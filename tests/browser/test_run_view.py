from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import nbformat
import pytest

from tests.browser.harness import NotebookPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

Opened = Callable[..., NotebookPage]

SETUP = "from tests.browser.turning import *"


def test_text_appears_while_the_turn_runs_and_plain_output_follows(notebook: Opened) -> None:
    page = notebook(SETUP, "turn = Turning(); turn.stream(3).join()")
    page.run_and_wait(0)
    page.run(1)
    cell = page.output(1)
    cell.get_by_text("word3 ").wait_for()
    assert page.is_running(1)
    assert cell.get_by_role("status").inner_text() == "Running"
    page.wait_for_cell(1)
    cell.get_by_text("Finished").wait_for()
    assert "word0" in page.text(1) and "word39" in page.text(1) and "a prompt" in page.text(1)
    assert cell.locator(".nbagent").count() == 0
    output = page.save().cells[1].outputs[0]
    assert sorted(output.data) == ["text/html", "text/markdown", "text/plain"]


def test_stop_is_a_button_that_takes_effect_at_once_and_keeps_the_text(notebook: Opened) -> None:
    page = notebook(
        SETUP,
        "stops.clear(); turn = Turning(); thread = turn.stream(30)\nwhile thread.is_alive(): time.sleep(0.05)",
        "print('later')",
    )
    page.run_and_wait(0)
    page.run(1)
    cell = page.output(1)
    cell.get_by_text("word1 ").wait_for()
    pressed = time.time()
    cell.get_by_role("button", name="Stop").click()
    cell.get_by_text("Stopped").wait_for(timeout=5_000)
    print(f"stop: {time.time() - pressed:.3f} s")
    page.wait_for_cell(1, 10)
    assert "word1" in page.text(1)


def test_stop_works_with_the_keyboard(notebook: Opened) -> None:
    page = notebook(SETUP, "turn = Turning(); thread = turn.stream(20)\nwhile thread.is_alive(): time.sleep(0.05)")
    page.run_and_wait(0)
    page.run(1)
    cell = page.output(1)
    cell.get_by_text("word1 ").wait_for()
    stop = cell.get_by_role("button", name="Stop")
    stop.focus()
    page.page.keyboard.press("Enter")
    cell.get_by_text("Stopped").wait_for(timeout=5_000)


def test_a_kernel_that_cannot_hear_stop_has_no_button_and_says_what_to_do(notebook: Opened) -> None:
    page = notebook(SETUP, "turn = Turning(can_stop=False); turn.say('x')")
    page.run_and_wait(0)
    page.run_and_wait(1)
    cell = page.output(1)
    cell.get_by_text("interrupt button").wait_for()
    assert cell.get_by_role("button", name="Stop").count() == 0


def test_a_tool_call_is_a_row_that_opens_to_arguments_and_result(notebook: Opened) -> None:
    page = notebook(SETUP, """turn = Turning(); turn.call("lookup", '{"city":"Oslo"}', "mean 6.7")""")
    page.run_and_wait(0)
    page.run_and_wait(1)
    cell = page.output(1)
    row = cell.locator("summary", has_text="lookup")
    row.wait_for()
    assert 'city="Oslo"' in row.inner_text() and "done" in row.inner_text()
    result = cell.get_by_text("mean 6.7")
    assert not result.is_visible()
    row.focus()
    page.page.keyboard.press("Enter")
    result.wait_for(state="visible")
    assert cell.get_by_text('city = "Oslo"').is_visible()
    assert not cell.get_by_text("thinking", exact=True).is_visible()
    cell.locator("summary", has_text="Reasoning").click()
    cell.get_by_text("thinking", exact=True).wait_for(state="visible")


def test_an_opened_row_stays_open_while_the_turn_goes_on(notebook: Opened) -> None:
    page = notebook(
        SETUP,
        """turn = Turning(); turn.call("lookup", '{"city":"Oslo"}', "mean 6.7")""",
        "turn.say('more '); turn.say('and more')",
    )
    for index in (0, 1):
        page.run_and_wait(index)
    cell = page.output(1)
    cell.locator("summary", has_text="lookup").click()
    page.run_and_wait(2)
    cell.get_by_text("more and more").wait_for()
    assert cell.get_by_text("mean 6.7").is_visible()


HOSTILE = """
evil = '<img src=x onerror="window.hit=1"><script>window.hit=2</script><b onclick="window.hit=3">b</b> [l](javascript:window.hit=4) ![p](/hit.png) $\\\\href{javascript:window.hit=5}{x}$'
turn = Turning(prompt=evil, note=evil)
turn.call(evil, evil, evil, reasoning=evil, text=evil)
turn.log.header(evil, evil)
turn.log.retry(evil, evil)
turn.say(evil)
"""


def assert_harmless(page: NotebookPage, cell: Any) -> None:
    cell.locator("summary").first.wait_for()
    for summary in cell.locator("summary").all():
        summary.click()
    assert cell.get_by_text("onerror").count() >= 4
    assert cell.locator("img, script, b, iframe").count() == 0
    links = cell.locator("a").all()
    assert all(re.match(r"https?:|mailto:|#", link.get_attribute("href") or "#") for link in links)
    assert page.page.evaluate("() => window.hit") is None
    assert not [address for address in page.requests if "hit.png" in address or address.endswith("/x")]


def test_hostile_text_does_nothing_live_or_saved_or_reopened(notebook: Opened) -> None:
    page = notebook(SETUP, HOSTILE, "turn.end('error', error={'code': evil, 'message': evil})")
    for index in (0, 1):
        page.run_and_wait(index)
    assert_harmless(page, page.output(1))
    page.run_and_wait(2)
    page.output(1).get_by_text("Failed").first.wait_for()
    assert_harmless(page, page.output(1))
    page.save()
    page.reload()
    assert_harmless(page, page.output(1))


def test_an_untrusted_notebook_shows_the_saved_output_with_every_style(notebook: Opened) -> None:
    page = notebook(
        SETUP,
        """turn = Turning(); turn.call("lookup", '{"city":"Oslo"}', "mean 6.7", text="Look:\\n\\n```python\\nx = 1\\n```"); turn.end()""",
    )
    for index in (0, 1):
        page.run_and_wait(index)
    saved = page.save()
    html = saved.cells[1].outputs[0].data["text/html"]
    # Another text than the one that was signed: the notebook is not trusted any more.
    saved.cells[1].outputs[0].data["text/html"] = html + "<p></p>"
    name = page.name.replace("notebook", "untrusted")
    nbformat.write(saved, page.server.root / name)
    page.shut_down_kernel()
    page.open(name)
    cell = page.output(1)
    cell.locator("summary", has_text="lookup").wait_for()
    assert not page.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets[1].model.trusted")
    shown = cell.locator(".nbagent-turn").evaluate(
        "node => [node, ...node.querySelectorAll('*')].map(n => [n.tagName, n.getAttribute('style') || ''])"
    )
    written = re.findall(r"<(\w+)([^>]*)>", html)
    assert len(shown) == len(written)
    for (tag, style), (name_, attributes) in zip(shown, written, strict=True):
        expected = re.search(r'style="([^"]*)"', attributes)
        assert tag.lower() == name_
        assert len(re.findall(r":", style)) == len(re.findall(r":", expected.group(1) if expected else "")), (
            style,
            expected,
        )


def test_a_reloaded_page_shows_the_running_turn_and_its_end(notebook: Opened) -> None:
    page = notebook(SETUP, "turn = Turning(); turn.say('before the reload '); time.sleep(0.5)", "turn.stream(1)")
    for index in (0, 1):
        page.run_and_wait(index)
    page.output(1).get_by_text("before the reload").wait_for()
    page.save()
    page.reload()
    page.output(1).get_by_text("before the reload").wait_for(timeout=30_000)
    page.wait_for_kernel()
    page.run(2)
    page.output(1).get_by_text("Finished").wait_for(timeout=10_000)
    assert "word39" in page.text(1)


def test_a_view_whose_kernel_was_restarted_does_not_pretend_to_run(notebook: Opened) -> None:
    page = notebook(SETUP, "turn = Turning(); turn.say('the text so far')")
    for index in (0, 1):
        page.run_and_wait(index)
    page.output(1).get_by_text("the text so far").wait_for()
    page.restart_kernel()
    page.output(1).get_by_text("The kernel went away").wait_for(timeout=20_000)
    assert page.output(1).get_by_role("button", name="Stop").count() == 0
    assert "the text so far" in page.text(1)


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_text_is_readable_in_both_themes(notebook: Opened, theme: str) -> None:
    page = notebook(
        SETUP,
        "turn = Turning(); turn.call('lookup', '{}', 'r', text='An **answer** with `code`')",
        "turn.say('the end'); turn.end()",
    )
    page.set_theme(theme)
    for index in (0, 1):
        page.run_and_wait(index)
    page.output(1).locator(".nbagent-answer").wait_for()
    assert lowest_contrast(page, 1) > 4
    page.run_and_wait(2)
    page.output(1).get_by_text("Finished").wait_for()
    assert lowest_contrast(page, 1) > 4


def lowest_contrast(page: NotebookPage, index: int) -> float:
    """Smallest contrast ratio of a text in the cell's output against the page, opacity counted in."""
    return page.page.evaluate(
        """index => {
            const channels = text => text.match(/[\\d.]+/g).map(Number);
            const light = ([r, g, b]) => {
                const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
                return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
            };
            const area = window.jupyterapp.shell.currentWidget.content.widgets[index].node.querySelector('.jp-Cell-outputArea');
            const back = channels(getComputedStyle(document.body).getPropertyValue('--jp-layout-color0').trim() === '#111111'
                || document.body.dataset.jpThemeLight === 'false' ? 'rgb(17, 17, 17)' : 'rgb(255, 255, 255)');
            const walker = document.createTreeWalker(area, NodeFilter.SHOW_TEXT);
            let lowest = 21;
            while (walker.nextNode()) {
                const node = walker.currentNode.parentElement;
                if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest('.jp-OutputPrompt')) continue;
                let opacity = 1;
                for (let at = node; at !== area; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
                const front = channels(getComputedStyle(node).color).slice(0, 3).map((v, i) => v * opacity + back[i] * (1 - opacity));
                const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
                lowest = Math.min(lowest, (a + 0.05) / (b + 0.05));
            }
            return lowest;
        }""",
        index,
    )


def test_nothing_is_fetched_by_a_view(notebook: Opened) -> None:
    page = notebook(SETUP, "turn = Turning(); turn.call('lookup', '{}', 'r')", "turn.end()")
    page.run_and_wait(0)
    before = len(page.requests)
    page.run_and_wait(1)
    page.output(1).locator("summary", has_text="lookup").wait_for()
    page.run_and_wait(2)
    page.output(1).get_by_text("Finished").wait_for()
    fetched = [
        address for address in page.requests[before:] if not address.startswith((page.server.base, "blob:", "data:"))
    ]
    assert fetched == []


def test_status_is_announced_politely(notebook: Opened) -> None:
    page = notebook(SETUP, "turn = Turning(); turn.say('x')")
    for index in (0, 1):
        page.run_and_wait(index)
    status = page.output(1).get_by_role("status")
    status.wait_for()
    assert status.get_attribute("aria-live") == "polite"
    # The region is there before the first message of the turn is.
    page.output(1).locator('[aria-busy="true"]').wait_for()
