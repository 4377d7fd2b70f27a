"""Plain Python programs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

PRELUDE = "import nbagent, sys, time\n"


def run(code: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + code],
        cwd=cwd,
        env={**os.environ, "NBAGENT_DEMO_DELAY_MS": "0", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_script_makes_an_agent_and_is_told_where_its_sessions_are(home: Path) -> None:
    done = run("agent = nbagent.create('analyst')\nprint(agent.run('hello').turn)\nnbagent.create('writer')", home)
    assert (done.returncode, done.stdout) == (0, "1\n")
    (folder,) = home.glob("untitled-*.nbagent")
    assert done.stderr == f"nbagent: no notebook is known; sessions are kept in {folder}\n"
    assert len(list(folder.glob("*.jsonl"))) == 1


def test_a_script_that_names_the_folder_is_told_nothing(home: Path) -> None:
    done = run("nbagent.create(session_dir='kept').run('hello')", home)
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(home.glob("untitled-*"))


def test_ipython_and_the_front_end_are_not_imported(home: Path) -> None:
    code = "nbagent.create(session_dir='kept').run('hello')\nprint([m for m in ('IPython', 'ipywidgets', 'anywidget') if m in sys.modules])"
    assert run(code, home).stdout == "[]\n"


def test_tools_of_a_script_are_found_by_name(home: Path) -> None:
    code = "def look() -> str:\n    'Look.'\n    return 'seen'\nagent = nbagent.create(tools=['look'], session_dir='kept')\nprint([c.result for c in agent.run('look').tool_calls])"
    assert run(code, home).stdout == "['seen']\n"


@pytest.mark.parametrize("tail", ["", "sys.exit(3)", "raise SystemExit(3)"])
def test_a_script_ends_at_once_and_ends_its_turns(home: Path, tail: str) -> None:
    began = time.monotonic()
    code = f"a = nbagent.create(session='talk', session_dir='kept')\na.start('hello')\ntime.sleep(0.3)\n{tail}"
    done = run(code, home, NBAGENT_DEMO_DELAY_MS="200")
    assert done.returncode == (3 if tail else 0), done.stderr
    assert time.monotonic() - began < 6
    assert '"disposed"' in (home / "kept" / "talk.jsonl").read_text().splitlines()[-1]


def test_a_script_does_not_wait_for_a_tool_that_blocks(home: Path) -> None:
    code = """
@nbagent.tool
def block() -> str:
    'Block.'
    time.sleep(30)
    return ''
agent = nbagent.create(tools=[block], session_dir='kept')
agent.start('please block')
time.sleep(0.5)
"""
    began = time.monotonic()
    assert run(code, home).returncode == 0
    assert time.monotonic() - began < 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_is_told_and_can_make_its_own(home: Path) -> None:
    code = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
agent = nbagent.create('analyst', session='talk', session_dir='kept')
agent.run('hello')
child = os.fork()
if child == 0:
    try:
        agent.run('from the child')
    except Exception as error:
        print(error.code, flush=True)
    own = nbagent.create('other', session_dir='kept')
    print(own.run('hi').turn, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(agent.run('again').turn)
"""
    done = run(code, home)
    assert done.stdout == "FORKED\n1\n2\n", done.stderr
