"""A chat-completions server on loopback whose answers are always the same.

Run it as a program; it prints its address and serves until its standard input closes. The path says what is answered:

    /burst/N/chat/completions        N pieces of four characters, all at once
    /paced/N/MS/chat/completions     N pieces, one every MS milliseconds; each holds the sender's monotonic clock in ns

Each event is an HTTP chunk of its own, as servers send them.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

HEAD = '{"id":"c","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":'
RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"


def framed(payload: str) -> bytes:
    event = f"data: {payload}\n\n".encode()
    return f"{len(event):x}\r\n".encode() + event + b"\r\n"


def piece(text: str) -> bytes:
    return framed(f'{HEAD}[{{"index":0,"delta":{{"content":{json.dumps(text)}}},"finish_reason":null}}]}}')


def ending(count: int) -> bytes:
    usage = json.dumps({"prompt_tokens": 10, "completion_tokens": count, "total_tokens": 10 + count})
    return b"".join(
        (
            framed(f'{HEAD}[{{"index":0,"delta":{{}},"finish_reason":"stop"}}]}}'),
            framed(f'{HEAD}[],"usage":{usage}}}'),
            framed("[DONE]"),
            b"0\r\n\r\n",
        )
    )


@lru_cache
def burst(count: int) -> bytes:
    return b"".join(piece(f"{number % 1000:03d} ") for number in range(count)) + ending(count)


async def paced(writer: asyncio.StreamWriter, count: int, milliseconds: float) -> None:
    due = time.monotonic()
    for _ in range(count):
        due += milliseconds / 1000
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        writer.write(piece(f"{time.monotonic_ns()} "))
        await writer.drain()
    writer.write(ending(count))


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = next(
                (int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length:")), 0
            )
            await reader.readexactly(length)
            kind, *numbers = head.split(" ")[1].strip("/").split("/")
            writer.write(RESPONSE)
            if kind == "burst":
                writer.write(burst(int(numbers[0])))
            else:
                await paced(writer, int(numbers[0]), float(numbers[1]))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextmanager
def running() -> Iterator[str]:
    """The server's address, while it runs in a process of its own."""
    process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate()


if __name__ == "__main__":
    asyncio.run(main())
