"""How servers of one protocol differ, as data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("CUSTOM", "DEEPSEEK", "OPENAI", "ChatDialect")


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """One kind of chat-completions server.

    Attributes:
        max_tokens_field: What the cap on an answer is called.
        include_usage: Whether usage has to be asked for.
        returns_reasoning: Whether the model's reasoning goes back with each of its messages; a message with tool calls
            then has the field even when there was none.
        thinking_switch: Whether effort `off` is the request field `thinking` instead of an effort.
        prefix_mark: Whether a prefilled answer has to be marked as one.
        efforts: Efforts that models take; unknown when absent.
        context_window: Tokens that fit in its models; unknown when absent.
        images: Whether messages may hold images.
    """

    max_tokens_field: str = "max_tokens"
    include_usage: bool = True
    returns_reasoning: bool = False
    thinking_switch: bool = False
    prefix_mark: bool = False
    efforts: tuple[str, ...] | None = None
    context_window: int | None = None
    images: bool = False


CUSTOM = ChatDialect()
DEEPSEEK = ChatDialect(
    returns_reasoning=True,
    thinking_switch=True,
    prefix_mark=True,
    efforts=("off", "low", "high", "max"),
    context_window=1_000_000,
)
OPENAI = ChatDialect(max_tokens_field="max_completion_tokens", images=True)
