"""One server and one browser for each module of browser tests; a fresh page and notebook name for each test."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.harness import NotebookPage, Server, chromium, running_browser, running_server

_names = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if importlib.util.find_spec("jupyterlab") is None:
        pytest.skip("JupyterLab is not installed")
    root = str(Path(__file__).parents[2])
    with running_server(tmp_path_factory.mktemp("lab"), {"PYTHONPATH": root}) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Any]:
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed")
    if chromium() is None:
        pytest.skip("there is no Chromium on the path")
    with running_browser() as running:
        yield running


@pytest.fixture
def notebook(server: Server, browser: Any) -> Iterator[Callable[..., NotebookPage]]:
    """`notebook(cell, cell, ...)` opens a new notebook with these cells in a new page."""
    pages: list[NotebookPage] = []

    def opened(*cells: str) -> NotebookPage:
        page = NotebookPage(browser.new_page(viewport={"width": 1200, "height": 1000}), server)
        pages.append(page)
        name = f"notebook-{next(_names)}.ipynb"
        server.write(name, list(cells))
        page.open(name)
        return page

    yield opened
    for page in pages:
        page.shut_down_kernel()
        page.page.close()
