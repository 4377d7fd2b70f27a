"""A runtime with a scripted model, for tests of the loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from nbagent import Runtime
from nbagent.testing import ScriptedAdapter
from nbagent.types.messages import user_message

pytestmark = pytest.mark.anyio


class World:
    """One runtime, one scripted model, one agent."""

    def __init__(self, runtime: Runtime, model: ScriptedAdapter, handle: Any) -> None:
        self.runtime = runtime
        self.model = model
        self.handle = handle
        self.agent = handle.agent

    @property
    def events(self) -> list[Any]:
        return list(self.agent.session.events)

    def types(self, *, frames: bool = False) -> list[str]:
        """Event types, without frames and inbox splices unless asked for."""
        hidden = () if frames else ("assistant/frame", "agent/inbox/spliced")
        return [event.type for event in self.events if event.type not in hidden]

    def of(self, *types: str) -> list[Any]:
        return [event for event in self.events if event.type in types]

    @property
    def reasons(self) -> list[Any]:
        return [event.data["reason"] for event in self.of("turn/end")]

    async def ask(self, text: str) -> None:
        self.agent.followup(text)
        await self.agent.when_idle()

    @property
    def prompts(self) -> list[str]:
        """The texts of the user messages in the log."""
        return [event.data.text for event in self.of("user/message")]

    @property
    def header_reasons(self) -> list[str]:
        return [event.data["reason"] for event in self.of("request/header")]

    def waiting(self, target: str) -> list[str]:
        """The texts that wait in a list of the inbox."""
        return [message.text for message in getattr(self.agent.inbox, target.replace("-", "_"))]

    def sent(self, role: str | None = None) -> list[list[str]]:
        """The texts of each request's messages, of one role or of all."""
        return [[m.text for m in r.messages if role in (None, m.role)] for r in self.model.requests]

    async def resume(self, **choices: Any) -> None:
        """Dispose the agent and take its session up again."""
        await self.handle.dispose(keep_inbox=True)
        self.handle = await self.runtime.agents.resume(self.agent.id, **choices)
        self.agent = self.handle.agent

    def shadow(self, *seqs: int) -> Any:
        """Put a summary in the place of surface nodes, as compaction does."""
        place = {"op": "replace", "startSeq": seqs[0], "endSeq": seqs[-1]}
        return self.agent.session.append(
            "user/message", user_message("summary"), surface_op=place, source_event_seqs=list(seqs)
        )

    async def until(self, condition: Any) -> None:
        """Wait until something is so."""
        with anyio.fail_after(5):
            while not condition():
                await anyio.sleep(0.002)

    async def answering(self, text: str) -> None:
        """Send a prompt and wait until a part of the answer is in the log."""
        frames = len(self.of("assistant/frame"))
        self.agent.followup(text)
        await self.until(lambda: len(self.of("assistant/frame")) > frames)

    def hear(self, point: str, value: Any) -> list[Any]:
        """Collect `value(payload)` of a notification of this agent."""
        heard: list[Any] = []
        self.agent.on(point, lambda payload: heard.append(value(payload)))
        return heard

    def on(self, point: str) -> Any:
        """Decorator: listen to a point of this agent."""

        def register(listener: Any) -> Any:
            self.agent.on(point, listener)
            return listener

        return register


@pytest.fixture
def world() -> Any:
    @asynccontextmanager
    async def make(
        *script: Any, retry: Any = None, store: Any = None, adapter: Any = None, **options: Any
    ) -> AsyncIterator[World]:
        async with Runtime(store=store, retry=retry, **options.pop("runtime", {})) as runtime:
            model = ScriptedAdapter(list(script), **(adapter or {}))
            runtime.llm.register(["scripted"], model)
            options.setdefault("session_id", "s1")
            options.setdefault("system", "Be brief.")
            handle = await runtime.agents.create(provider="scripted", model="m", **options)
            yield World(runtime, model, handle)

    return make
