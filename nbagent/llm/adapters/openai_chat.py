"""The chat-completions protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import orjson

from nbagent.cancellation import CancelSignal
from nbagent.errors import InputError, LlmError
from nbagent.llm.adapters.chat_history import ChatHistories
from nbagent.llm.adapters.chat_stream import ChatStream
from nbagent.llm.dialects import CUSTOM, ChatDialect
from nbagent.llm.transport import IDLE_SECONDS, Transport
from nbagent.types.config import CallConfig, ModelFacts, Request
from nbagent.types.stream import StreamChunk, finish

__all__ = ("OpenAiChatAdapter", "check_key")


class OpenAiChatAdapter:
    """Speaks chat completions to one server.

    A call configuration may carry, beyond the common fields: `temperature`; `stop`, a list of texts; `prefill`, text
    that stands as the beginning of the answer, for servers that continue it (DeepSeek does under its `/beta` address);
    `extraBody`, an object whose fields are merged into the request body as they are. A listener of `agent/request` sets
    them; they stay for later requests until it takes them out.

    Args:
        base_url: Where `/chat/completions` is.
        api_key: Sent as a bearer token; none for servers that want none.
        dialect: How this server differs.
        key_name: What the user knows the key by, for the message that it was refused.
        idle_seconds: How long the server may send nothing.

    Raises:
        InputError: `INVALID_BASE_URL`, `INVALID_CREDENTIAL`.
    """

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str | None = None,
        dialect: ChatDialect = CUSTOM,
        key_name: str = "the API key",
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if api_key is not None:
            check_key(api_key)
            headers["authorization"] = f"Bearer {api_key}"
        self._api_key = api_key
        self._key_name = key_name
        self._dialect = dialect
        self._transport = Transport(base_url, headers, idle_seconds=idle_seconds)
        self._histories = ChatHistories(dialect)

    def facts(self, model: str) -> ModelFacts:  # noqa: ARG002 - a dialect knows its server, not each model
        """What the dialect knows."""
        dialect = self._dialect
        return ModelFacts(context_window=dialect.context_window, efforts=dialect.efforts, images=dialect.images)

    async def stream(self, request: Request, signal: CancelSignal) -> AsyncIterator[StreamChunk]:
        """Ask the server; a failure is the terminal chunk."""
        parser = ChatStream()
        try:
            answer = self._transport.events(
                "/chat/completions", self.body(request), signal=signal, patience=lambda: parser.patience
            )
            async with aclosing(answer) as batches:
                async for batch in batches:
                    for chunk in parser.feed_body(batch) if isinstance(batch, bytes) else parser.feed(batch):
                        yield chunk
            for chunk in parser.close():
                yield chunk
        except LlmError as failure:
            for chunk in parser.usage_chunks():
                yield chunk
            kind = "aborted" if signal.aborted else "error"
            yield finish(kind, error=self._told(failure).facts())

    def body(self, request: Request) -> bytes:
        """The exact body of a request."""
        head = orjson.dumps(_head(request.config, request, self._dialect))
        messages = self._histories.encode(request)
        prefill = request.config.get("prefill")
        if prefill:
            message: dict[str, Any] = {"role": "assistant", "content": prefill}
            if self._dialect.prefix_mark:
                message["prefix"] = True
            messages.append(orjson.dumps(message))
        return b"".join((head[:-1], b',"messages":[', b",".join(messages), b"]}"))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    def _told(self, failure: LlmError) -> LlmError:
        """The failure without the key, and with what to look at when the key was refused."""
        message = failure.message
        if self._api_key:
            message = message.replace(self._api_key, "[masked key]")
        if failure.code == "AUTH":
            given = "check" if self._api_key else "it was asked without a key: set"
            message = f"{message.rstrip('.')} ({given} {self._key_name})"
        return failure if message == failure.message else LlmError.from_facts({**failure.facts(), "message": message})


def check_key(api_key: str) -> None:
    """Raise unless a key can be sent; the key is not shown.

    Raises:
        InputError: `INVALID_CREDENTIAL`.
    """
    if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise InputError(
            "the API key is empty or holds spaces, line ends or other characters that no key has: set it again",
            code="INVALID_CREDENTIAL",
        )


def _head(config: CallConfig, request: Request, dialect: ChatDialect) -> dict[str, Any]:
    head: dict[str, Any] = {"model": config.model, "stream": True}
    if dialect.include_usage:
        head["stream_options"] = {"include_usage": True}
    if config.max_tokens is not None:
        head[dialect.max_tokens_field] = config.max_tokens
    effort = config.reasoning_effort
    if effort is not None and dialect.thinking_switch:
        head["thinking"] = {"type": "disabled" if effort == "off" else "enabled"}
    if effort is not None and not (dialect.thinking_switch and effort == "off"):
        head["reasoning_effort"] = effort
    for field in ("temperature", "stop"):
        if field in config:
            head[field] = config[field]
    if request.tools:
        head["tools"] = [{"type": "function", "function": tool} for tool in request.tools]
    extra = config.get("extraBody")
    if isinstance(extra, dict):
        fields = cast("dict[str, Any]", extra)
        taken = sorted({"messages", "stream"} & fields.keys())
        if taken:
            raise LlmError(f"extraBody may not set {taken[0]}: the adapter does", code="INVALID_REQUEST")
        head.update(fields)
    return head
