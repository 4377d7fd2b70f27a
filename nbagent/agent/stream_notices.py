"""Process-local notifications of a stream, for views: a start, each durable chunk, exactly one end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nbagent.agent.points import AssistantStream
from nbagent.types.events import Event
from nbagent.types.frozen import FrozenDict
from nbagent.types.stream import StreamChunk

if TYPE_CHECKING:
    from nbagent.agent.agent import Agent

__all__ = ("StreamNotices",)

_POINT = "agent/assistant-stream"


class StreamNotices:
    """The notifications of one attempt."""

    def __init__(self, agent: Agent, turn: int, step: int) -> None:
        agent.attempts += 1
        self._agent = agent
        self._fields: dict[str, Any] = {"attempt_id": f"{agent.id}:{agent.attempts}", "turn": turn, "step": step}
        self._chunks = 0
        self._open = False

    def start(self) -> None:
        self._open = True
        self._emit("start")

    def chunks(self, chunks: Sequence[StreamChunk], first: int, time: int) -> None:
        """Tell of chunks that a frame has made durable."""
        self._chunks += len(chunks)
        if not self._agent.hooks.has(_POINT):
            self._agent.stream_revision += len(chunks)
            return
        for offset, chunk in enumerate(chunks):
            self._emit("chunk", index=first + offset, time=time, chunk=chunk)

    def end_committed(self, event: Event) -> None:
        """The attempt has become the message of `event`."""
        self._end({"kind": "committed", "eventType": event.type, "seq": event.seq})

    def end_aborted(self) -> None:
        """The attempt has no message; nothing when it already ended."""
        self._end({"kind": "aborted"})

    def _end(self, outcome: dict[str, Any]) -> None:
        if self._open:
            self._open = False
            self._emit("end", index=self._chunks, outcome=FrozenDict(outcome))

    def _emit(self, type: str, **fields: Any) -> None:
        self._agent.stream_revision += 1
        notice = AssistantStream(
            agent=self._agent, type=type, revision=self._agent.stream_revision, **self._fields, **fields
        )
        self._agent.hooks.notify(_POINT, notice)
