"""One adapter a wire protocol."""

from __future__ import annotations

from typing import Any

from nbagent.errors import InputError
from nbagent.llm.adapter import Adapter
from nbagent.llm.dialects import CUSTOM, ChatDialect

__all__ = ("PROTOCOLS", "create")

PROTOCOLS = ("openai-chat",)


def create(
    protocol: str, *, base_url: str, api_key: str | None, dialect: ChatDialect | None = None, **options: Any
) -> Adapter:
    """An adapter for `runtime.llm.register`.

    Args:
        protocol: One of `PROTOCOLS`.
        base_url: Where the protocol's paths begin, such as `http://127.0.0.1:8000/v1`.
        api_key: Sent as a bearer token; none for servers that want none.
        dialect: How this server differs.
        options: `idle_seconds`, how long the server may send nothing; `key_name`, what messages call the key.

    Raises:
        InputError: `UNKNOWN_PROTOCOL`, `INVALID_BASE_URL`, `INVALID_CREDENTIAL`.
    """
    if protocol != "openai-chat":
        raise InputError(f'unknown protocol "{protocol}"; known: {", ".join(PROTOCOLS)}', code="UNKNOWN_PROTOCOL")
    from nbagent.llm.adapters.openai_chat import OpenAiChatAdapter

    return OpenAiChatAdapter(base_url=base_url, api_key=api_key, dialect=dialect or CUSTOM, **options)
