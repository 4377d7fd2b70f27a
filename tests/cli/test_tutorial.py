"""The command `nbagent`, run as people run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import nbformat
import pytest
from filelock import FileLock
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import nbagent
from nbagent.cli.tutorial import _tutorial, execute, shipped_notebook, transcript, working_copy
from nbagent.errors import LifecycleError, StorageError
from tests.browser.harness import free_port

NAME = "01-first-agent.ipynb"


def command(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nbagent", *arguments],
        cwd=cwd,
        env={**os.environ, "NBAGENT_DEMO_DELAY_MS": "0", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def notebook_of(*cells: str) -> Any:
    return new_notebook(cells=[new_code_cell(cell) for cell in cells])


class TestUse:
    def test_it_tells_its_version(self, tmp_path: Path) -> None:
        done = command("--version", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"nbagent {nbagent.__version__}\n")

    @pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
    def test_it_explains_itself(self, tmp_path: Path, arguments: list[str]) -> None:
        done = command(*arguments, cwd=tmp_path)
        assert done.returncode == 0
        assert "tutorial" in done.stdout

    def test_the_command_explains_itself(self, tmp_path: Path) -> None:
        done = command("tutorial", "-h", cwd=tmp_path)
        assert done.returncode == 0
        assert "--lab" in done.stdout

    @pytest.mark.parametrize("arguments", [["nothing"], ["tutorial", "--nothing"], ["tutorial", "01", "extra"]])
    def test_a_wrong_use_is_exit_code_2_and_makes_nothing(self, tmp_path: Path, arguments: list[str]) -> None:
        assert command(*arguments, cwd=tmp_path).returncode == 2
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["99", "01-first", "../notebooks/01-first-agent.ipynb", ""])
    def test_a_tutorial_that_does_not_exist_is_one_line_that_names_those_that_do(
        self, tmp_path: Path, name: str
    ) -> None:
        done = command("tutorial", name, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr == f"nbagent: there is no tutorial {name!r}; there is: 01-first-agent\n"
        assert list(tmp_path.iterdir()) == []

    def test_an_option_for_jupyterlab_whose_value_stands_apart_is_told(self, tmp_path: Path) -> None:
        done = command("tutorial", "--lab", "--port", "8889", cwd=tmp_path)
        assert done.returncode == 1
        assert "--option=value" in done.stderr
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["01", "01-first-agent", NAME])
    def test_a_tutorial_is_named_by_its_number_or_its_file(self, name: str) -> None:
        assert _tutorial(name, lab_options=False) == NAME

    def test_without_jupyterlab_it_says_how_to_get_it(self, tmp_path: Path) -> None:
        code = "import sys; sys.modules['jupyterlab'] = None; from nbagent.cli import main; sys.exit(main())"
        done = subprocess.run(
            [sys.executable, "-c", code, "tutorial", "--lab"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert ".venv/bin/pip install '.[lab]'" in done.stderr
        assert list(tmp_path.iterdir()) == []


class TestWorkingCopy:
    def test_it_is_the_shipped_notebook(self, tmp_path: Path) -> None:
        path, note = working_copy(NAME, tmp_path)
        assert (path, note) == (tmp_path / NAME, "")
        assert nbformat.read(path, as_version=4) == nbformat.read(shipped_notebook(NAME), as_version=4)

    def test_a_copy_that_was_only_run_is_used_again(self, tmp_path: Path) -> None:
        path, _ = working_copy(NAME, tmp_path)
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = []
        nbformat.write(notebook, path)
        assert working_copy(NAME, tmp_path) == (path, "")

    def test_a_changed_copy_is_never_written_to(self, tmp_path: Path) -> None:
        path, _ = working_copy(NAME, tmp_path)
        notebook = nbformat.read(path, as_version=4)
        notebook.cells[1].source += "\nmine"
        nbformat.write(notebook, path)
        before = path.read_bytes()
        other, note = working_copy(NAME, tmp_path)
        assert other == tmp_path / "01-first-agent-2.ipynb"
        assert "changed and is left alone" in note
        assert path.read_bytes() == before

    @pytest.mark.parametrize("content", ["", "no notebook", "{}"])
    def test_a_file_that_is_no_notebook_is_left_alone(self, tmp_path: Path, content: str) -> None:
        (tmp_path / NAME).write_text(content)
        path, _ = working_copy(NAME, tmp_path)
        assert path.name == "01-first-agent-2.ipynb"
        assert (tmp_path / NAME).read_text() == content

    def test_to_open_a_changed_copy_it_is_kept(self, tmp_path: Path) -> None:
        path, _ = working_copy(NAME, tmp_path)
        notebook = nbformat.read(path, as_version=4)
        notebook.cells.append(new_markdown_cell("mine"))
        nbformat.write(notebook, path)
        assert working_copy(NAME, tmp_path, keep_changes=True) == (path, " (with your changes)")

    def test_the_shipped_notebook_itself_is_no_copy(self, tmp_path: Path) -> None:
        (tmp_path / NAME).symlink_to(shipped_notebook(NAME))
        assert working_copy(NAME, tmp_path)[0].name == "01-first-agent-2.ipynb"

    def test_a_folder_that_cannot_be_written_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="cannot be written") as caught:
            working_copy(NAME, tmp_path / "missing")
        assert caught.value.code == "STORAGE_UNAVAILABLE"


class TestExecution:
    def test_cells_run_in_this_interpreter_and_in_the_notebooks_folder(self, tmp_path: Path) -> None:
        notebook = notebook_of("import os, sys", "print(sys.executable, os.getcwd())")
        execute(notebook, tmp_path / "talk.ipynb")
        assert notebook.cells[1].outputs[0].text.split() == [sys.executable, str(tmp_path)]

    def test_a_failing_cell_is_one_line_and_the_outputs_before_it_stay(self, tmp_path: Path) -> None:
        notebook = notebook_of("print('before')", "def f():\n    raise ValueError('first\\nsecond')\n\nf()", "print(3)")
        lines: list[str] = []
        with pytest.raises(LifecycleError) as caught:
            execute(notebook, tmp_path / "talk.ipynb", told=lines.append)
        assert str(caught.value) == "cell 2 failed: ValueError: first"
        assert caught.value.code == "CELL_FAILED"
        assert lines == ["cell 1 of 3: print('before')", "cell 2 of 3: def f():"]
        assert notebook.cells[0].outputs[0].text == "before\n"

    def test_a_kernel_that_dies_is_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(LifecycleError) as caught:
            execute(notebook_of("import os\nos._exit(3)"), tmp_path / "talk.ipynb")
        assert caught.value.code == "KERNEL_FAILED"
        assert "in cell 1" in str(caught.value)


class TestTranscript:
    def test_it_shows_headings_code_and_plain_outputs(self) -> None:
        notebook = new_notebook(
            cells=[new_markdown_cell("# Title\n\nwords"), new_code_cell("a = 1\na"), new_code_cell("")]
        )
        result = {"output_type": "execute_result", "data": {"text/plain": "1"}, "metadata": {}, "execution_count": 1}
        stream = {"output_type": "stream", "name": "stdout", "text": "said\n"}
        error = {"output_type": "error", "ename": "ValueError", "evalue": "no\nmore", "traceback": []}
        notebook.cells[1].outputs = [nbformat.from_dict(each) for each in (stream, result, error)]
        assert transcript(notebook) == "TITLE\n\nIn [1]: a = 1\n   ...: a\n\nsaid\n\n1\n\nValueError: no"


@pytest.mark.slow
class TestTutorial:
    def test_it_runs_the_notebook_and_shows_what_it_prints(self, tmp_path: Path) -> None:
        done = command("tutorial", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert "%%agent analyst" in done.stdout
        assert '[stock(fruit="apples"): done]\n  12' in done.stdout
        assert "demo: no language model is connected" in done.stdout
        shipped = nbformat.read(shipped_notebook(NAME), as_version=4)
        ran = nbformat.read(tmp_path / NAME, as_version=4)
        assert [cell.get("outputs") for cell in ran.cells] == [cell.get("outputs") for cell in shipped.cells]
        sessions = sorted((tmp_path / "01-first-agent.nbagent").glob("*.jsonl"))
        assert [session.name.partition("-")[0] for session in sessions] == ["analyst", "counter"]
        for session in sessions:
            assert json.loads(session.read_text().partition("\n")[0])["notebook"] == NAME

    def test_it_runs_again_in_the_same_folder(self, tmp_path: Path) -> None:
        first, second = (command("tutorial", cwd=tmp_path) for _ in range(2))
        assert (first.returncode, second.returncode) == (0, 0)
        assert first.stdout == second.stdout

    def test_registered_kernels_do_not_matter(self, tmp_path: Path) -> None:
        spec = tmp_path / "share" / "kernels" / "python3"
        spec.mkdir(parents=True)
        (spec / "kernel.json").write_text(json.dumps({"argv": ["false"], "display_name": "x", "language": "python"}))
        done = command("tutorial", cwd=tmp_path, JUPYTER_PATH=str(tmp_path / "share"), JUPYTER_PREFER_ENV_PATH="0")
        assert done.returncode == 0, done.stderr

    def test_a_cell_that_fails_is_exit_code_1_and_one_line(self, tmp_path: Path) -> None:
        # Sessions need a folder of this name.
        (tmp_path / "01-first-agent.nbagent").write_text("in the way")
        done = command("tutorial", cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("nbagent: cell 3 failed: StorageError")
        assert done.stderr.count("\n") == 1
        assert "In [3]: %agent create" in done.stdout

    def test_an_interrupt_ends_it_and_its_kernel_in_one_line(self, tmp_path: Path) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "nbagent", "tutorial"],
            cwd=tmp_path,
            env={**os.environ, "NBAGENT_DEMO_DELAY_MS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Tests that run in the background inherit that interrupts are ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        while "cell 4 of" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        assert (process.returncode, said) == (130, "nbagent: stopped\n")
        locks = list((tmp_path / "01-first-agent.nbagent" / ".locks").glob("*.lock"))
        assert locks
        for lock in locks:
            # The kernel is gone, and so is what it held.
            with FileLock(lock, timeout=5):
                pass

    def test_a_terminal_that_knows_only_ascii_is_no_obstacle(self, tmp_path: Path) -> None:
        assert command("tutorial", cwd=tmp_path, PYTHONIOENCODING="ascii").returncode == 0

    def test_lab_opens_the_copy(self, tmp_path: Path) -> None:
        pytest.importorskip("jupyterlab")
        port = free_port()
        options = ("--no-browser", f"--ServerApp.port={port}", "--IdentityProvider.token=")
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "nbagent", "tutorial", "--lab", *options],
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                address = f"http://127.0.0.1:{port}/api/contents/{NAME}?content=0"
                assert answer_of(address, process)["type"] == "notebook", (tmp_path / "log").read_text()
            finally:
                process.terminate()
                process.wait(30)
        assert f"Opening {NAME}" in (tmp_path / "log").read_text()


def answer_of(address: str, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5) as response:
                return json.load(response)
        except OSError:
            time.sleep(0.2)
    return {"type": "no answer"}
