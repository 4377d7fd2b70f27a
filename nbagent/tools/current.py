"""What a tool body can know and say about the call it serves."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from nbagent.cancellation import CancelSignal
from nbagent.errors import LifecycleError
from nbagent.tools.outcome import accept_context
from nbagent.types.messages import Message

__all__ = ("CurrentCall", "current_call", "serving")

_current: ContextVar[CurrentCall | None] = ContextVar("nbagent_current_call", default=None)


class CurrentCall:
    """The call that a body serves.

    Attributes:
        call_id: The model's id of the call.
        signal: Aborts when the turn is cancelled; `signal.aborted` may be read from any thread, the rest of it belongs
            to the loop's thread.
    """

    def __init__(self, call_id: str, signal: CancelSignal) -> None:
        self.call_id = call_id
        self.signal = signal
        self.contexts: list[Message] = []
        self.concluded = False

    def conclude_turn(self) -> None:
        """Let the turn end after this step, when no input waits and the call succeeds."""
        self.concluded = True

    def attach_context(self, message: str | Message | Mapping[str, Any]) -> None:
        """Put a message into the next step, after this call's result.

        Raises:
            InputError: `INVALID_CONTEXT`, it is neither a text nor a user message.
        """
        self.contexts.append(accept_context(message))


def current_call() -> CurrentCall:
    """The call that the calling tool body serves.

    Raises:
        LifecycleError: `NO_CURRENT_CALL`, called outside a tool body.
    """
    call = _current.get()
    if call is None:
        raise LifecycleError("no tool call is running here: use this inside a tool's body", code="NO_CURRENT_CALL")
    return call


@contextmanager
def serving(call: CurrentCall) -> Generator[None]:
    """Make `call` the current one of what runs inside."""
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)
