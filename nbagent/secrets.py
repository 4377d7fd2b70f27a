"""Keys never leave the process: values of key-like environment variables are masked in everything that is written."""

from __future__ import annotations

import json
import os
import re
from typing import Any, cast

from nbagent.types.frozen import FrozenDict, FrozenList

__all__ = ("StreamMask", "mask", "mask_json")

_ENDINGS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_SHORTEST = 8


class _Secrets:
    """The values to mask, read again when the environment changed."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._seen: dict[Any, Any] = {}
        self._first = re.compile("")
        self._longest = 0
        self.pattern: re.Pattern[str] | None = None

    def refresh(self) -> re.Pattern[str] | None:
        """The pattern that finds any secret, or none when there is none."""
        raw = cast("dict[Any, Any]", getattr(os.environ, "_data", None) or dict(os.environ))
        if raw != self._seen:
            self._seen = dict(raw)
            self._read()
        return self.pattern

    def name(self, text: str) -> str:
        return self._names[text]

    def within(self, text: str) -> bool:
        """Whether a secret stands in `text`; a plain search for each is many times faster than the pattern."""
        for form in self._names:  # noqa: SIM110 - a generator costs more than the search
            if form in text:
                return True
        return False

    def open_end(self, text: str, start: int) -> int:
        """Where the longest end of `text` begins, from `start` on, that more text could make a secret or a longer one."""
        for found in self._first.finditer(text, max(start, len(text) - self._longest + 1)):
            end = text[found.start() :]
            if any(len(form) > len(end) and form.startswith(end) for form in self._names):
                return found.start()
        return len(text)

    def _read(self) -> None:
        self._names = {}
        # Not from `os.environ`: another thread may change it meanwhile.
        for name, value in ((os.fsdecode(name), os.fsdecode(value)) for name, value in self._seen.items()):
            if name.upper().endswith(_ENDINGS):
                for form in _forms(value) | _forms(value.strip()):
                    self._names[form] = name
        ordered = sorted(self._names, key=len, reverse=True)
        self.pattern = re.compile("|".join(re.escape(form) for form in ordered)) if ordered else None
        self._first = re.compile(
            "[" + "".join(sorted({re.escape(form[0]) for form in ordered})) + "]" if ordered else ""
        )
        self._longest = len(ordered[0]) if ordered else 0


def _forms(value: str) -> set[str]:
    """How a value may stand in a text: as it is, and inside a JSON string."""
    if len(value) < _SHORTEST or value.isspace():
        return set()
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}


_secrets = _Secrets()


def mask(text: str) -> str:
    """`text` with every secret replaced by `[masked NAME]`."""
    pattern = _secrets.refresh()
    return text if pattern is None else _mask(pattern, text)


def mask_json(value: Any) -> Any:
    """A frozen JSON value with every text masked; the same object when there is nothing to mask."""
    pattern = _secrets.refresh()
    return value if pattern is None else _mask_json(pattern, value)


class StreamMask:
    """Masks a text that comes in pieces: what may be the beginning of a secret waits until it is decided."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """The text that can be shown now."""
        pattern = _secrets.refresh()
        text = self._held + text
        self._held = ""
        if pattern is None:
            return text
        shown: list[str] = []
        position = 0
        while True:
            undecided = _secrets.open_end(text, position)
            match = pattern.search(text, position)
            if match is None or match.start() >= undecided:
                self._held = text[undecided:]
                return "".join([*shown, text[position:undecided]])
            shown += [text[position : match.start()], f"[masked {_secrets.name(match.group())}]"]
            position = match.end()

    def flush(self) -> str:
        """What was held back, at the end of the text."""
        held, self._held = self._held, ""
        return mask(held)


def _mask(pattern: re.Pattern[str], text: str) -> str:
    return (
        pattern.sub(lambda match: f"[masked {_secrets.name(match.group())}]", text) if _secrets.within(text) else text
    )


def _mask_json(pattern: re.Pattern[str], value: Any) -> Any:
    if isinstance(value, str):
        return _mask(pattern, value)
    if _is_clean(value):
        return value
    if isinstance(value, FrozenDict):
        return type(value)([(_mask(pattern, key), _mask_json(pattern, item)) for key, item in value.items()])
    return FrozenList([_mask_json(pattern, item) for item in value])


def _is_clean(value: Any) -> bool:
    """Whether a JSON value holds no secret. On the path of every append: nothing is built, short texts cost nothing."""
    if isinstance(value, str):
        return len(value) < _SHORTEST or not _secrets.within(value)
    if isinstance(value, FrozenDict):
        for key, item in value.items():
            if (len(key) >= _SHORTEST and _secrets.within(key)) or not _is_clean(item):
                return False
    elif isinstance(value, FrozenList):
        return all(_is_clean(item) for item in value)
    return True
