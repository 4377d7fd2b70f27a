"""What one turn shows: a pure fold of its session events, read by the live view and by the saved output alike.

The fold never looks at the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nbagent.notebook.turn_items import (
    Call,
    CallState,
    Item,
    LateMessage,
    Picture,
    Prose,
    RetryNotice,
    Status,
    TurnState,
)
from nbagent.types.events import Event

__all__ = ("TurnTranscript",)

_ABORT_CODES = frozenset({"ABORTED", "ABORTED_BEFORE_DISPATCH", "TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN"})


class TurnTranscript:
    """Folds the events of one turn. Feed it on one thread; hand `state()` to others.

    The first `turn/start` decides which turn it is about; events of other turns are passed over.

    Attributes:
        turn: The turn's number, once known.
        model: `provider/model` of the last request; empty before it.
        prompts: Texts that opened the turn.
        status: `waiting` before the turn starts, `stopping` between a cancel and the end of the turn.
        reason: The turn's end reason, as the log has it.
        started: Milliseconds since the epoch.
        ended: Milliseconds since the epoch.
    """

    def __init__(self) -> None:
        self.turn: int | None = None
        self.model = ""
        self.prompts: tuple[str, ...] = ()
        self.status: Status = "waiting"
        self.reason: Mapping[str, Any] | None = None
        self.started: int | None = None
        self.ended: int | None = None
        self._items: list[Item] = []
        self._attempt = 0
        self._attempt_start = 0
        self._blocks: dict[int, int] = {}
        self._settled_usage: dict[str, int] = {}
        self._attempt_usage: Mapping[str, int] = {}
        self._stop_asked = False
        self._folds: dict[str, Callable[[Event], None]] = {
            "user/message": self._on_user_message,
            "request/header": self._on_header,
            "assistant/frame": self._on_frame,
            "assistant/message": self._on_assistant_message,
            "llm/retry": self._on_retry,
            "llm/retry-started": self._on_retry_started,
            "step/start": self._on_step_start,
            "tool/call": self._on_tool_call,
            "tool/result": self._on_tool_result,
            "turn/end": self._on_turn_end,
        }

    @classmethod
    def of(cls, events: Sequence[Event]) -> TurnTranscript:
        """The transcript of the first turn in `events`."""
        transcript = cls()
        for event in events:
            transcript.apply(event)
        return transcript

    @property
    def items(self) -> tuple[Item, ...]:
        """What the turn has shown after its prompts, in order."""
        return tuple(self._items)

    @property
    def usage(self) -> Mapping[str, int]:
        """Tokens of all calls of the turn so far; a field that no call reported is absent."""
        return _sum(self._settled_usage, self._attempt_usage)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Names of the tools whose bodies still run after a cancel."""
        if self.status != "stopping":
            return ()
        return tuple(item.name for item in self._items if isinstance(item, Call) and item.state == "running")

    @property
    def partial(self) -> bool:
        """Whether the turn was cut before the model was done."""
        return self.state().partial

    @property
    def text(self) -> str:
        """The answer: the texts of the last step that had any."""
        texts: list[str] = []
        for item in reversed(self._items):
            if isinstance(item, Prose) and item.kind == "text":
                texts.append(item.text)
            elif isinstance(item, Call) and texts:
                break
        return "\n\n".join(reversed(texts))

    def state(self) -> TurnState:
        """A frozen picture for other threads."""
        return TurnState(
            turn=self.turn,
            model=self.model,
            prompts=self.prompts,
            items=tuple(self._items),
            status=self.status,
            reason=self.reason,
            usage=self.usage,
            waiting_for=self.waiting_for,
            started=self.started,
            ended=self.ended,
        )

    def stop_asked(self) -> None:
        """Note that a cancel was asked for; the log itself only shows how the turn then ends."""
        self._stop_asked = True
        if self.status == "running":
            self.status = "stopping"

    def apply(self, event: Event) -> bool:
        """Fold one event; answers whether it belongs to this turn."""
        if event.type == "turn/start":
            if self.turn is not None:
                return False
            self.turn = event.data["turn"]
            self.started = event.time
            self.status = "stopping" if self._stop_asked else "running"
            return True
        if self.turn is None or self.status == "finished":
            return False
        fold = self._folds.get(event.type)
        if fold is None or event.data.get("turn", self.turn) != self.turn:
            return False
        fold(event)
        return True

    def _on_user_message(self, event: Event) -> None:
        message = event.data
        if message["source"]["kind"] == "plugin" or event.surface_op not in {"append", None}:
            return
        text, pictures = _content(message["content"])
        text = "\n".join([text, *("[image]" for _ in pictures)]) if text else " ".join("[image]" for _ in pictures)
        if self._items:
            self._items.insert(self._attempt_start, LateMessage(text))
            self._attempt_start += 1
            self._blocks = {index: position + 1 for index, position in self._blocks.items()}
        else:
            self.prompts = (*self.prompts, text)

    def _on_header(self, event: Event) -> None:
        config = event.data["header"]["config"]
        self.model = f"{config.get('provider', '')}/{config.get('model', '')}"

    def _on_step_start(self, _event: Event) -> None:
        self._attempt = 0
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        self._attempt_start = len(self._items)
        self._blocks = {}
        self._attempt_usage = {}

    def _withdraw_attempt(self) -> None:
        # Only what the failed attempt showed goes; the usage it reported was spent and stays counted.
        del self._items[self._attempt_start :]
        self._settled_usage = _sum(self._settled_usage, self._attempt_usage)
        self._begin_attempt()

    def _on_frame(self, event: Event) -> None:
        attempt = event.data["attempt"]
        if attempt != self._attempt:
            if self._blocks:
                self._withdraw_attempt()
                self._items.append(RetryNotice(self._attempt, "", ""))
            self._begin_attempt()
            self._attempt = attempt
        for chunk in event.data["chunks"]:
            self._on_chunk(chunk)

    def _on_chunk(self, chunk: Mapping[str, Any]) -> None:
        match chunk["type"]:
            case "block-start":
                self._open_block(chunk["index"], chunk["blockType"])
            case "text-delta":
                self._extend_prose(chunk["index"], "text", chunk["text"])
            case "reasoning-delta":
                self._extend_prose(chunk["index"], "reasoning", chunk["text"])
            case "tool-call-delta":
                position = self._open_block(chunk["index"], "tool-call")
                call = self._items[position]
                if isinstance(call, Call):
                    self._items[position] = replace(
                        call,
                        call_id=chunk.get("id") or call.call_id,
                        name=chunk.get("name") or call.name,
                        arguments=call.arguments + chunk["argumentsDelta"],
                    )
            case "block-end":
                block = chunk["block"]
                position = self._open_block(chunk["index"], block["type"])
                self._items[position] = _item_of(block)
            case "usage":
                self._attempt_usage = chunk["usage"]
            case _:
                pass

    def _open_block(self, index: int, block_type: str) -> int:
        position = self._blocks.get(index)
        if position is None:
            position = self._blocks[index] = len(self._items)
            if block_type == "tool-call":
                self._items.append(Call("", "", ""))
            else:
                self._items.append(Prose("reasoning" if block_type == "reasoning" else "text", "", open=True))
        return position

    def _extend_prose(self, index: int, kind: str, text: str) -> None:
        position = self._open_block(index, kind)
        prose = self._items[position]
        if isinstance(prose, Prose):
            self._items[position] = replace(prose, text=prose.text + text)

    def _on_assistant_message(self, event: Event) -> None:
        shown = self._items[self._attempt_start :]
        content = [block for block in event.data["message"]["content"] if block["type"] in _BLOCK_TYPES]
        settled = [_item_of(block) for block in content]
        if event.data.get("interrupted") and settled and isinstance(settled[-1], Prose):
            settled[-1] = replace(settled[-1], interrupted=True)
        # An item that reads the same keeps its identity, so that a view does not send it again.
        for position, (old, new) in enumerate(zip(shown, settled, strict=False)):
            if old == new:
                settled[position] = old
        self._items[self._attempt_start :] = settled
        self._settled_usage = _sum(self._settled_usage, event.data.get("usage") or self._attempt_usage)
        self._begin_attempt()

    def _on_retry(self, event: Event) -> None:
        data = event.data
        self._withdraw_attempt()
        failure = data["failure"]
        self._items.append(
            RetryNotice(data["attempt"], failure["code"], failure["message"], data.get("delayMs"), waiting=True)
        )
        self._attempt = 0
        self._begin_attempt()

    def _on_retry_started(self, _event: Event) -> None:
        for position in range(len(self._items) - 1, -1, -1):
            item = self._items[position]
            if isinstance(item, RetryNotice):
                self._items[position] = replace(item, waiting=False)
                return

    def _on_tool_call(self, event: Event) -> None:
        data = event.data
        position = self._find_call(data["callId"])
        if position is None:
            self._items.append(Call(data["callId"], data["name"], data["arguments"]))
            position = len(self._items) - 1
        call = self._items[position]
        if isinstance(call, Call):
            self._items[position] = replace(call, state="running", started=event.time)

    def _on_tool_result(self, event: Event) -> None:
        message = event.data["message"]
        position = self._find_call(message["toolCallId"])
        if position is None or event.surface_op not in {"append", None}:
            return
        call = self._items[position]
        if not isinstance(call, Call):
            return
        error: Mapping[str, Any] = event.data.get("error") or {}
        code = error.get("code")
        state: CallState = "done"
        if message.get("isError"):
            state = "aborted" if code in _ABORT_CODES else "error"
        text, pictures = _content(message["content"])
        self._items[position] = replace(call, state=state, result=text, pictures=pictures, code=code, ended=event.time)

    def _find_call(self, call_id: str) -> int | None:
        for position in range(len(self._items) - 1, -1, -1):
            item = self._items[position]
            # An id may come again in a later step: the newest call without a result is meant.
            if isinstance(item, Call) and item.call_id == call_id and item.result is None:
                return position
        return None

    def _on_turn_end(self, event: Event) -> None:
        self.status = "finished"
        reason: Mapping[str, Any] = event.data["reason"]
        self.reason = reason
        self.ended = event.time
        cut = reason["kind"] not in {"completed", "blocked"}
        for position, item in enumerate(self._items):
            if isinstance(item, Prose) and item.open:
                self._items[position] = replace(item, open=False, interrupted=cut)
            elif isinstance(item, Call) and item.result is None:
                self._items[position] = replace(item, state="aborted")
            elif isinstance(item, RetryNotice) and item.waiting:
                self._items[position] = replace(item, waiting=False)


_BLOCK_TYPES = frozenset({"text", "reasoning", "tool-call"})


def _item_of(block: Mapping[str, Any]) -> Item:
    match block["type"]:
        case "tool-call":
            return Call(block["id"], block["name"], block["arguments"])
        case "reasoning":
            return Prose("reasoning", block["text"])
        case _:
            return Prose("text", block.get("text", ""))


def _content(blocks: Sequence[Mapping[str, Any]]) -> tuple[str, tuple[Picture, ...]]:
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    pictures = tuple(Picture(block["mediaType"], block["data"]) for block in blocks if block["type"] == "image")
    return text, pictures


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in {**first, **second}}
