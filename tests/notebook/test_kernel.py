"""Real kernels: what a front end, a program that runs notebooks, an interrupt and a crash meet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from nbagent.testing import check_log

Start = Callable[..., Any]

SLOW = {"NBAGENT_DEMO_DELAY_MS": "60"}
BLOCKING_TOOL = """
import time, nbagent
@nbagent.tool
def block(seconds: float = 1.5) -> str:
    "Take a while."
    time.sleep(seconds)
    return "awake"
"""


def stored(kernel: Any, session: str) -> list[Any]:
    """The events of a session file, read by nobody's kernel."""
    import anyio

    from nbagent.storage import JsonlStore

    (folder,) = [path for path in kernel.cwd.iterdir() if path.suffix == ".nbagent"]

    async def read() -> list[Any]:
        handle = await JsonlStore(folder).open(session, "read")
        return await handle.read()

    return anyio.run(read)


@pytest.fixture
def refusing_server() -> Iterator[str]:
    """A model server that knows no key."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b'{"error": {"message": "no such key", "type": "authentication_error"}}'
            self.send_response(401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


# -- without a front end -----------------------------------------------------------------------------------------------


def test_the_extension_loads_quickly(start_kernel: Start) -> None:
    kernel = start_kernel(load=False)
    code = "import time; t = time.perf_counter(); get_ipython().run_line_magic('load_ext', 'nbagent'); print(time.perf_counter() - t)"
    assert float(kernel.ok(code).stdout) < 0.15
    heavy = "import sys; print([m for m in ('anywidget', 'httpx', 'pydantic', 'nbagent.agent') if m in sys.modules])"
    assert kernel.ok(heavy).stdout == "[]\n"


def test_a_headless_turn_is_published_once_at_its_end(kernel: Any) -> None:
    assert "demo model" in kernel.ok("%agent create analyst").stdout
    outcome = kernel.ok("%%agent analyst\n>>> what is it?")
    assert [kind for kind, _ in outcome.messages] == ["execute_input", "display_data"]
    assert set(outcome.displays[0]) == {"text/markdown", "text/html", "text/plain"}
    assert "> >>> what is it?" in outcome.text


def test_a_headless_background_turn_publishes_nothing_until_wait(kernel: Any) -> None:
    kernel.ok("%agent create analyst")
    request = kernel.start("%%agent --bg\nhello")
    kernel.finish(request)
    kernel.ok("analyst.wait")
    kernel.pump(0.5)
    assert [kind for kind, _ in kernel.outcome(request).messages] == ["execute_input"]
    assert "> hello" in kernel.ok("%agent wait analyst").text


def test_what_a_tool_prints_lands_in_the_launching_cell(kernel: Any) -> None:
    kernel.ok(
        "import nbagent\n@nbagent.tool\ndef speak() -> str:\n    'Say it.'\n    print('out loud')\n    return 'said'"
    )
    kernel.ok("%agent create analyst --tools speak")
    request = kernel.start("%%agent --bg\nplease speak")
    kernel.finish(request)
    later = kernel.ok("import time; time.sleep(1); print('another cell')")
    kernel.pump(0.3)
    assert kernel.outcome(request).stdout == "out loud\n"
    assert later.stdout == "another cell\n"


def test_a_provider_error_shows_the_transcript_and_fails_the_cell(kernel: Any, refusing_server: str) -> None:
    kernel.ok(f"%agent create analyst --model custom/m --base-url {refusing_server}")
    outcome = kernel.run("%%agent analyst --as reply\nhi")
    assert "Failed (AUTH)" in outcome.text
    assert len(outcome.lines) == 1
    assert "AUTH" in outcome.lines[0]
    assert "no such key" in outcome.lines[0]
    assert kernel.ok("reply.reason['kind']").result == "'error'"
    assert "idle" in kernel.ok("%agent list").stdout


def test_a_reload_keeps_agents_and_running_turns(start_kernel: Start) -> None:
    kernel = start_kernel(**SLOW)
    kernel.ok("%agent create analyst")
    kernel.ok("%%agent --bg --as reply\nhello")
    kernel.ok("%reload_ext nbagent")
    assert "running" in kernel.ok("%agent list").stdout
    assert "> hello" in kernel.ok("%agent wait").text
    kernel.ok("%unload_ext nbagent")
    assert kernel.ok("analyst.status").result == "'idle'"


def test_the_folder_is_the_notebooks(start_kernel: Start, tmp_path: Path) -> None:
    (tmp_path / "talk.ipynb").touch()
    kernel = start_kernel(NBAGENT_NOTEBOOK=str(tmp_path / "talk.ipynb"))
    kernel.ok("%agent create analyst")
    kernel.ok("%%agent\nhello")
    (file,) = (tmp_path / "talk.nbagent").glob("*.jsonl")
    assert file.stem.startswith("analyst-session-")
    kernel.ok("import os; os.chdir('/')")
    kernel.ok("%agent create writer")
    kernel.ok("%%agent\nhello")
    assert len(list((tmp_path / "talk.nbagent").glob("*.jsonl"))) == 2


def test_a_notebook_that_cannot_be_found_is_one_line(start_kernel: Start) -> None:
    kernel = start_kernel(NBAGENT_NOTEBOOK="missing.ipynb")
    outcome = kernel.run("%agent create analyst")
    assert len(outcome.lines) == 1
    assert "NOTEBOOK_NOT_FOUND" in outcome.lines[0]
    assert kernel.run("analyst").error is not None


def test_tab_completes_in_a_kernel(kernel: Any) -> None:
    kernel.ok("%agent create analyst")
    assert kernel.complete("%agent st") == ["steer"]
    assert kernel.complete("%%agent an") == ["analyst"]
    assert kernel.complete("x = 1\n%agent create b --mo") == ["--model"]


# -- interrupts --------------------------------------------------------------------------------------------------------


def interrupted(kernel: Any, code: str, *, after: float = 0.6, times: int = 1) -> tuple[Any, float]:
    request = kernel.start(code)
    kernel.pump(after)
    began = time.monotonic()
    for _ in range(times):
        kernel.interrupt()
        kernel.pump(0.25 if times > 1 else 0)
    outcome = kernel.finish(request)
    return outcome, time.monotonic() - began


@pytest.mark.parametrize(
    "code",
    [
        "%%agent slow\nhello",
        "%agent send slow hello",
        "if True:\n    %agent send slow hello",
        "%%capture\n%%agent\nhello",
    ],
)
def test_an_interrupt_keeps_the_text_and_ends_the_cell_with_one_line(start_kernel: Start, code: str) -> None:
    kernel = start_kernel(**SLOW)
    kernel.ok("%agent create slow")
    outcome, took = interrupted(kernel, code)
    assert took < 0.5
    assert outcome.error is not None
    assert outcome.error["ename"] == "KeyboardInterrupt"
    assert outcome.lines == ["KeyboardInterrupt: stopped; the text so far is kept"]
    if "capture" not in code:
        assert "Stopped" in outcome.text
    assert kernel.ok("slow.status").result == "'idle'"
    assert "Your prompt" in kernel.ok("slow.session.messages()[-1].text").result
    outcome, _ = interrupted(kernel, code)
    assert outcome.error is not None


def test_an_interrupt_of_run_is_heard_and_a_later_cell_is_interrupted_as_usual(start_kernel: Start) -> None:
    kernel = start_kernel(**SLOW)
    kernel.ok("%agent create slow")
    outcome, took = interrupted(kernel, "slow.run('hello')")
    assert took < 0.5
    assert outcome.lines == ["KeyboardInterrupt: stopped; the text so far is kept"]
    outcome, took = interrupted(kernel, "import time; time.sleep(10)")
    assert took < 1
    assert "time.sleep" in "\n".join(outcome.lines)


def test_a_second_interrupt_does_not_wait_for_a_tool_that_blocks(start_kernel: Start) -> None:
    kernel = start_kernel()
    kernel.ok(BLOCKING_TOOL)
    kernel.ok("%agent create slow --tools block")
    outcome, took = interrupted(kernel, "%%agent\nblock(seconds=2.5)", times=2)
    assert took < 1.5
    assert "no longer waiting" in outcome.lines[0]
    kernel.ok("%agent wait slow")
    events = stored(kernel, kernel.ok("print(slow.id)").stdout.strip())
    check_log(events)
    assert events[-1].data["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}


def test_an_interrupt_of_wait_leaves_the_agent_at_work(start_kernel: Start) -> None:
    kernel = start_kernel(**SLOW)
    kernel.ok("%agent create slow")
    kernel.ok("%%agent --bg\nhello")
    outcome, took = interrupted(kernel, "%agent wait", after=0.3)
    assert took < 0.5
    assert "slow goes on" in outcome.lines[0]
    assert "Finished" in kernel.ok("%agent wait").text


# -- with a front end --------------------------------------------------------------------------------------------------


def test_a_live_turn_is_a_view_that_becomes_plain_output(kernel: Any) -> None:
    welcome = kernel.ok("%agent create analyst", cell_id="c1").stdout
    assert "Session: untitled-" in welcome
    assert "NBAGENT_NOTEBOOK" in welcome
    outcome = kernel.ok("%%agent analyst\nhello", cell_id="c2")
    assert len(outcome.displays) == 1
    assert "application/vnd.jupyter.widget-view+json" in outcome.displays[0]
    assert set(outcome.updates[-1]) == {"text/markdown", "text/html", "text/plain"}
    assert "> hello" in outcome.updates[-1]["text/plain"]


def test_a_live_background_turn_streams_on_while_other_cells_run(start_kernel: Start) -> None:
    kernel = start_kernel(**SLOW)
    kernel.ok("%agent create analyst", cell_id="c1")
    began = time.monotonic()
    request = kernel.start("%%agent --bg\nhello", cell_id="c2")
    kernel.finish(request)
    assert time.monotonic() - began < 1.5
    assert kernel.ok("import time; time.sleep(1); print('busy')", cell_id="c3").stdout == "busy\n"
    waited = kernel.ok("%agent wait", cell_id="c4")
    kernel.pump(0.5)
    # An update finds its output by the display's id; before version 7 ipykernel sends it in the name of the last cell.
    updates = [*kernel.outcome(request).updates, *waited.updates]
    assert "Finished" in updates[-1]["text/plain"]


def test_a_live_turn_under_capture_is_captured_as_plain_output(kernel: Any) -> None:
    kernel.ok("%agent create analyst", cell_id="c1")
    outcome = kernel.ok("%%capture kept\n%%agent\nhello", cell_id="c2")
    assert outcome.displays == []
    assert "> hello" in kernel.ok("print(kept.outputs[0].data['text/plain'])").stdout


def test_a_live_interrupt_keeps_the_text_in_the_output(start_kernel: Start) -> None:
    kernel = start_kernel(**SLOW)
    kernel.ok("%agent create slow", cell_id="c1")
    request = kernel.start("%%agent\nhello", cell_id="c2")
    kernel.pump(0.8)
    kernel.interrupt()
    outcome = kernel.finish(request)
    assert "Stopped" in outcome.updates[-1]["text/plain"]
    assert "Your prompt" in outcome.updates[-1]["text/plain"]
    assert outcome.lines == ["KeyboardInterrupt: stopped; the text so far is kept"]


@pytest.mark.parametrize(("wish", "cell_id", "live"), [("1", None, True), ("0", "c1", False)])
def test_the_environment_decides_whether_a_run_is_live(
    start_kernel: Start, wish: str, cell_id: str | None, live: bool
) -> None:
    kernel = start_kernel(NBAGENT_LIVE=wish)
    kernel.ok("%agent create analyst", cell_id=cell_id)
    assert bool(kernel.ok("%%agent\nhi", cell_id=cell_id).updates) is live


def test_replacing_a_live_name_says_how_to_get_the_old_one_back(kernel: Any) -> None:
    kernel.ok("%agent create analyst --session first", cell_id="c1")
    kernel.ok("%%agent\nhi", cell_id="c2")
    assert "--session first brings it back" in kernel.ok("%agent create analyst", cell_id="c3").stdout
    assert (
        "goes on with a stored session: 1 turn"
        in kernel.ok("%agent create analyst --session first", cell_id="c4").stdout
    )


# -- crashes and ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["hello", "block(seconds=30)"])
def test_a_killed_kernel_loses_nothing_that_was_shown(start_kernel: Start, tmp_path: Path, prompt: str) -> None:
    (tmp_path / "talk.ipynb").touch()
    env = {"NBAGENT_NOTEBOOK": str(tmp_path / "talk.ipynb"), **SLOW}
    first = start_kernel(**env)
    first.ok(BLOCKING_TOOL)
    first.ok("%agent create analyst --session talk --tools block")
    first.ok(f"%%agent --bg\n{prompt}")
    first.pump(1.5)
    shown = first.ok("import nbagent.notebook.roster as r; print(r.roster.get('analyst').drawn()['text/plain'])").stdout
    first.kill()
    second = start_kernel(**env)
    second.ok(BLOCKING_TOOL)
    second.ok("import os; os.environ['NBAGENT_DEMO_DELAY_MS'] = '0'")
    welcome = second.ok("%agent create analyst --session talk --tools block").stdout
    assert "goes on with a stored session: 1 turn" in welcome
    kept = second.ok("%agent show").text
    for word in shown.split("[")[0].replace("…", "").split():
        assert word in kept
    assert "Finished" in second.ok("%%agent\ngo on").text
    events = stored(second, "talk")
    check_log(events)
    calls = [event.data["callId"] for event in events if event.type == "tool/call"]
    results = [event.data["message"]["toolCallId"] for event in events if event.type == "tool/result"]
    assert calls == results


def test_two_kernels_cannot_write_one_session(start_kernel: Start, tmp_path: Path) -> None:
    (tmp_path / "talk.ipynb").touch()
    env = {"NBAGENT_NOTEBOOK": str(tmp_path / "talk.ipynb")}
    first, second = start_kernel(**env), start_kernel(**env)
    first.ok("%agent create analyst --session talk")
    first.ok("%%agent\nhello")
    outcome = second.run("%agent create analyst --session talk")
    assert "SESSION_LOCKED" in outcome.lines[0]
    assert len(outcome.lines) <= 2
    assert second.run("analyst").error is not None
    first.ok("%agent dispose")
    second.ok("%agent create analyst --session talk")


def test_a_kernel_that_is_shut_down_ends_its_turns(start_kernel: Start) -> None:
    kernel = start_kernel(**SLOW)
    kernel.ok("%agent create analyst --session talk")
    kernel.ok("%%agent --bg\nhello")
    kernel.pump(0.5)
    began = time.monotonic()
    kernel.client.shutdown()
    while kernel.manager.is_alive() and time.monotonic() - began < 5:
        time.sleep(0.02)
    assert time.monotonic() - began < 2
    events = stored(kernel, "talk")
    check_log(events)
    assert events[-1].data["reason"] == {"kind": "aborted", "reason": {"kind": "disposed"}}
