"""What became of a tool call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbagent.types.frozen import FrozenDict, FrozenList, freeze
from nbagent.types.messages import Message, text_block

__all__ = ("ToolOutcome", "aborted_outcome", "failed")


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result of a call, as it is logged and told to the model.

    Attributes:
        content: Content blocks for the model.
        is_error: Whether the call failed.
        error: `{name, code}` of a failure that has a code.
        meta: More about the result, for views.
        contexts: Messages that go into the next step.
        concludes_turn: Whether the turn may end after this step.
        value: What the body returned, before it became content.
    """

    content: FrozenList
    is_error: bool = False
    error: FrozenDict | None = None
    meta: FrozenDict | None = None
    contexts: Sequence[Message] = field(default=())
    concludes_turn: bool = False
    value: Any = None


def failed(
    message: str, *, name: str | None = None, code: str | None = None, contexts: Sequence[Message] = ()
) -> ToolOutcome:
    """A failure that the model reads as `Error: <message>`."""
    error: Mapping[str, str] | None = {"name": name, "code": code} if name and code else None
    return ToolOutcome(
        content=freeze([text_block(f"Error: {message}")]),
        is_error=True,
        error=FrozenDict(error) if error is not None else None,
        contexts=contexts,
    )


def aborted_outcome(*, dispatched: bool, contexts: Sequence[Message] = ()) -> ToolOutcome:
    """The result of a call whose turn was cancelled.

    Args:
        dispatched: Whether its body had been entered.
        contexts: Messages that the body had attached.
    """
    if dispatched:
        return failed("tool call aborted", name="AbortError", code="ABORTED", contexts=contexts)
    return failed(
        "tool call aborted before dispatch", name="AbortError", code="ABORTED_BEFORE_DISPATCH", contexts=contexts
    )
