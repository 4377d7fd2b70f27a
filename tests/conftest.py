"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Async tests run on both event loops that anyio supports."""
    return request.param
