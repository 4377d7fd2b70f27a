"""Who may import whom, read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nbagent"
LAYERS = (
    ("errors", "registration"),
    ("types",),
    ("secrets",),
    ("logs",),
    ("cancellation",),
    ("hooks",),
    ("session",),
    ("storage",),
    ("llm",),
    ("tools",),
    ("agent",),
    ("testing", "notebook", "cli"),
)
"""From the ground up. A layer imports from those before it; folders of one layer do not know each other."""

RANK = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}
JUPYTER = frozenset({"IPython", "ipywidgets", "anywidget", "traitlets"})
HEAVY = ("IPython", "ipywidgets", "anywidget", "httpx", "pydantic")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.Module) -> Iterator[str]:
    """Everything a module imports, also inside functions and for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their module in full"
            yield node.module or ""
            if node.module == "nbagent":
                yield from (f"nbagent.{alias.name}" for alias in node.names)


def modules() -> list[Path]:
    # The root package hands out names lazily, and `__main__` is the command.
    roots = {PACKAGE / "__init__.py", PACKAGE / "__main__.py"}
    return sorted(path for path in PACKAGE.rglob("*.py") if path not in roots)


def test_every_module_belongs_to_a_layer() -> None:
    assert {room_of(path) for path in modules()} == set(RANK)


@pytest.mark.parametrize("room", RANK)
def test_a_room_imports_only_from_the_rooms_below_it(room: str) -> None:
    wrong: list[str] = []
    for path in modules():
        if room_of(path) != room:
            continue
        for name in imports(ast.parse(path.read_text())):
            parts = name.split(".")
            if parts[0] != "nbagent" or len(parts) == 1 or parts[1] not in RANK or parts[1] == room:
                continue
            if RANK[parts[1]] >= RANK[room]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_only_the_notebook_knows_jupyter() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules()
        if room_of(path) != "notebook"
        for name in imports(ast.parse(path.read_text()))
        if name.split(".")[0] in JUPYTER
    ]
    assert not wrong


def loaded_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("code", ["import nbagent", "import nbagent.cli"])
def test_importing_the_package_loads_nothing_heavy(code: str) -> None:
    assert not loaded_after(code) & set(HEAVY)


def test_the_loop_runs_without_jupyter() -> None:
    code = "import nbagent, nbagent.storage, nbagent.testing\nnbagent.Runtime, nbagent.tool, nbagent.testing.text"
    assert not loaded_after(code) & JUPYTER
