"""Keys that a model's stream delivers in pieces: text that may be the beginning of one waits until it is decided."""

from __future__ import annotations

from collections.abc import Sequence

from nbagent.secrets import StreamMask
from nbagent.types.frozen import FrozenDict
from nbagent.types.stream import StreamChunk, reasoning_delta, text_delta, tool_call_delta

__all__ = ("ChunkMask",)

_TEXT_FIELD = {"text-delta": "text", "reasoning-delta": "text", "tool-call-delta": "argumentsDelta"}


class ChunkMask:
    """Masks the chunks of one stream; every chunk comes out once, what was held back as one more delta."""

    def __init__(self) -> None:
        self._masks: dict[tuple[str, int], StreamMask] = {}

    def feed(self, chunks: Sequence[StreamChunk]) -> list[StreamChunk]:
        """The chunks as they may be logged."""
        masked: list[StreamChunk] = []
        for chunk in chunks:
            kind = chunk["type"]
            field = _TEXT_FIELD.get(kind)
            if field is None:
                masked.extend(self._held(chunk.get("index")))
                masked.append(chunk)
                continue
            key = (kind, chunk["index"])
            mask = self._masks.get(key)
            if mask is None:
                mask = self._masks[key] = StreamMask()
            text = chunk[field]
            released = mask.feed(text)
            masked.append(chunk if released == text else FrozenDict({**chunk, field: released}))
        return masked

    def last(self, chunks: Sequence[StreamChunk]) -> list[StreamChunk]:
        """The last chunks of the stream, with everything still held back before its terminal chunk."""
        masked = self.feed(chunks)
        return [*masked, *self._held(None)]

    def _held(self, index: int | None) -> list[StreamChunk]:
        released: list[StreamChunk] = []
        for kind, at in list(self._masks):
            if index is not None and at != index:
                continue
            text = self._masks.pop((kind, at)).flush()
            if text:
                released.append(_delta(kind, at, text))
        return released


def _delta(kind: str, index: int, text: str) -> StreamChunk:
    if kind == "text-delta":
        return text_delta(index, text)
    if kind == "reasoning-delta":
        return reasoning_delta(index, text)
    return tool_call_delta(index, text)
