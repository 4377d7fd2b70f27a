"""Logs to test with: one plain turn, and any legal log."""

from __future__ import annotations

from itertools import count
from random import Random

from hypothesis import strategies as st

from nbagent.errors import SessionError
from nbagent.session import Session
from nbagent.testing import as_json
from nbagent.types.messages import (
    assistant_message,
    system_message,
    text_block,
    tool_call_block,
    tool_message,
    user_message,
)
from nbagent.types.stream import reasoning_delta, text_delta, tool_call_delta, usage_chunk

HEADER = {"config": {"provider": "p", "model": "m"}}
PLACE = {"turn": 1, "step": 1}


def session(*, hooks=None):
    made = Session("s", clock=count(1000).__next__)
    made.hooks = hooks
    return made


def open_step(log, turn=1, step=1):
    if step == 1:
        log.append("turn/start", {"turn": turn})
    log.append("step/start", {"turn": turn, "step": step})


def close_step(log, turn=1, step=1):
    log.append("step/end", {"turn": turn, "step": step})


def end_turn(log, turn=1, kind="completed"):
    log.append("turn/end", {"turn": turn, "reason": {"kind": kind}})


def say(log, text, **options):
    options.setdefault("surface_op", "append")
    return log.append("user/message", user_message(text, id=options.pop("id", None)), **options)


def prompt(log, text, place=PLACE, **options):
    options.setdefault("surface_op", "append")
    return log.append("system/message", {**place, "message": system_message(text)}, **options)


def answer(log, *blocks, place=PLACE, **options):
    message = assistant_message([text_block(b) if isinstance(b, str) else b for b in blocks], provider="p", model="m")
    options.setdefault("surface_op", "append")
    return log.append("assistant/message", {**place, "message": message}, **options)


def call(log, call_id, place=PLACE):
    return log.append("tool/call", {**place, "callId": call_id, "name": "f", "arguments": "{}"})


def result(log, call_id, text="ok", place=PLACE, **options):
    data = {**place, "message": tool_message(call_id, [text_block(text)], is_error=False, id=f"r-{call_id}")}
    options.setdefault("surface_op", "append")
    return log.append("tool/result", data, **options)


def frame(log, *chunks, place=PLACE, attempt=1, index=0):
    return log.append("assistant/frame", {**place, "attempt": attempt, "index": index, "chunks": list(chunks)})


def header(log, *tools, reason="initial", **more):
    declared = [{"name": name, "description": about, "parameters": {}} for name, about in map(_declared, tools)]
    value = {**HEADER, "tools": declared} if declared else HEADER
    return log.append("request/header", {"header": value, "reason": reason, **more})


def tool_change(log, add=(), remove=(), header_seq=None, place=PLACE, id="d"):
    blocks = [{"type": "tool-addition", "toolName": name} for name in add]
    blocks += [{"type": "tool-removal", "toolName": name} for name in remove]
    message = {"id": id, "role": "developer", "content": blocks, "source": {"kind": "tool-registry"}}
    data = {**place, "message": message, **({} if header_seq is None else {"headerSeq": header_seq})}
    return log.append("developer/message", data, surface_op="append")


def calls(*ids):
    return [tool_call_block(each, "f", "{}") for each in ids]


def _declared(tool):
    return tool if isinstance(tool, tuple) else (tool, "")


