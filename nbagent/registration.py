"""Lists of callbacks from which each can be taken away again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ("enlist",)

_T = TypeVar("_T")


def enlist(items: list[_T], item: _T) -> Callable[[], None]:
    """Append `item`; answers a function that takes it away again, once, however often that is called."""
    items.append(item)
    listed = True

    def remove() -> None:
        nonlocal listed
        if listed and item in items:
            items.remove(item)
        listed = False

    return remove
