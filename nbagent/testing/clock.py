"""Time that a test owns."""

from __future__ import annotations

__all__ = ("VirtualClock",)


class VirtualClock:
    """Milliseconds since the epoch that move only when told, for `Runtime(clock=...)` and `Session(clock=...)`.

    Args:
        start: Where it begins.
        tick: How far it moves by itself each time it is read, so that records can be told apart.
    """

    def __init__(self, start: int = 1_000_000, *, tick: int = 0) -> None:
        self.now = start
        self._tick = tick

    def __call__(self) -> int:
        now = self.now
        self.now += self._tick
        return now

    def advance(self, milliseconds: int) -> None:
        """Let time pass; a negative number sets the clock back, as real ones sometimes are."""
        self.now += milliseconds
