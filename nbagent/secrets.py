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
        self._environment: tuple[int, int] = (-1, -1)
        self._seen: dict[Any, Any] = {}
        self.pattern: re.Pattern[str] | None = None
        self.longest = 0

    def refresh(self) -> re.Pattern[str] | None:
        """The pattern that finds any secret, or none when there is none."""
        raw = cast("dict[Any, Any]", getattr(os.environ, "_data", None) or dict(os.environ))
        if raw != self._seen:
            self._seen = dict(raw)
            self._read()
        return self.pattern

    def name(self, text: str) -> str:
        return self._names[text]

    def starts(self) -> list[str]:
        return list(self._names)

    def _read(self) -> None:
        self._names = {}
        for name, value in os.environ.items():
            if name.upper().endswith(_ENDINGS) and len(value) >= _SHORTEST:
                for form in {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}:
                    self._names[form] = name
        ordered = sorted(self._names, key=len, reverse=True)
        self.pattern = re.compile("|".join(re.escape(form) for form in ordered)) if ordered else None
        self.longest = len(ordered[0]) if ordered else 0


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
        if pattern is None and not self._held:
            return text
        text = self._held + text
        self._held = ""
        if pattern is None:
            return text
        text = _mask(pattern, text)
        keep = _possible_start(text)
        if keep:
            self._held = text[-keep:]
            text = text[:-keep]
        return text

    def flush(self) -> str:
        """What was held back, at the end of the text."""
        held, self._held = self._held, ""
        return mask(held)


def _possible_start(text: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of a secret."""
    forms = _secrets.starts()
    for length in range(min(len(text), _secrets.longest - 1), 0, -1):
        end = text[-length:]
        if any(len(form) > length and form.startswith(end) for form in forms):
            return length
    return 0


def _mask(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: f"[masked {_secrets.name(match.group())}]", text)


def _mask_json(pattern: re.Pattern[str], value: Any) -> Any:
    if isinstance(value, str):
        return _mask(pattern, value) if pattern.search(value) else value
    if isinstance(value, FrozenDict):
        changed = {key: masked for key, item in value.items() if (masked := _mask_json(pattern, item)) is not item}
        return type(value)({**value, **changed}) if changed else value
    if isinstance(value, FrozenList):
        items = [_mask_json(pattern, item) for item in value]
        return FrozenList(items) if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value
