"""What speaks to one kind of model server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from nbagent.cancellation import CancelSignal
from nbagent.types.config import ModelFacts, Request
from nbagent.types.stream import StreamChunk

__all__ = ("Adapter",)


@runtime_checkable
class Adapter(Protocol):
    """A route's way to its models. Adapters may also have `async aclose()`."""

    def facts(self, model: str) -> ModelFacts:
        """What is known of a model."""
        ...

    def stream(self, request: Request, signal: CancelSignal) -> AsyncIterator[StreamChunk]:
        """Ask the model; chunks as they arrive, exactly one `finish` last.

        Failures of the server are a `finish` of kind `error`; an abort of `signal` closes the connection.
        """
        ...
