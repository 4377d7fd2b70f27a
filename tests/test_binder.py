"""The environment that a Binder service would build, and the notebook that it would open."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
START = re.search(r"\?urlpath=lab/tree/(\S+?\.ipynb)", (ROOT / "README.md").read_text())


def test_the_readme_names_a_start_notebook_that_exists() -> None:
    assert START is not None
    assert (ROOT / START.group(1)).is_file()


def test_its_python_is_one_that_the_package_takes() -> None:
    (version,) = re.findall(r"^python-(\d+)\.(\d+)$", (ROOT / "binder" / "runtime.txt").read_text(), re.MULTILINE)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert tuple(map(int, version)) >= tuple(map(int, wanted.removeprefix(">=").split(".")))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_start_notebook_runs_in_the_environment_of_these_files(tmp_path: Path) -> None:
    checkout, environment = tmp_path / "checkout", tmp_path / "environment"
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "*.nbagent", "dist", "build", "node_modules")
    shutil.copytree(ROOT, checkout, ignore=unwanted)
    python = environment / "bin" / "python"
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_", "NBAGENT_"))
    }
    for command in (
        [sys.executable, "-m", "venv", environment],
        [python, "-m", "pip", "install", "-q", "-r", "binder/requirements.txt"],
        [python, "-c", "import jupyterlab"],
        [python, "-m", "jupyter", "execute", START.group(1)],
    ):
        done = subprocess.run(
            [str(part) for part in command], cwd=checkout, env=clean, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
