"""What a call touches: the names of resources that it reads and writes decide which calls may overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ("EXCLUSIVE", "SHARED", "Access", "ResourceKeys", "resource_keys")

ResourceKeys = str | Iterable[str] | Callable[[Any], str | Iterable[str]]
"""A resource's name, several, or a function of a call's arguments that answers them."""


@dataclass(frozen=True, slots=True)
class Access:
    """What one call touches.

    Attributes:
        reads: Resources that it reads.
        writes: Resources that it changes.
        exclusive: Whether it overlaps with nothing, whatever it touches.
    """

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    exclusive: bool = False

    def conflicts_with(self, other: Access) -> bool:
        """Whether the two may not overlap: one is exclusive, or one writes what the other reads or writes."""
        if self.exclusive or other.exclusive:
            return True
        return not (self.writes.isdisjoint(other.reads | other.writes) and other.writes.isdisjoint(self.reads))


EXCLUSIVE = Access(exclusive=True)
SHARED = Access()
"""Overlaps with everything that is not exclusive."""


def resource_keys(keys: ResourceKeys | None, arguments: Any) -> frozenset[str]:
    """The names that `keys` means for a call with these arguments.

    Raises:
        TypeError: They are no texts, or a function is to be asked about arguments that are no object.
        Exception: What the function raised.
    """
    if keys is None:
        return frozenset()
    named: Any = keys
    if callable(named):
        if not isinstance(arguments, Mapping):
            raise TypeError("resources are a function of the arguments, and these are no object")
        named = named(arguments)
    found: frozenset[Any] = frozenset([named] if isinstance(named, str) else named)
    if not all(isinstance(key, str) for key in found):
        raise TypeError(f"a resource is named by a text, got {sorted(map(repr, found))}")
    return found
