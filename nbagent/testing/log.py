"""Logs written by hand: for tests of what is folded from them, without running a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import orjson

from nbagent.session import Session
from nbagent.testing.clock import VirtualClock
from nbagent.testing.scripted import Answer
from nbagent.types.assembler import Assembler
from nbagent.types.events import Event
from nbagent.types.messages import (
    assistant_message,
    system_message,
    text_block,
    tool_call_block,
    tool_message,
    user_message,
)

__all__ = ("LogBuilder",)


class LogBuilder:
    """Appends well-formed events to a real session, whose invariants hold; every verb answers the builder.

        log = LogBuilder().begin("How many rows?").calls(("c1", "count", {})).result("c1", "12").answers("Twelve.").end()

    Turns and steps are numbered, and opened and closed around what needs them. Message ids and times are fixed, so that
    the same calls give the same bytes.

    Args:
        session_id: The session's id.
        provider: Of the answers and headers.
        model: Likewise.

    Attributes:
        session: The session that is written.
        turn: Number of the last turn.
        step: Number of its last step; 0 before its first one.
    """

    def __init__(self, session_id: str = "log", *, provider: str = "scripted", model: str = "m") -> None:
        self.session = Session(session_id, clock=VirtualClock(tick=1))
        self.turn = 0
        self.step = 0
        self._provider = provider
        self._model = model
        self._open_step = False
        self._calls: dict[str, int] = {}
        self._ids = 0

    @property
    def events(self) -> Sequence[Event]:
        """The log so far."""
        return self.session.events

    def begin(self, prompt: str | None = None, *, system: str | None = None, tools: Sequence[Any] = ()) -> Self:
        """Open a turn and its first step, with a system prompt, a prompt and, in the first turn, a request header."""
        self.turn += 1
        self.step = 0
        self.session.append("turn/start", {"turn": self.turn})
        self.next_step()
        if system is not None:
            self._message("system/message", system_message(system, id=self._id()))
        if prompt is not None:
            self.says(prompt)
        if self.session.request_header() is None:
            self.header(tools=tools)
        return self

    def next_step(self) -> Self:
        """Open a step, the one before is closed."""
        self._close_step()
        self.step += 1
        self._open_step = True
        self.session.append("step/start", self._place())
        return self

    def says(self, text: str, *, source: Mapping[str, Any] | None = None) -> Self:
        """A message of the user."""
        message = user_message(text, id=self._id(), source=source)
        self.session.append("user/message", message, surface_op="append")
        return self

    def header(self, *, tools: Sequence[Any] = (), reason: str = "initial", **config: Any) -> Self:
        """A request header and its context; `tools` are tools or declarations."""
        header: dict[str, Any] = {"config": {"provider": self._provider, "model": self._model, **config}}
        if tools:
            header["tools"] = [getattr(tool, "declaration", tool) for tool in tools]
        self.session.append("request/header", {"header": header, "reason": reason})
        self.session.append("request/context", {"provider": self._provider, "model": self._model})
        return self

    def frame(self, *chunks: Mapping[str, Any], attempt: int = 1, index: int = 0) -> Self:
        """Chunks of an answer that has no message (yet)."""
        data = {**self._place(), "attempt": attempt, "index": index, "chunks": [dict(chunk) for chunk in chunks]}
        self.session.append("assistant/frame", data)
        return self

    def answers(self, *answer: str | Answer | Mapping[str, Any], interrupted: bool = False) -> Self:
        """An answer: texts and blocks, or one scripted answer, whose chunks become its frame."""
        usage: Mapping[str, Any] | None = None
        if len(answer) == 1 and isinstance(answer[0], Answer):
            assembler = Assembler()
            self.frame(*answer[0].chunks)
            for chunk in self.events[-1].data["chunks"]:
                assembler.feed(chunk)
            blocks: list[Mapping[str, Any]] = list(assembler.blocks())
            usage = assembler.usage
        else:
            blocks = [text_block(part) if isinstance(part, str) else _block(part) for part in answer]
        message = assistant_message(blocks, provider=self._provider, model=self._model, id=self._id())
        extra: dict[str, Any] = {}
        if usage is not None:
            extra["usage"] = usage
        if interrupted:
            extra["interrupted"] = True
        self._message("assistant/message", message, **extra)
        return self

    def calls(self, *calls: tuple[str, str, Mapping[str, Any] | str], start: bool = True) -> Self:
        """An answer that calls tools: `(call id, tool name, arguments)`; `start` logs that they start."""
        blocks = [
            tool_call_block(call_id, name, arguments if isinstance(arguments, str) else _compact(arguments))
            for call_id, name, arguments in calls
        ]
        self.answers(*blocks)
        for block in blocks if start else ():
            self.starts(block["id"], block["name"], block["arguments"])
        return self

    def starts(self, call_id: str, name: str, arguments: str = "{}") -> Self:
        """A tool call starts."""
        data = {**self._place(), "callId": call_id, "name": name, "arguments": arguments}
        self._calls[call_id] = self.session.append("tool/call", data).seq
        return self

    def result(self, call_id: str, text: str, *, error: Mapping[str, str] | None = None) -> Self:
        """What a started call gave; with an `error` of name and code it failed."""
        message = tool_message(call_id, [text_block(text)], is_error=error is not None, id=self._id())
        extra = {"error": dict(error)} if error is not None else {}
        self._message("tool/result", message, sources=[self._calls[call_id]], **extra)
        return self

    def end(self, kind: str = "completed", **reason: Any) -> Self:
        """Close the step and the turn."""
        self._close_step()
        self.session.append("turn/end", {"turn": self.turn, "reason": {"kind": kind, **reason}})
        return self

    def lines(self) -> list[dict[str, Any]]:
        """The objects of the session's file: the header's line, then one for each event."""
        return [{"type": "session", **self.session.header}, *(event.to_json() for event in self.events)]

    def write(self, folder: Path) -> Path:
        """Write the session's file into `folder`; answers its path."""
        path = folder / f"{self.session.id}.jsonl"
        path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in self.lines()))
        return path

    def _place(self) -> dict[str, Any]:
        return {"turn": self.turn, "step": self.step}

    def _message(self, type: str, message: Any, *, sources: Sequence[int] | None = None, **extra: Any) -> None:
        data = {**self._place(), "message": message, **extra}
        self.session.append(type, data, surface_op="append", source_event_seqs=sources)

    def _close_step(self) -> None:
        if self._open_step:
            self._open_step = False
            self.session.append("step/end", self._place())

    def _id(self) -> str:
        self._ids += 1
        return f"m{self._ids}"


def _block(part: Answer | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(part, Answer):
        raise TypeError("a scripted answer is a whole answer: give it alone")
    return part


def _compact(arguments: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(arguments)).decode()
