"""One llama.cpp server for all tests of the folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.local_model.server import LocalServer, missing, running_server


@pytest.fixture(scope="session")
def local_server() -> Iterator[LocalServer]:
    """The running server; its tests are skipped, with the command that helps, where it is not installed."""
    needed = missing()
    if needed:
        pytest.skip(f"the local model is not installed: {needed}")
    with running_server() as server:
        yield server
