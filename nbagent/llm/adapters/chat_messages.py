"""One message of a history as a chat-completions message."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from nbagent.llm.dialects import ChatDialect
from nbagent.types.messages import Message

__all__ = ("ChatMessages", "unanswered")

_NO_OUTPUT = "(no output)"
_NO_RESULT = "(no result is recorded: the call may have run or not)"
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


class ChatMessages:
    """Encodes for one server.

    Args:
        dialect: How the server differs.
        provider: The route that asks; what a route attached to its answers goes back to it alone.
        model: The model that is asked.
    """

    def __init__(self, dialect: ChatDialect, provider: str, model: str) -> None:
        self._dialect = dialect
        self._provider = provider
        self._model = model

    def message(self, message: Message, ids: Sequence[str]) -> dict[str, Any] | None:
        """The message as the server wants it, or none when it has nothing to say there.

        Args:
            message: Any message of a history.
            ids: Under which its tool calls, or the call that it answers, are sent.
        """
        role = message["role"]
        if role == "system":
            text = message.text
            return {"role": "system", "content": text} if text.strip() else None
        if role == "user":
            return {"role": "user", "content": self._user_content(message)}
        if role == "tool":
            return {"role": "tool", "tool_call_id": ids[0], "content": _plain(message) or _NO_OUTPUT}
        if role == "assistant":
            return self._assistant(message, ids)
        return None

    def images_of_result(self, message: Message) -> list[bytes]:
        """The images of a tool result as a message of the user: a result itself can hold only text."""
        if not self._dialect.images:
            return []
        images = [_image(block) for block in message["content"] if block["type"] == "image"]
        if not images:
            return []
        content = [{"type": "text", "text": "Images of the tool result:"}, *images]
        return [orjson.dumps({"role": "user", "content": content})]

    def _user_content(self, message: Message) -> str | list[dict[str, Any]]:
        blocks = message["content"]
        if not self._dialect.images or all(block["type"] != "image" for block in blocks):
            return _plain(message) or "(empty message)"
        parts: list[dict[str, Any]] = []
        for block in blocks:
            if block["type"] == "image":
                parts.append(_image(block))
            elif block["type"] == "text" and block["text"].strip():
                parts.append({"type": "text", "text": block["text"]})
        return parts

    def _assistant(self, message: Message, ids: Sequence[str]) -> dict[str, Any] | None:
        attached = self._attached(message)
        calls = self._calls(message, ids, attached.get("blocks"))
        text = message.text
        if not text.strip():
            text = ""
        if not text and not calls:
            return None
        # Never null: a message that was stored with null content is refused in every later request.
        body: dict[str, Any] = {"role": "assistant", "content": text}
        if self._dialect.returns_reasoning:
            reasoning = "".join(block["text"] for block in message["content"] if block["type"] == "reasoning")
            if reasoning or calls:
                body["reasoning_content"] = reasoning
        if calls:
            body["tool_calls"] = calls
        return {**_mapping(attached.get("message")), **body}

    def _calls(self, message: Message, ids: Sequence[str], attached: Any) -> list[dict[str, Any]]:
        blocks = message["content"]
        extras: list[Any] = cast("list[Any]", attached) if isinstance(attached, list) else []
        if len(extras) != len(blocks):
            extras = [None] * len(blocks)
        calls: list[dict[str, Any]] = []
        for block, extra in zip(blocks, extras, strict=True):
            if block["type"] == "tool-call":
                name = _NOT_IN_NAME.sub("_", block["name"])[:_LONGEST_NAME] or "unknown"
                function = {"name": name, "arguments": _arguments(block["arguments"])}
                calls.append({**_mapping(extra), "id": ids[len(calls)], "type": "function", "function": function})
        return calls

    def _attached(self, message: Message) -> Mapping[str, Any]:
        """What this very route attached to the message, if it did."""
        source = message["source"]
        same = source.get("provider") == self._provider and source.get("model") == self._model
        return _mapping(source.get("replayState")) if same else {}


def unanswered(call_id: str) -> bytes:
    """A result for a call that has none in the history: a server wants one for every call."""
    return orjson.dumps({"role": "tool", "tool_call_id": call_id, "content": _NO_RESULT})


def _plain(message: Message) -> str:
    """The text of a message, images named in it."""
    parts = ["[image]" if block["type"] == "image" else block.get("text", "") for block in message["content"]]
    text = "".join(parts)
    return text if text.strip() else ""


def _image(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{block['mediaType']};base64,{block['data']}"}}


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _arguments(raw: str) -> str:
    """The raw arguments where they are a JSON object; else wrapped in one, because servers parse them."""
    if not raw.strip():
        return "{}"
    try:
        parsed: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        parsed = None
    return raw if isinstance(parsed, dict) else orjson.dumps({"invalid_arguments": raw}).decode()
