"""Chunks to blocks: what a stream has said so far, as the content blocks of a message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nbagent.types.frozen import FrozenDict, freeze
from nbagent.types.messages import reasoning_block, text_block, tool_call_block
from nbagent.types.stream import Usage

__all__ = ("Assembler",)


class _Open:
    """A block while it grows."""

    __slots__ = ("block", "call_id", "kind", "name", "pieces")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.call_id = ""
        self.name = ""
        self.block: dict[str, Any] | None = None

    def assemble(self, index: int) -> dict[str, Any]:
        """The block as far as it has come."""
        text = "".join(self.pieces)
        if self.kind == "tool-call":
            return tool_call_block(self.call_id or f"call-{index}", self.name, text)
        return reasoning_block(text) if self.kind == "reasoning" else text_block(text)


_KIND_OF_DELTA = {"text-delta": "text", "reasoning-delta": "reasoning", "tool-call-delta": "tool-call"}


class Assembler:
    """Assembles one stream. Blocks keep the order in which their index was first seen.

    Attributes:
        usage: The last usage reported, or none.
        finish: The reason of the terminal chunk, or none.
    """

    def __init__(self, chunks: Iterable[Mapping[str, Any]] = ()) -> None:
        self._blocks: dict[int, _Open] = {}
        self._replay_state: Mapping[str, Any] | None = None
        self.usage: Usage | None = None
        self.finish: Mapping[str, Any] | None = None
        for chunk in chunks:
            self.feed(chunk)

    def feed(self, chunk: Mapping[str, Any]) -> None:
        """Take the next chunk; a block that is closed ignores later ones."""
        kind = chunk["type"]
        if kind in {"text-delta", "reasoning-delta"}:
            block = self._block(chunk["index"], _KIND_OF_DELTA[kind])
            if block.block is None:
                block.pieces.append(chunk["text"])
        elif kind == "tool-call-delta":
            self._feed_tool_call(chunk)
        elif kind == "block-start":
            self._block(chunk["index"], chunk["blockType"])
        elif kind == "block-end":
            block = self._block(chunk["index"], chunk["block"]["type"])
            if block.block is None:
                block.block = dict(chunk["block"])
        elif kind == "usage":
            self.usage = Usage.of(chunk["usage"])
        elif kind == "finish":
            self.finish = chunk["reason"]
            self._replay_state = chunk.get("replayState")

    def blocks(self, *, tool_calls: bool = True) -> list[dict[str, Any]]:
        """The content blocks in order; blocks without content are left out, and tool calls when not wanted."""
        return [block for _, block in self._present(tool_calls=tool_calls)]

    def interrupted_blocks(self) -> list[dict[str, Any]]:
        """What a user has seen of a stream that was cut: text and reasoning that is not blank."""
        return [block for block in self.blocks(tool_calls=False) if block.get("text", "x").strip()]

    def replay_state(self, *, tool_calls: bool = True) -> FrozenDict | None:
        """The provider's opaque state for the message, its `blocks` pruned in step with `blocks(...)`.

        A state whose `blocks` do not match the stream is dropped as a whole.
        """
        state = self._replay_state
        if state is None:
            return None
        entries = state.get("blocks")
        if isinstance(entries, list):
            if len(entries) != len(self._blocks):  # pyright: ignore[reportUnknownArgumentType]
                return None
            kept: list[Any] = [entries[position] for position, _ in self._present(tool_calls=tool_calls)]
            state = {**state, "blocks": kept}
        return freeze(dict(state))

    def _present(self, *, tool_calls: bool) -> list[tuple[int, dict[str, Any]]]:
        present: list[tuple[int, dict[str, Any]]] = []
        for position, (index, block) in enumerate(self._blocks.items()):
            finished = block.block if block.block is not None else block.assemble(index)
            empty = finished["type"] in {"text", "reasoning"} and not finished["text"]
            if not empty and (tool_calls or finished["type"] != "tool-call"):
                present.append((position, finished))
        return present

    def _block(self, index: int, kind: str) -> _Open:
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = _Open(kind)
        return block

    def _feed_tool_call(self, chunk: Mapping[str, Any]) -> None:
        block = self._block(chunk["index"], "tool-call")
        if block.block is not None:
            return
        block.call_id = block.call_id or chunk.get("id") or ""
        block.name = block.name or chunk.get("name") or ""
        block.pieces.append(chunk.get("argumentsDelta", ""))
