"""Messages, their content blocks and where they came from.

A message is its JSON: `Message` is a frozen mapping with the keys of the session file and named access to them. The same
object travels through inbox, log, derivation and request.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from nbagent.types.frozen import FrozenList, Record, freeze

__all__ = (
    "Message",
    "Role",
    "assistant_message",
    "image_block",
    "new_id",
    "reasoning_block",
    "system_message",
    "text_block",
    "text_of",
    "tool_call_block",
    "tool_message",
    "user_message",
)

Role = Literal["system", "developer", "user", "assistant", "tool"]


class Message(Record):
    """One message: `{id, role, content, source}`, and `toolCallId`, `isError` on tool results."""

    __slots__ = ()

    @property
    def id(self) -> str:
        return self["id"]

    @property
    def role(self) -> Role:
        return self["role"]

    @property
    def content(self) -> list[dict[str, Any]]:
        """The content blocks, in order."""
        return self["content"]

    @property
    def source(self) -> dict[str, Any]:
        """Where it came from; always has `kind`."""
        return self["source"]

    @property
    def tool_call_id(self) -> str | None:
        return self.get("toolCallId")

    @property
    def is_error(self) -> bool:
        return bool(self.get("isError", False))

    @property
    def text(self) -> str:
        """The text blocks joined."""
        return text_of(self["content"])

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The tool call blocks, in order."""
        return [block for block in self["content"] if block["type"] == "tool-call"]


def new_id() -> str:
    """A fresh message id."""
    return uuid.uuid4().hex


def text_block(text: str) -> dict[str, Any]:
    """`{type: text, text}`."""
    return {"type": "text", "text": text}


def reasoning_block(text: str) -> dict[str, Any]:
    """`{type: reasoning, text}`."""
    return {"type": "reasoning", "text": text}


def tool_call_block(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """`{type: tool-call, id, name, arguments}`; `arguments` is the model's raw string."""
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}


def image_block(media_type: str, data: str) -> dict[str, Any]:
    """`{type: image, mediaType, data}`; `data` is base64."""
    return {"type": "image", "mediaType": media_type, "data": data}


def text_of(content: Sequence[Mapping[str, Any]]) -> str:
    """The text blocks of `content` joined."""
    return "".join(block["text"] for block in content if block["type"] == "text")


def user_message(
    text: str | Sequence[Mapping[str, Any]], *, id: str | None = None, source: Mapping[str, Any] | None = None
) -> Message:
    """A message from the user's side.

    Args:
        text: The text, or content blocks.
        id: Stable identity; a fresh one by default.
        source: Where it came from, `{kind: user}` by default.
    """
    return _message(id, "user", _content(text), source or {"kind": "user"})


def system_message(text: str, *, id: str | None = None, source: Mapping[str, Any] | None = None) -> Message:
    """A system prompt version; an empty text gives no content."""
    return _message(
        id,
        "system",
        [text_block(text)] if text else [],
        source or {"kind": "plugin", "plugin": "nbagent/system-prompt"},
    )


def assistant_message(
    content: Sequence[Mapping[str, Any]],
    *,
    provider: str,
    model: str,
    id: str | None = None,
    replay_state: Mapping[str, Any] | None = None,
) -> Message:
    """What a model answered; `replay_state` is opaque and returned only to the route that gave it."""
    source: dict[str, Any] = {"kind": "model", "provider": provider, "model": model}
    if replay_state is not None:
        source["replayState"] = replay_state
    return _message(id, "assistant", content, source)


def tool_message(
    call_id: str, content: Sequence[Mapping[str, Any]], *, is_error: bool, id: str | None = None
) -> Message:
    """The result of a tool call."""
    return _message(id, "tool", content, {"kind": "tool", "callId": call_id}, toolCallId=call_id, isError=is_error)


def _content(text: str | Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return [text_block(text)] if isinstance(text, str) else text


def _message(
    id: str | None, role: Role, content: Sequence[Mapping[str, Any]], source: Mapping[str, Any], **extra: Any
) -> Message:
    blocks = FrozenList([freeze(dict(block)) for block in content])
    fields = {"id": id or new_id(), "role": role, "content": blocks, "source": freeze(dict(source)), **extra}
    return Message(freeze(fields))
