"""History as chat-completions messages, as the strictest server accepts it.

A message is immutable, so it is encoded once and its bytes are kept; a request body is a join of those bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

from nbagent.llm.dialects import ChatDialect
from nbagent.types.messages import Message

__all__ = ("ChatMessages",)

_NO_OUTPUT = "(no output)"
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")


class ChatMessages:
    """Encodes histories for one server.

    Args:
        dialect: How the server differs.
    """

    def __init__(self, dialect: ChatDialect) -> None:
        self._dialect = dialect
        # By identity: the same frozen object travels through every request of a session.
        self._encoded: dict[int, tuple[Message, bytes]] = {}

    def encode(self, messages: Sequence[Message]) -> list[bytes]:
        """The messages as JSON, each encoded once in its life."""
        encoded: list[bytes] = []
        ids: set[str] = set()
        renamed: dict[str, str] = {}
        for message in messages:
            role = message["role"]
            if role == "assistant":
                calls: list[str] = [block["id"] for block in message["content"] if block["type"] == "tool-call"]
                renamed = {call: _fresh(call, ids) for call in calls if call in ids}
                ids.update([renamed.get(call, call) for call in calls])
            if renamed and role in {"assistant", "tool"}:
                # Some servers count their ids anew in each turn; in one request they must differ.
                body = self._message(message, renamed)
                encoded += [orjson.dumps(body)] if body is not None else []
            else:
                encoded += self._kept(message)
        if len(self._encoded) > 2 * len(messages) + 1024:
            present = {id(message) for message in messages}
            self._encoded = {key: value for key, value in self._encoded.items() if key in present}
        return encoded

    def _kept(self, message: Message) -> list[bytes]:
        known = self._encoded.get(id(message))
        if known is None or known[0] is not message:
            body = self._message(message, {})
            known = (message, b"" if body is None else orjson.dumps(body))
            self._encoded[id(message)] = known
        return [known[1]] if known[1] else []

    def _message(self, message: Message, renamed: dict[str, str]) -> dict[str, Any] | None:
        role = message["role"]
        if role == "system":
            return {"role": "system", "content": message.text}
        if role == "user":
            return {"role": "user", "content": self._user_content(message)}
        if role == "tool":
            call_id = message["toolCallId"]
            text = _text_with_placeholders(message) or _NO_OUTPUT
            return {"role": "tool", "tool_call_id": renamed.get(call_id, call_id), "content": text}
        if role == "assistant":
            return self._assistant(message, renamed)
        return None

    def _user_content(self, message: Message) -> str | list[dict[str, Any]]:
        if not self._dialect.images or all(block["type"] != "image" for block in message["content"]):
            return _text_with_placeholders(message)
        parts: list[dict[str, Any]] = []
        for block in message["content"]:
            if block["type"] == "image":
                url = f"data:{block['mediaType']};base64,{block['data']}"
                parts.append({"type": "image_url", "image_url": {"url": url}})
            elif block["type"] == "text" and block["text"]:
                parts.append({"type": "text", "text": block["text"]})
        return parts

    def _assistant(self, message: Message, renamed: dict[str, str]) -> dict[str, Any] | None:
        calls = [
            {
                "id": renamed.get(block["id"], block["id"]),
                "type": "function",
                "function": {
                    "name": _NOT_IN_NAME.sub("_", block["name"]) or "unknown",
                    "arguments": _arguments(block["arguments"]),
                },
            }
            for block in message["content"]
            if block["type"] == "tool-call"
        ]
        text = message.text
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
        return body


def _text_with_placeholders(message: Message) -> str:
    parts = ["[image]" if block["type"] == "image" else block.get("text", "") for block in message["content"]]
    return "".join(parts)


def _arguments(raw: str) -> str:
    """The raw arguments where they are JSON; else wrapped, because servers parse them."""
    if not raw.strip():
        return "{}"
    try:
        parsed: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return orjson.dumps({"invalid_arguments": raw}).decode()
    return raw if isinstance(parsed, dict) else orjson.dumps({"invalid_arguments": raw}).decode()


def _fresh(call_id: str, taken: set[str]) -> str:
    number = 2
    while f"{call_id}-{number}" in taken:
        number += 1
    return f"{call_id}-{number}"
