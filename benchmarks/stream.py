"""What a streamed chunk costs: a whole agent turn with its session file, against readers of the same stream.

One reader is bare httpx; the other also writes a line a chunk and syncs it, which is the least that a log can cost.

    python benchmarks/stream.py [--runs 7] [--chunks 20000] [--paced 1000]

All run in this process and take turns, so that other load on the machine meets all; figures are CPU time of this process
with all its threads, and medians. The server is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import orjson
import server

from nbagent import Runtime
from nbagent.llm.adapters import create
from nbagent.storage import JsonlStore, MemoryStore

Received = Callable[[str], None]


async def bare_reader(base_url: str, received: Received) -> None:
    """The floor: httpx, a split at blank lines, one JSON decode a chunk. Nothing is kept, checked or stored."""
    body = orjson.dumps({"model": "bench", "stream": True, "messages": [{"role": "user", "content": "go"}]})
    async with (
        httpx.AsyncClient(timeout=60, trust_env=False) as client,
        client.stream(
            "POST", f"{base_url}/chat/completions", content=body, headers={"content-type": "application/json"}
        ) as answer,
    ):
        rest = b""
        async for data in answer.aiter_bytes():
            rest += data
            cut = rest.rfind(b"\n\n")
            if cut < 0:
                continue
            events, rest = rest[:cut], rest[cut + 2 :]
            for event in events.split(b"\n\n"):
                if event == b"data: [DONE]":
                    continue
                choices = orjson.loads(event[6:])["choices"]
                if choices and (text := choices[0]["delta"].get("content")):
                    received(text)


def durable_reader(path: Path) -> Callable[[str, Received], Awaitable[None]]:
    """The floor with a log: the bare reader, one line a chunk written to a file, synced every 50 ms and at the end."""

    async def read(base_url: str, received: Received) -> None:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        sequence, synced = 0, time.monotonic()

        def write(text: str) -> None:
            nonlocal sequence, synced
            record = {"type": "chunk", "seq": sequence, "time": time.time_ns() // 1_000_000, "data": {"text": text}}
            os.write(file, orjson.dumps(record) + b"\n")
            sequence += 1
            if time.monotonic() - synced > 0.05:
                os.fdatasync(file)
                synced = time.monotonic()
            received(text)

        try:
            await bare_reader(base_url, write)
            os.fdatasync(file)
        finally:
            os.close(file)

    return read


def agent_turn(store: Callable[[], Any]) -> Callable[[str, Received], Awaitable[None]]:
    """A turn from the prompt to the idle agent, with a view's worth of listening."""

    async def turn(base_url: str, received: Received) -> None:
        async with Runtime(store=store()) as runtime:
            adapter = create("openai-chat", base_url=base_url, api_key=None)
            runtime.llm.register(["custom"], adapter)
            handle = await runtime.agents.create(provider="custom", model="bench")

            def listen(notice: Any) -> None:
                if notice.type == "chunk" and notice.chunk["type"] == "text-delta":
                    received(notice.chunk["text"])

            handle.agent.on("agent/assistant-stream", listen)
            handle.agent.followup("go")
            await handle.agent.when_idle()
            end = handle.agent.session.events[-1]
            assert end.data["reason"]["kind"] == "completed", end
            await handle.dispose()
            await adapter.aclose()

    return turn


async def measure(
    read: Callable[[str, Received], Awaitable[None]], base_url: str, count: int, received: Received
) -> tuple[float, float]:
    """CPU and wall seconds of one stream."""
    seen = 0

    def counted(text: str) -> None:
        nonlocal seen
        # A frame may hold several pieces as one; each piece of this stream ends in a blank.
        seen += text.count(" ")
        received(text)

    wall, cpu = time.perf_counter(), time.process_time()
    await read(base_url, counted)
    spent = time.process_time() - cpu, time.perf_counter() - wall
    assert seen == count, (seen, count)
    return spent


def told(name: str, figures: list[float], unit: str) -> str:
    return f"{name:<28} {statistics.median(figures):8.2f} {unit}   ({min(figures):.2f} to {max(figures):.2f})"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--paced", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, server.running() as address:
        readers = {
            "bare httpx reader": bare_reader,
            "reader with a log": durable_reader(Path(folder) / "floor.jsonl"),
            "agent turn, in memory": agent_turn(MemoryStore),
            "agent turn, session file": agent_turn(lambda: JsonlStore(Path(folder))),
        }
        cpu: dict[str, list[float]] = {name: [] for name in readers}
        wall: dict[str, list[float]] = {name: [] for name in readers}
        burst = f"{address}/burst/{options.chunks}"
        for read in readers.values():
            await measure(read, f"{address}/burst/100", 100, lambda _text: None)
        for _ in range(options.runs):
            for name, read in readers.items():
                seconds, lasted = await measure(read, burst, options.chunks, lambda _text: None)
                cpu[name].append(seconds / options.chunks * 1e6)
                wall[name].append(lasted / options.chunks * 1e6)
        print(f"Burst of {options.chunks} chunks of 4 characters, {options.runs} runs, microseconds a chunk")
        bare, durable = (statistics.median(cpu[name]) for name in ("bare httpx reader", "reader with a log"))
        for name in readers:
            spent = statistics.median(cpu[name])
            print(f"  {told(name, cpu[name], 'CPU')}   x{spent / bare:.2f} bare, x{spent / durable:.2f} with a log")
        for name in readers:
            print(f"  {told(name, wall[name], 'wall')}")
        print(f"\nPaced, {options.paced} chunks, one every 2 ms: milliseconds from the server's write to the listener")
        for name, read in readers.items():
            late: list[float] = []

            def note(text: str, late: list[float] = late) -> None:
                now = time.monotonic_ns()
                late.extend((now - int(stamp)) / 1e6 for stamp in text.split())

            await measure(read, f"{address}/paced/{options.paced}/2", options.paced, note)
            late.sort()
            p99 = late[int(len(late) * 0.99)]
            print(f"  {name:<28} median {statistics.median(late):.2f}   99 % {p99:.2f}   longest {late[-1]:.2f}")


if __name__ == "__main__":
    anyio.run(main)
