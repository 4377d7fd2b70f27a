"""A model server that says exact bytes, and one request through the real adapter."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream

from nbagent.cancellation import CancelSignal
from nbagent.llm.adapters import create
from nbagent.types.assembler import Assembler
from nbagent.types.config import CallConfig, Request, ToolHistory
from nbagent.types.messages import user_message

__all__ = ("ByteServer", "Canned", "read_reply", "serve", "serve_bytes")

_FINISH = {"max-tokens": "length", "tool-calls": "tool_calls", "aborted": "error"}


@dataclass(frozen=True, slots=True)
class Canned:
    """One answer of a server.

    Attributes:
        body: What it sends.
        status: HTTP status.
        content_type: Of the body.
        headers: More response headers.
        chunk_size: Bytes a write; all at once when none.
        pause_seconds: Before each write.
        keep_open: Leave the connection open afterwards.
        cut: Announce a longer body than is sent and close in the middle.
    """

    body: bytes = b""
    status: int = 200
    content_type: str = "text/event-stream"
    headers: tuple[tuple[str, str], ...] = ()
    chunk_size: int | None = None
    pause_seconds: float = 0
    keep_open: bool = False
    cut: bool = False


@dataclass(slots=True)
class ByteServer:
    """A running server.

    Attributes:
        base_url: Where it listens, on loopback.
        requests: The JSON bodies it was sent, in order.
        headers: The request headers, by lower-case name, one mapping a request.
        closed: How many connections the client closed before the answer was whole.
    """

    base_url: str = ""
    requests: list[Any] = field(default_factory=list[Any])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    closed: int = 0


@asynccontextmanager
async def serve(answers: Sequence[Canned]) -> AsyncGenerator[ByteServer]:
    """Serve canned answers on loopback, one a request, the last one again and again."""
    server = ByteServer()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - a socket's attribute, no query
    server.base_url = f"http://127.0.0.1:{port}"

    async def handle(client: SocketStream) -> None:
        async with client:
            try:
                await _answer_one(server, answers, client)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                server.closed += 1

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        try:
            yield server
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def serve_bytes(
    body: bytes,
    *,
    status: int = 200,
    content_type: str = "text/event-stream",
    chunk_size: int | None = None,
    keep_open: bool = False,
) -> AsyncGenerator[str]:
    """Serve one body to every request; gives the base URL.

    Args:
        body: The exact bytes.
        status: HTTP status.
        content_type: Of the body.
        chunk_size: Bytes a write; all at once when none.
        keep_open: Leave the connection open after the body.
    """
    answer = Canned(body, status, content_type, chunk_size=chunk_size, keep_open=keep_open)
    async with serve([answer]) as server:
        yield server.base_url


async def read_reply(protocol: str, base_url: str, dialect: Any = None, **options: Any) -> dict[str, Any]:
    """Send one request through the real adapter.

    Returns:
        `{text, reasoning, tool_calls, finish, usage, error}`: tool calls `{id, name, arguments}`, with `invalid` and
        `arguments_raw` where the arguments are no JSON object, and `provider_extra` where the server attached something
        that it wants back; usage `{input, output, cache_read, reasoning}` or none;
        `error` the failure's code in small letters, or none.
    """
    adapter = create(protocol, base_url=base_url, api_key="test-key", dialect=dialect, **options)
    request = Request(
        config=CallConfig.of({"provider": "test", "model": "m"}),
        messages=[user_message("hi")],
        tools=(),
        tool_history=ToolHistory.of({"tools": [], "updates": []}),
        session_id="test",
    )
    assembler = Assembler()
    try:
        async for chunk in adapter.stream(request, CancelSignal()):
            assembler.feed(chunk)
    finally:
        close = getattr(adapter, "aclose", None)
        if close is not None:
            await close()
    return _reply(assembler)


def _reply(assembler: Assembler) -> dict[str, Any]:
    finish = assembler.finish or {"kind": "stop"}
    error = finish.get("error")
    blocks = assembler.blocks()
    state = assembler.replay_state()
    attached: list[Any] = state["blocks"] if state is not None else [None] * len(blocks)
    calls = [_call(block, extra) for block, extra in zip(blocks, attached, strict=True) if block["type"] == "tool-call"]
    usage = assembler.usage
    return {
        "text": "".join(block["text"] for block in blocks if block["type"] == "text"),
        "reasoning": "".join(block["text"] for block in blocks if block["type"] == "reasoning"),
        "tool_calls": [call for call in calls if not (error and call.get("invalid"))],
        "finish": _FINISH.get(finish["kind"], finish["kind"]),
        "usage": None
        if usage is None
        else {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cache_read": usage.cache_read_tokens,
            "reasoning": usage.reasoning_tokens,
        },
        "error": {"SERVER": "server_error"}.get(error["code"], error["code"].lower()) if error else None,
    }


def _call(block: dict[str, Any], extra: Any) -> dict[str, Any]:
    call: dict[str, Any] = {"id": block["id"], "name": block["name"]}
    if extra:
        call["provider_extra"] = extra
    try:
        arguments = json.loads(block["arguments"] or "{}")
    except ValueError:
        arguments = None
    if isinstance(arguments, dict):
        return {**call, "arguments": arguments}
    return {**call, "arguments": None, "arguments_raw": block["arguments"], "invalid": True}


async def _answer_one(server: ByteServer, answers: Sequence[Canned], client: SocketStream) -> None:
    head, rest = await _read_until(client, b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = int(headers.get("content-length", "0"))
    while len(rest) < length:
        rest += await client.receive()
    answer = answers[min(len(server.requests), len(answers) - 1)]
    server.requests.append(json.loads(rest) if rest else None)
    server.headers.append(headers)
    await client.send(_head(answer))
    size = answer.chunk_size or max(len(answer.body), 1)
    for start in range(0, len(answer.body), size):
        if answer.pause_seconds:
            await anyio.sleep(answer.pause_seconds)
        await client.send(answer.body[start : start + size])
    if answer.keep_open:
        await client.receive()


def _head(answer: Canned) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} Canned", f"content-type: {answer.content_type}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    if answer.cut:
        lines.append(f"content-length: {len(answer.body) + 100}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _read_until(client: SocketStream, end: bytes) -> tuple[bytes, bytes]:
    received = b""
    while end not in received:
        received += await client.receive()
    head, _, rest = received.partition(end)
    return head, rest
