"""The documentation says what the code does."""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from nbagent.llm import failures
from nbagent.notebook.verbs import CELL, VERBS
from nbagent.types.events import CORE_TYPES
from nbagent.types.stream import RETRYABLE_CODES

ROOT = Path(__file__).parents[1]
INDEX = (ROOT / "docs" / "index.md").read_text()
README = (ROOT / "README.md").read_text()
CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
ROW = re.compile(r"^\| `([A-Z_]+)` \| (.+?) \|(?: (yes|no) \|)?$", re.MULTILINE)


def codes_in(tree: ast.AST) -> Iterator[str]:
    """What a module gives as a code: `code="X"`, `{"code": "X"}` and `default_code = "X"`."""
    for node in ast.walk(tree):
        values: list[ast.AST] = []
        if isinstance(node, ast.keyword) and node.arg == "code":
            values.append(node.value)
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            values += [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "code"]
        elif isinstance(node, ast.Assign) and any(getattr(name, "id", "") == "default_code" for name in node.targets):
            values.append(node.value)
        for value in values:
            for part in ast.walk(value):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and CODE.fullmatch(part.value):
                    yield part.value


def codes_of_the_package() -> set[str]:
    found = {code for path in (ROOT / "nbagent").rglob("*.py") for code in codes_in(ast.parse(path.read_text()))}
    return found | set(failures._BY_STATUS.values()) | {code for code, _ in failures._BY_WORD} | RETRYABLE_CODES


def test_every_code_is_explained_and_no_other() -> None:
    explained = {code for code, _, _ in ROW.findall(INDEX) if not code.startswith("NBAGENT_")}
    assert explained - codes_of_the_package() == set()
    assert codes_of_the_package() - explained == set()


def test_the_table_says_which_failures_are_tried_again() -> None:
    assert {code for code, _, again in ROW.findall(INDEX) if again == "yes"} == RETRYABLE_CODES


def test_every_event_type_is_explained() -> None:
    assert [kind for kind in CORE_TYPES if f"`{kind}`" not in INDEX] == []


def test_every_variable_that_sets_something_is_explained() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "nbagent").rglob("*.py"))
    named = set(re.findall(r"\"(NBAGENT_[A-Z_]+)\"", source))
    assert {name for name in named if f"`{name}`" not in INDEX} == set()


def test_the_readme_names_only_verbs_and_options_that_exist() -> None:
    verbs = set(re.findall(r"(?<!%)%agent ([a-z]+)", README))
    assert verbs <= set(VERBS)
    options = {option.name for verb in (*VERBS.values(), CELL) for option in verb.options}
    programs = {"--lab", "--no-deps"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - programs <= options


@pytest.mark.parametrize("page", ["tools.md"])
def test_the_examples_of_a_page_run_one_after_another(page: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict[str, object] = {}

    async def run() -> None:
        for number, block in enumerate(blocks, start=1):
            code = compile(block, f"{page}, example {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            outcome = types.FunctionType(code, names)()
            if outcome is not None:
                await outcome

    anyio.run(run)


def test_the_pages_link_to_files_that_exist() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks" / "README.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
