"""The parts of an answer that are not its words: usage, and opaque fields that a server wants back."""

from __future__ import annotations

from typing import Any, cast

from nbagent.types.frozen import NotJsonError, freeze

__all__ = ("merged", "usage_of")

_GROWING = ("text", "summary", "data")


def usage_of(value: Any) -> dict[str, int] | None:
    """A server's usage in the log's terms; what it does not report is absent, and `inputTokens` excludes cached ones."""
    reported = _fields(value)
    prompt_details = _fields(reported.get("prompt_tokens_details") or reported.get("input_tokens_details"))
    answer_details = _fields(reported.get("completion_tokens_details") or reported.get("output_tokens_details"))
    cached = _first(
        prompt_details.get("cached_tokens"), reported.get("prompt_cache_hit_tokens"), reported.get("cached_tokens")
    )
    prompt = _first(reported.get("prompt_tokens"), reported.get("input_tokens"))
    usage = {
        "inputTokens": None if prompt is None else max(prompt - (cached or 0), 0),
        "outputTokens": _first(reported.get("completion_tokens"), reported.get("output_tokens")),
        "cacheReadTokens": cached,
        "cacheWriteTokens": _first(prompt_details.get("cache_write_tokens")),
        "reasoningTokens": _first(answer_details.get("reasoning_tokens")),
    }
    return {key: count for key, count in usage.items() if count is not None} or None


def merged(known: Any, piece: Any) -> Any:
    """An opaque field with what another delta adds: lists grow, entries of one index are one entry, else the last wins."""
    try:
        piece = freeze(piece)
    except NotJsonError:
        return known
    if not isinstance(known, list) or not isinstance(piece, list):
        return piece
    entries = list(cast("list[Any]", known))
    for entry in cast("list[Any]", piece):
        before = _fields(entries[-1]) if entries else {}
        after = _fields(entry)
        same = after.get("index") is not None and all(before.get(key) == after.get(key) for key in ("index", "type"))
        if same:
            grown = {
                key: before[key] + after[key]
                for key in _GROWING
                if isinstance(before.get(key), str) and isinstance(after.get(key), str)
            }
            entries[-1] = {**before, **{key: part for key, part in after.items() if part is not None}, **grown}
        else:
            entries.append(entry)
    return entries


def _first(*values: Any) -> int | None:
    """The first of the values that is a count."""
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53:
            return int(value)
    return None


def _fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