class _Writer:
    """Writes a legal log, one choice at a time; a choice that does not fit now writes nothing."""

    def __init__(self):
        self.log = session()
        self.turn = self.step = self.number = 0
        self.turn_open = self.step_open = False
        self.asked, self.called = [], []
        self.pending = {"next-turn": 0, "next-step": 0}

    @property
    def place(self):
        return {"turn": self.turn, "step": self.step}

    def write(self, choice, size):
        self.number += 1
        try:
            getattr(self, f"_{choice}")(size)
        except SessionError as refused:
            # Where a replacement may stand is for the session to say.
            assert refused.code in {"SURFACE_REFUSED", "INVARIANT_VIOLATED"}, refused

    def _boundary(self, size):
        if self.step_open:
            close_step(self.log, self.turn, self.step)
            self.step_open = False
        elif self.turn_open and size % 2:
            end_turn(self.log, self.turn)
            self.turn_open = False
        else:
            if not self.turn_open:
                self.turn, self.step, self.turn_open = self.turn + 1, 0, True
                self.log.append("turn/start", {"turn": self.turn})
            self.step, self.step_open = self.step + 1, True
            self.log.append("step/start", self.place)
            self.asked, self.called = [], []

    def _user(self, size):
        say(self.log, "u" * size, id=f"u{self.number}")

    def _system(self, size):
        if self.step_open:
            prompt(self.log, "s" * (size % 3), self.place)

    def _answer(self, size):
        if self.step_open and not self.asked:
            self.asked = [f"c{self.number}-{n}" for n in range(size % 4)]
            answer(self.log, *["text"] * (size % 2), *calls(*self.asked), place=self.place)

    def _call(self, _size):
        waiting = [each for each in self.asked if each not in self.called]
        if self.step_open and waiting:
            self.called.append(waiting[0])
            call(self.log, waiting[0], self.place)

    def _result(self, size):
        if self.step_open and self.called:
            result(self.log, self.called[size % len(self.called)], place=self.place)

    def _frame(self, size):
        if self.step_open:
            chunks = [text_delta(0, "t" * size), reasoning_delta(1, "r"), tool_call_delta(2, "{"), usage_chunk({})]
            frame(self.log, *chunks[: size + 1], place=self.place, attempt=1 + size % 2)

    def _header(self, size):
        if self.turn_open:
            header(self.log, *"abc"[:size], reason=["initial", "change", "series"][size % 3])

    def _tools(self, size):
        headers = [event for event in self.log.events if event.type == "request/header"]
        if self.step_open and headers:
            latest = headers[-1]
            names = [tool["name"] for tool in latest.data["header"].get("tools", ())][:size]
            tool_change(self.log, names, "z", latest.seq if names else None, self.place, f"d{self.number}")

    def _replace(self, size):
        nodes = self.log.surface
        if not nodes:
            return
        first = size % len(nodes)
        shadowed = nodes[first : first + 1 + size // 2]
        op = {"op": "replace", "startSeq": shadowed[0], "endSeq": shadowed[-1]}
        target = self.log.events[shadowed[0]]
        if target.type == "tool/result" and self.turn_open:
            message = target.data["message"].replace(content=[text_block("cleared")])
            data = {**target.data, "message": message}
            self.log.append(
                "tool/result", data, surface_op={**op, "endSeq": shadowed[0]}, source_event_seqs=shadowed[:1]
            )
        elif target.type == "system/message" and self.turn_open:
            op["endSeq"] = shadowed[0]
            prompt(self.log, "x" * (size % 2), self.place, surface_op=op, source_event_seqs=shadowed[:1])
        else:
            say(self.log, "summary", id=f"u{self.number}", surface_op=op, source_event_seqs=shadowed)

    def _splice(self, size):
        target = ["next-turn", "next-step"][size % 2]
        waiting = self.pending[target]
        start = size % (waiting + 1)
        removed = min(size // 2, waiting - start)
        inserted = [user_message("p", id=f"p{self.number}-{n}") for n in range(size % 3)]
        data = {"target": target, "start": start, "inserted": inserted}
        if removed:
            data["removedCount"] = removed
        self.log.append("agent/inbox/spliced", data)
        self.pending[target] += len(inserted) - removed

    def _other(self, size):
        self.log.append("someone/else", {"size": size}, ignorable=True)


_CHOICES = [name[1:] for name, value in vars(_Writer).items() if name[0] == "_" and name[1] != "_" and callable(value)]
_CHOICES += ["boundary", "boundary", "answer", "call", "call", "result", "result"]


@st.composite
def legal_logs(draw):
    """The events, as the lines of a file would hold them."""
    # Lists that hypothesis draws are mostly short; the length shrinks all the same.
    length, random = draw(st.integers(0, 80)), Random(draw(st.integers(0, 2**32)))
    writer = _Writer()
    for _ in range(length):
        writer.write(random.choice(_CHOICES), random.randrange(6))
    return [as_json(event) for event in writer.log.events]
