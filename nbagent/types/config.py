"""Call configuration, agent options and cancel causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nbagent.types.frozen import Record
from nbagent.types.messages import Message

__all__ = ("CallConfig", "CancelCause", "ModelFacts", "Request", "ToolDeclaration", "ToolHistory")


class CallConfig(Record):
    """How a model is called: `{provider, model, reasoningEffort?, maxTokens?, temperature?, stop?, prefill?, extraBody?}`.

    `prefill` is text with which the answer has to begin; `extraBody` is merged into the body of the request.
    """

    __slots__ = ()

    @property
    def provider(self) -> str:
        return self.get("provider", "")

    @property
    def model(self) -> str:
        return self.get("model", "")

    @property
    def reasoning_effort(self) -> str | None:
        return self.get("reasoningEffort")

    @property
    def max_tokens(self) -> int | None:
        return self.get("maxTokens")


class CancelCause(Record):
    """Why an activity was cancelled: `{kind: user | parent | disposed}` or `{kind: hook, reason}`."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        return self["kind"]

    @property
    def reason(self) -> str | None:
        return self.get("reason")


class ToolDeclaration(Record):
    """What a model is told of a tool: `{name, description, parameters}`, `parameters` a JSON schema."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return self["name"]

    @property
    def description(self) -> str:
        return self["description"]

    @property
    def parameters(self) -> dict[str, Any]:
        return self["parameters"]


class ToolHistory(Record):
    """How the tool catalogue of the current series grew: `{tools, updates: [{messageId, additions}]}`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What an adapter knows of a model.

    Attributes:
        context_window: Tokens that fit in a request and its answer; unknown when absent.
        default_max_tokens: Cap on the answer that the adapter sends when none is configured.
        default_effort: Reasoning effort that the adapter uses when none is configured.
        efforts: Efforts the model accepts; absent when it takes none, or when the adapter does not know.
        system_prompt_update: `"in-history"` when a later system message is understood as the new prompt.
        tool_update: Whether tools may change in the middle of a series.
        images: Whether the model reads images.
    """

    context_window: int | None = None
    default_max_tokens: int | None = None
    default_effort: str | None = None
    efforts: tuple[str, ...] | None = None
    system_prompt_update: str | None = None
    tool_update: bool = False
    images: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent to a model: built from the log alone, frozen before it leaves the loop.

    Attributes:
        config: The call configuration as the log's header has it.
        messages: The derived history; a leading system message is the prompt.
        tools: The tools of the header, in its order.
        tool_history: Baseline and updates of the current series.
        session_id: The session that asks.
    """

    config: CallConfig
    messages: Sequence[Message]
    tools: Sequence[ToolDeclaration]
    tool_history: ToolHistory
    session_id: str

    def to_json(self) -> dict[str, Any]:
        """`{config, messages, tools, toolHistory, sessionId}`, parts shared and frozen."""
        return {
            "config": self.config,
            "messages": list(self.messages),
            "tools": list(self.tools),
            "toolHistory": self.tool_history,
            "sessionId": self.session_id,
        }
