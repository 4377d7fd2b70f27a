"""The system prompt against its nodes: which `system/message` events make the surface say what was rendered.

The prompt lives on the surface. Its first node is the head; a route that understands a later system message as the new
prompt (`in-history`) lets a continuing conversation append a version, which keeps the request prefix byte-identical. On
any other route, or when a new series begins, all versions are consolidated into the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbagent.types.messages import Message

__all__ = ("PromptNode", "PromptWrite", "prompt_node", "reconcile")


@dataclass(frozen=True, slots=True)
class PromptNode:
    """A surviving system node: its seq and its text, or none for content that is no single text block.

    Such content counts as active and never equals a rendering.
    """

    seq: int
    text: str | None

    @property
    def active(self) -> bool:
        return self.text != ""


@dataclass(frozen=True, slots=True)
class PromptWrite:
    """One system message to append to the log: a new node, or the replacement of the node `replaces`."""

    text: str
    replaces: int | None = None


def prompt_node(seq: int, message: Message) -> PromptNode:
    """The node of a `system/message` event."""
    content = message.content
    if not content:
        return PromptNode(seq, "")
    if len(content) == 1 and content[0]["type"] == "text":
        return PromptNode(seq, content[0]["text"])
    return PromptNode(seq, None)


def reconcile(nodes: Sequence[PromptNode], rendering: str, *, in_history: bool, new_series: bool) -> list[PromptWrite]:
    """What to write so that the surface's prompt is `rendering`.

    Args:
        nodes: The system nodes in surface order; the first is the head.
        rendering: The rendered prompt; empty for none.
        in_history: Whether the route of this attempt reads later system messages as the new prompt.
        new_series: Whether this request begins a new series.
    """
    if not nodes:
        return [PromptWrite(rendering)]
    head, later = nodes[0], [node for node in nodes[1:] if node.active]
    clear_later = [PromptWrite("", node.seq) for node in later]
    if not rendering:
        return clear_later + ([PromptWrite("", head.seq)] if head.active else [])
    if not in_history or new_series:
        return clear_later + ([PromptWrite(rendering, head.seq)] if head.text != rendering else [])
    effective = later[-1] if later else head
    return [] if effective.text == rendering else [PromptWrite(rendering)]
