"""Turns written into a real session, whose invariants hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbagent.notebook.transcript import TurnTranscript
from nbagent.session import Session
from nbagent.types.events import Event
from nbagent.types.messages import assistant_message, text_block, tool_message, user_message


class TurnLog:
    """Appends the events of turns; `on_event` sees each one."""

    def __init__(self, on_event: Callable[[Event], object] | None = None) -> None:
        self._ticks = 0
        self.session = Session("turns", clock=self._tick)
        self.turn = 0
        self.step = 0
        if on_event is not None:
            self.session.subscribe(on_event)

    def _tick(self) -> int:
        self._ticks += 100
        return 1_000_000 + self._ticks

    @property
    def transcript(self) -> TurnTranscript:
        """The transcript of the first turn."""
        return TurnTranscript.of(self.session.events)

    def begin(self, prompt: str | None = "Which rows look wrong?") -> None:
        self.turn += 1
        self.session.append("turn/start", {"turn": self.turn})
        self.step = 0
        self.next_step()
        if prompt is not None:
            self.say(prompt)

    def next_step(self) -> None:
        if self.step:
            self.session.append("step/end", {"turn": self.turn, "step": self.step})
        self.step += 1
        self.session.append("step/start", {"turn": self.turn, "step": self.step})

    def say(self, text: str, source: Mapping[str, Any] | None = None) -> None:
        self.session.append("user/message", user_message(text, source=source), surface_op="append")

    def header(self, provider: str = "scripted", model: str = "m") -> None:
        config = {"provider": provider, "model": model}
        self.session.append("request/header", {"header": {"config": config}, "reason": "initial"})

    def frame(self, *chunks: Mapping[str, Any], attempt: int = 1, index: int = 0) -> None:
        data = {"turn": self.turn, "step": self.step, "attempt": attempt, "index": index, "chunks": list(chunks)}
        self.session.append("assistant/frame", data)

    def answer(
        self, *blocks: Mapping[str, Any], usage: Mapping[str, int] | None = None, interrupted: bool = False
    ) -> None:
        message = assistant_message(blocks, provider="scripted", model="m")
        data: dict[str, Any] = {"turn": self.turn, "step": self.step, "message": message}
        if usage is not None:
            data["usage"] = dict(usage)
        if interrupted:
            data["interrupted"] = True
        self.session.append("assistant/message", data, surface_op="append")

    def call(self, call_id: str, name: str, arguments: str = "{}") -> None:
        data = {"turn": self.turn, "step": self.step, "callId": call_id, "name": name, "arguments": arguments}
        self._called = self.session.append("tool/call", data)

    def result(
        self,
        call_id: str,
        content: str | Sequence[Mapping[str, Any]],
        *,
        code: str | None = None,
        is_error: bool = False,
    ) -> None:
        blocks = [text_block(content)] if isinstance(content, str) else content
        message = tool_message(call_id, blocks, is_error=is_error or code is not None)
        data: dict[str, Any] = {"turn": self.turn, "step": self.step, "message": message}
        if code is not None:
            data["error"] = {"name": "ToolError", "code": code}
        calls = [
            event for event in self.session.events if event.type == "tool/call" and event.data["callId"] == call_id
        ]
        self.session.append("tool/result", data, surface_op="append", source_event_seqs=[calls[-1].seq])

    def retry(self, code: str = "OVERLOADED", message: str = "busy", attempt: int = 1) -> None:
        self.session.append(
            "llm/retry",
            {
                "turn": self.turn,
                "step": self.step,
                "attempt": attempt,
                "retryId": f"r{attempt}",
                "delayMs": 500,
                "failure": {"code": code, "message": message},
            },
        )

    def retry_started(self, attempt: int = 1) -> None:
        self.session.append("llm/retry-started", {"turn": self.turn, "step": self.step, "retryId": f"r{attempt}"})

    def end(self, kind: str = "completed", **fields: Any) -> None:
        if self.step:
            self.session.append("step/end", {"turn": self.turn, "step": self.step})
            self.step = 0
        self.session.append("turn/end", {"turn": self.turn, "reason": {"kind": kind, **fields}})
