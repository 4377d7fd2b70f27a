"""Numbered deltas between a view in the kernel and its copy in the page.

A view's content is a list of parts, each a flat JSON object. The page applies deltas in order; when a number is missing
(a dropped message, a reload) it asks with `hello` and gets a snapshot. Since a kernel that is busy in a cell may be
unable to hear a `hello`, snapshots also come by themselves from time to time while the content is small.

Messages to the page:

    {op: snapshot, seq, head, parts}
    {op: delta, seq, head?, ops}          ops: [put, i, part] | [cut, n] | [set, i, fields]
                                               | [add, i, field, text] | [list, i, field, keep, items]

Messages from it: `{op: hello, page}` and what the view understands.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import orjson

__all__ = ("DeltaChannel", "Part", "difference")

Part: TypeAlias = Mapping[str, Any]

_EARLY_SECONDS = 1.0
"""A page that is still opening misses the first messages; each of them is whole."""
_SNAPSHOT_SECONDS = 5.0
_SMALL = 48_000
"""Bytes up to which a snapshot may be sent without being asked for."""


class DeltaChannel:
    """Sends the content of one view as snapshots and deltas. `publish` is called by one thread at a time.

    Args:
        send: Takes a message to the page.
        clock: Seconds, monotonic.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._seq = 0
        self._head: Mapping[str, Any] = {}
        self._parts: Sequence[Part] = ()
        self._opened = clock()
        self._snapshot_at = 0.0
        self._snapshot_size = 0
        self._lock = threading.Lock()
        self._snapshot_wanted = True
        self._pages: set[str] = set()

    @property
    def pages(self) -> int:
        """How many page loads have shown the view; more than one means that the tab was reloaded."""
        with self._lock:
            return len(self._pages)

    def hello(self, page: str) -> None:
        """A page asks for a snapshot. Any thread; the answer goes with the next `publish`."""
        with self._lock:
            self._snapshot_wanted = True
            self._pages.add(page)

    def publish(self, head: Mapping[str, Any], parts: Sequence[Part], *, moment: Mapping[str, Any]) -> int:
        """Send what changed since the last call, or everything when a page needs it; answers bytes sent.

        Args:
            head: Facts about the whole view; sent again when one of them changed.
            parts: The content.
            moment: Facts of the moment, such as elapsed time, that go along with `head` and are no change by themselves.
        """
        now = self._clock()
        ops = difference(self._parts, parts)
        changed = head != self._head
        if self._takes_snapshot(now, changed=bool(ops) or changed):
            message: dict[str, Any] = {"op": "snapshot", "head": {**head, **moment}, "parts": list(parts)}
        elif ops or changed:
            message = {"op": "delta", "ops": ops}
            if changed:
                message["head"] = {**head, **moment}
        else:
            return 0
        self._head, self._parts = head, list(parts)
        self._seq += 1
        message["seq"] = self._seq
        size = len(orjson.dumps(message))
        if message["op"] == "snapshot":
            self._snapshot_at, self._snapshot_size = now, size
        else:
            self._snapshot_size += size
        self._send(message)
        return size

    def _takes_snapshot(self, now: float, *, changed: bool) -> bool:
        with self._lock:
            wanted, self._snapshot_wanted = self._snapshot_wanted, False
        if wanted:
            return True
        if not changed or self._snapshot_size > _SMALL:
            return False
        return now - self._opened < _EARLY_SECONDS or now - self._snapshot_at > _SNAPSHOT_SECONDS


def difference(old: Sequence[Part], new: Sequence[Part]) -> list[list[Any]]:
    """The operations that turn `old` into `new`; text that grew and lists that grew are sent as what was added."""
    ops: list[list[Any]] = []
    if len(new) < len(old):
        ops.append(["cut", len(new)])
    for position, part in enumerate(new):
        if position >= len(old):
            ops.append(["put", position, part])
        elif part is not old[position]:
            ops.extend(_part_difference(position, old[position], part))
    return ops


def _part_difference(position: int, old: Part, new: Part) -> list[list[Any]]:
    if old.get("kind") != new.get("kind") or not old.keys() <= new.keys():
        return [["put", position, new]]
    ops: list[list[Any]] = []
    fields: dict[str, Any] = {}
    for name, value in new.items():
        before = old.get(name)
        if value == before:
            continue
        if isinstance(value, str) and isinstance(before, str) and before and value.startswith(before):
            ops.append(["add", position, name, value[len(before) :]])
        elif isinstance(value, list) and isinstance(before, list):
            values, previous = cast("list[Any]", value), cast("list[Any]", before)
            keep = _common_prefix(previous, values)
            ops.append(["list", position, name, keep, values[keep:]])
        else:
            fields[name] = value
    if fields:
        ops.append(["set", position, fields])
    return ops


def _common_prefix(first: list[Any], second: list[Any]) -> int:
    length = 0
    for one, other in zip(first, second, strict=False):
        if one is not other and one != other:
            break
        length += 1
    return length
