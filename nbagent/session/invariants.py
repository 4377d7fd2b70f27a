"""What every log must satisfy: turns and steps are opened, numbered and closed in order, and results follow calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.errors import InvariantError
from nbagent.types.events import Event

__all__ = ("LogInvariants",)

_IN_STEP = frozenset(
    {"system/message", "developer/message", "assistant/message", "assistant/frame", "tool/call", "tool/result"}
)
_IN_TURN = frozenset({"request/header", "request/context"})


class LogInvariants:
    """The fold of what is open. `check` refuses an event without touching anything, `commit` takes it in."""

    def __init__(self) -> None:
        self._turn: int | None = None
        self._step: int | None = None
        self._last_turn = 0
        self._last_step = 0
        self._called: set[str] = set()

    def check(self, event: Event) -> None:
        """Raise unless `event` may come next.

        Raises:
            InvariantError: `INVARIANT_VIOLATED`.
        """
        check = getattr(self, f"_check_{event.type.replace('/', '_')}", None)
        if check is not None:
            check(event.data)
        elif event.type in _IN_TURN and self._turn is None:
            raise _violated(f"{event.type} outside a turn")
        if event.type in _IN_STEP and not isinstance(event.surface_op, Mapping):
            self._check_in_step(event)
        elif event.type in _IN_STEP and self._turn is None:
            raise _violated(f"{event.type} replacement outside a turn")

    def commit(self, event: Event) -> None:
        """Take in the event that `check` accepted."""
        kind, data = event.type, event.data
        if kind == "turn/start":
            self._turn = self._last_turn = data["turn"]
            self._last_step = 0
        elif kind == "turn/end":
            self._turn = None
        elif kind == "step/start":
            self._step = self._last_step = data["step"]
        elif kind == "step/end":
            self._step = None
            self._called.clear()
        elif kind == "tool/call":
            self._called.add(data["callId"])

    def _check_turn_start(self, data: Mapping[str, Any]) -> None:
        if self._turn is not None:
            raise _violated(f"turn/start {data['turn']} while turn {self._turn} is still open")
        if data["turn"] != self._last_turn + 1:
            raise _violated(f"turn/start {data['turn']} after turn {self._last_turn}")

    def _check_turn_end(self, data: Mapping[str, Any]) -> None:
        if self._turn is None or self._turn != data["turn"]:
            raise _violated(f"turn/end {data['turn']} without its open turn")
        if self._step is not None:
            raise _violated(f"turn/end {data['turn']} while step {self._step} is still open")

    def _check_step_start(self, data: Mapping[str, Any]) -> None:
        if self._turn is None or self._turn != data["turn"]:
            raise _violated(f"step/start {data['step']} outside its turn {data['turn']}")
        if self._step is not None:
            raise _violated(f"step/start {data['step']} while step {self._step} is still open")
        if data["step"] != self._last_step + 1:
            raise _violated(f"step/start {data['step']} after step {self._last_step}")

    def _check_step_end(self, data: Mapping[str, Any]) -> None:
        if self._step is None or (self._turn, self._step) != (data["turn"], data["step"]):
            raise _violated(f"step/end {data['step']} without its open step")

    def _check_in_step(self, event: Event) -> None:
        data = event.data
        if self._step is None or (self._turn, self._step) != (data.get("turn"), data.get("step")):
            raise _violated(f"{event.type} outside its step {data.get('turn')}/{data.get('step')}")
        if event.type == "tool/result":
            call_id = data["message"]["toolCallId"]
            not_started = data.get("error", {}).get("code") == "TOOL_NOT_STARTED"
            if call_id not in self._called and not not_started:
                raise _violated(f'tool/result "{call_id}" without its tool/call in the step')


def _violated(message: str) -> InvariantError:
    return InvariantError(f'invariant violated by "nbagent": {message}')
