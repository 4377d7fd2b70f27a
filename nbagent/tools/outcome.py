"""What became of a tool call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nbagent.errors import InputError, NbagentError, error_chain
from nbagent.tools.results import cut
from nbagent.types.frozen import FrozenDict, FrozenList, freeze
from nbagent.types.messages import Message, new_id, text_block, user_message

__all__ = ("ToolOutcome", "aborted_outcome", "accept_content", "accept_context", "failed", "failure_of")

_SOURCE = {"kind": "plugin", "plugin": "nbagent/tools"}


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
        value: What the body returned, before it became content; none on failures.
    """

    content: FrozenList
    is_error: bool = False
    error: FrozenDict | None = None
    meta: FrozenDict | None = None
    contexts: Sequence[Message] = ()
    concludes_turn: bool = False
    value: Any = None


def failed(
    message: str, *, name: str | None = None, code: str | None = None, contexts: Sequence[Message] = ()
) -> ToolOutcome:
    """A failure that the model reads as `Error: <message>`."""
    return ToolOutcome(
        content=accept_content(cut(f"Error: {message}")),
        is_error=True,
        error=FrozenDict(name=name, code=code) if name and code else None,
        contexts=tuple(contexts),
    )


def failure_of(failure: BaseException) -> ToolOutcome:
    """The failure that an exception stands for; errors of this library carry their name and code."""
    if isinstance(failure, NbagentError):
        return failed(failure.message, name=type(failure).__name__, code=failure.code)
    return failed(_message_of(failure))


def aborted_outcome(*, dispatched: bool, contexts: Sequence[Message] = ()) -> ToolOutcome:
    """The result of a call whose turn was cancelled.

    Args:
        dispatched: Whether its body had been entered.
        contexts: Messages that had been attached.
    """
    if dispatched:
        return failed("tool call aborted", name="AbortError", code="ABORTED", contexts=contexts)
    return failed(
        "tool call aborted before dispatch", name="AbortError", code="ABORTED_BEFORE_DISPATCH", contexts=contexts
    )


def accept_content(content: Any) -> FrozenList:
    """A text or content blocks as frozen blocks.

    Raises:
        InputError: `INVALID_CONTENT`.
        NotJsonError: A block is not lossless JSON.
    """
    if isinstance(content, str):
        # Lone surrogates come out of files and other programs' output; they have no place in a log.
        text = content if content.isascii() else content.encode(errors="replace").decode()
        return FrozenList([FrozenDict(text_block(text))])
    blocks = list(cast("Iterable[Any]", content)) if _is_several(content) else [content]
    for block in blocks:
        fields = cast("Mapping[str, Any]", block if isinstance(block, Mapping) else {})
        kind = fields.get("type")
        if not isinstance(kind, str) or (kind == "text" and not isinstance(fields.get("text"), str)):
            raise InputError(
                f"content must be a text or blocks such as {text_block('...')}, got {block!r}"[:300],
                code="INVALID_CONTENT",
            )
    return FrozenList([freeze(dict(block)) for block in blocks])


def accept_context(message: Any) -> Message:
    """A text, a message or its mapping as a message for the next step.

    Raises:
        InputError: `INVALID_CONTEXT`, it is no user message.
        NotJsonError: It is not lossless JSON.
    """
    if isinstance(message, str):
        return user_message(message, source=_SOURCE)
    if isinstance(message, Message) and message.role == "user":
        return message
    if isinstance(message, Mapping):
        fields = dict(cast("Mapping[str, Any]", message))
        if fields.get("role") == "user" and "content" in fields:
            fields["content"] = accept_content(fields["content"])
            return Message.of({"id": new_id(), "source": _SOURCE, **fields})
    raise InputError(
        f"a context for the next step is a text or a user message, got {message!r}"[:300], code="INVALID_CONTEXT"
    )


def _is_several(content: Any) -> bool:
    return isinstance(content, Iterable) and not isinstance(content, Mapping)


def _message_of(failure: BaseException) -> str:
    if isinstance(failure, BaseExceptionGroup):
        return error_chain(cast("BaseException", failure))
    try:
        text = str(failure)
    except Exception:  # an exception whose str() raises must still be reported
        return f"{type(failure).__name__} (it has no printable message)"
    if not text:
        return type(failure).__name__
    # The text of some says nothing alone: 'price', 2.
    alone = isinstance(failure, Exception) and not isinstance(failure, KeyError)
    return text if alone else f"{type(failure).__name__}: {text}"
