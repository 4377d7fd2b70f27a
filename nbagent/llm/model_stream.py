"""The chunks of one call, whose listeners are asked before the first chunk is."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any

from nbagent.types.stream import StreamChunk

__all__ = ("ModelStream",)


class ModelStream:
    """An async iterator of chunks. Iterating opens it; the loop opens it first, to tell a stream that cannot be made.

    Args:
        make: Asks the `llm/stream` listeners for the stream. Called once.
    """

    def __init__(self, make: Callable[[], Awaitable[AsyncIterable[StreamChunk]]]) -> None:
        self._make = make
        self._made: Any = None
        self._chunks: AsyncIterator[StreamChunk] | None = None

    async def open(self) -> None:
        """Make the stream, unless it is made already. A cancel ends the wait.

        Raises:
            Exception: What a listener raised.
        """
        if self._chunks is None:
            self._made = await self._make()
            self._chunks = aiter(self._made)

    def __aiter__(self) -> ModelStream:
        return self

    async def __anext__(self) -> StreamChunk:
        await self.open()
        assert self._chunks is not None  # noqa: S101 - opened above
        try:
            return await anext(self._chunks)
        except Exception:
            # A cancelled read is not closed here, where closing would be cancelled too: its owner shields `aclose`.
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the stream; a stream that was never made has nothing to close."""
        made, self._made = self._made, None
        close = getattr(made, "aclose", None)
        if close is not None:
            await close()
