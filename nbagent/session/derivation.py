"""The history as a model sees it, derived from the surface and kept up with every commit.

Logs that older programs left, or whose results were shadowed, may have tool calls without a result in steps that are
closed. Providers refuse such a history, and a closed step is never reopened: the missing result is put in its place when
the history is derived.
"""

from __future__ import annotations

from collections.abc import Sequence

from nbagent.errors import SessionError
from nbagent.session.message_projections import Interpreter, MessageProjections, interpret
from nbagent.session.repair import PendingCalls, recovery_result
from nbagent.session.shape import message_of
from nbagent.session.surface import Surface
from nbagent.types.events import CORE_TYPES, Event
from nbagent.types.messages import Message

__all__ = ("Derivation",)

_Call = tuple[int, int, str]
"""Turn, step and call id."""


class Derivation:
    """The messages of a surface.

    Args:
        events: The log, as it grows.
        surface: Which of them the model sees.
        projections: How events of other types rewrite messages.

    Attributes:
        rewrites: How many message projections were committed.
    """

    def __init__(self, events: Sequence[Event], surface: Surface, projections: MessageProjections) -> None:
        self._events = events
        self._surface = surface
        self._projections = projections
        self._messages: list[Message] | None = []
        self._overrides: dict[int, Message] = {}
        self._used: dict[str, Interpreter] = {}
        self._checked: tuple[int, dict[int, Message]] = (-1, {})
        self._recovered: dict[tuple[int, str], Message] = {}
        self._calls: PendingCalls | None = None
        self._replaced = False
        self.rewrites = 0

    def check(self, event: Event) -> None:
        """Raise unless the event's interpreter takes it.

        Raises:
            SessionError: `UNKNOWN_EVENT`, nobody interprets its type; `INVALID_EVENT`.
        """
        if event.type in CORE_TYPES or event.ignorable:
            return
        interpreter = self._projections.get(event.type)
        if interpreter is None:
            raise SessionError(
                f'session event "{event.type}" is unknown to this version, not marked ignorable, and no interpreter of '
                "it is registered",
                code="UNKNOWN_EVENT",
            )
        self._used_interpreters()
        nodes = {seq: message for seq in self._surface.seqs if (message := self._message(seq)) is not None}
        self._checked = event.seq, interpret(interpreter, event, nodes)

    def commit(self, event: Event) -> None:
        """Follow the event that `check` accepted, after the surface did."""
        if self._calls is not None:
            self._calls.observe(event)
        if event.type == "step/start":
            self._calls, self._replaced = PendingCalls(event.data["turn"], event.data["step"]), False
        elif event.type == "step/end":
            if self._replaced or (self._calls is not None and self._calls.unsettled()):
                # What has no result by now will not get one.
                self._messages = None
            self._calls = None
        elif event.surface_op == "append":
            message = self._message(event.seq)
            if self._messages is not None and message is not None and _visible(message):
                self._messages.append(message)
        elif event.surface_op is not None:
            self._replaced, self._messages = True, None
        elif event.type not in CORE_TYPES and not event.ignorable:
            self._rewrite(event)

    def messages(self, seqs: Sequence[int] | None = None) -> list[Message]:
        """A fresh list of shared, frozen messages.

        Args:
            seqs: Of these nodes alone, in surface order; of the whole surface by default.

        Raises:
            SessionError: `INTERPRETER_MISSING`, an interpreter that this history depends on was taken away.
        """
        self._used_interpreters()
        if seqs is not None:
            return self._derived(seqs)
        if self._messages is None:
            self._messages = self._derived(self._surface.seqs)
        return list(self._messages)

    def _rewrite(self, event: Event) -> None:
        interpreter = self._projections.get(event.type)
        if interpreter is not None:
            self._used[event.type] = interpreter
        self._overrides.update(self._checked[1])
        self._messages = None
        self.rewrites += 1

    def _used_interpreters(self) -> None:
        for type, interpreter in self._used.items():
            if self._projections.get(type) is not interpreter:
                raise SessionError(
                    f'messages of this session were rewritten by the interpreter of "{type}", which is no longer '
                    "registered: register it and open the session again",
                    code="INTERPRETER_MISSING",
                )

    def _message(self, seq: int) -> Message | None:
        return self._overrides.get(seq) or message_of(self._events[seq])

    def _derived(self, seqs: Sequence[int]) -> list[Message]:
        nodes = [(seq, message) for seq in seqs if (message := self._message(seq)) is not None]
        answered = {(*self._place(seq), message["toolCallId"]) for seq, message in nodes if message["role"] == "tool"}
        messages: list[Message] = []
        missing: list[Message] = []
        asked_in: tuple[int, int] | None = None
        for seq, message in nodes:
            if missing and (message["role"] != "tool" or self._place(seq) != asked_in):
                messages += missing
                missing = []
            if _visible(message):
                messages.append(message)
            if message["role"] == "assistant":
                asked_in, missing = self._place(seq), self._recoveries(seq, message, answered)
        return messages + missing

    def _place(self, seq: int) -> tuple[int, int]:
        data = self._events[seq].data
        return data["turn"], data["step"]

    def _recoveries(self, seq: int, message: Message, answered: set[_Call]) -> list[Message]:
        """Results for the calls of an answer that have none, when its step is closed."""
        turn, step = self._place(seq)
        asked = dict.fromkeys(block["id"] for block in message.tool_calls)
        unanswered = [call_id for call_id in asked if (turn, step, call_id) not in answered]
        return self._results(seq, turn, step, unanswered) if unanswered else []

    def _results(self, seq: int, turn: int, step: int, unanswered: Sequence[str]) -> list[Message]:
        started: dict[str, int] = {}
        for at in range(seq + 1, len(self._events)):
            event = self._events[at]
            if event.type == "tool/call":
                started[event.data["callId"]] = at
            elif event.type == "step/end":
                for call_id in unanswered:
                    if (seq, call_id) not in self._recovered:
                        data, _ = recovery_result(call_id, started.get(call_id), at, turn, step)
                        self._recovered[seq, call_id] = data["message"]
                return [self._recovered[seq, call_id] for call_id in unanswered]
        return []


def _visible(message: Message) -> bool:
    return bool(message["content"]) or message["role"] in {"user", "tool"}
