"""Runs in the kernel of a browser test: a turn that streams from a thread into a run view, and stops when it is told."""

from __future__ import annotations

import threading
import time
from typing import Any

from nbagent.notebook.display import bundle
from nbagent.notebook.transcript import TurnTranscript
from nbagent.notebook.views.run import RunView
from nbagent.types.messages import reasoning_block, text_block, tool_call_block
from nbagent.types.stream import block_start, text_delta
from tests.notebook.turns import TurnLog

stops: list[float] = []


class Turning:
    """One turn in a run view."""

    def __init__(self, *, can_stop: bool = True, prompt: str = "a prompt", **options: Any) -> None:
        self.stopped = threading.Event()
        self.view = RunView("analyst", on_stop=self.stop, can_stop=can_stop, **options)
        self.transcript = TurnTranscript()
        self.log = TurnLog(self._seen)
        self.view.show()
        self.log.begin(prompt)
        self.log.header("scripted", "m")

    def _seen(self, event: Any) -> None:
        self.transcript.apply(event)
        self.view.update(self.transcript)

    def stop(self) -> None:
        stops.append(time.time())
        self.stopped.set()

    def say(self, text: str) -> None:
        if not self.transcript.items:
            self.log.frame(block_start(0, "text"))
        self.log.frame(text_delta(0, text))

    def call(
        self, name: str, arguments: str, result: str, *, reasoning: str = "thinking", text: str = "I look."
    ) -> None:
        self.log.answer(reasoning_block(reasoning), text_block(text), tool_call_block("c1", name, arguments))
        self.log.call("c1", name, arguments)
        self.log.result("c1", result)
        self.log.next_step()

    def end(self, kind: str = "completed", **fields: Any) -> None:
        self.log.end(kind, **fields)
        self.view.finish(bundle([self.transcript], agent_name="analyst"))

    def stream(self, seconds: float, words: int = 40) -> threading.Thread:
        """Say numbered words from a thread, then end; a stop ends it early."""
        thread = threading.Thread(target=self._stream, args=(seconds, words))
        thread.start()
        return thread

    def _stream(self, seconds: float, words: int) -> None:
        for number in range(words):
            self.say(f"word{number} ")
            if self.stopped.wait(seconds / words):
                said = " ".join(f"word{n}" for n in range(number + 1))
                self.log.answer(text_block(said), interrupted=True)
                return self.end("aborted", reason={"kind": "user"})
        self.log.answer(text_block(" ".join(f"word{n}" for n in range(words))))
        return self.end()
