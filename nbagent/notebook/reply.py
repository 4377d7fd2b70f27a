"""What a turn answered, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nbagent.errors import LlmError
from nbagent.notebook.transcript import TurnTranscript
from nbagent.notebook.turn_items import Call, Prose

__all__ = ("Reply", "TurnError")


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of one prompt.

    Attributes:
        text: The answer: the texts of the last step that had any.
        reasoning: What the model thought aloud, over the whole turn.
        usage: Tokens by kind (`inputTokens`, `outputTokens`, ...); what no call reported is absent.
        turn: Number of the turn; absent when the prompt was cancelled before it had one.
        tool_calls: The calls with arguments, results and states, in order.
        reason: How it ended, as the log has it: `{kind: completed}`, `{kind: aborted, reason}`, `{kind: error, error}`.
        agent: Name of the agent.
    """

    text: str
    reasoning: str
    usage: Mapping[str, int]
    turn: int | None
    tool_calls: tuple[Call, ...]
    reason: Mapping[str, Any]
    agent: str
    _transcript: TurnTranscript = field(repr=False, compare=False, default_factory=TurnTranscript)

    @classmethod
    def of(cls, transcript: TurnTranscript, *, agent: str, reason: Mapping[str, Any] | None = None) -> Reply:
        """The reply of a finished turn; `reason` when the log has none."""
        items = transcript.items
        thoughts = [item.text for item in items if isinstance(item, Prose) and item.kind == "reasoning"]
        return cls(
            transcript.text,
            "\n\n".join(thoughts),
            transcript.usage,
            transcript.turn,
            tuple(item for item in items if isinstance(item, Call)),
            transcript.reason or reason or {},
            agent,
            transcript,
        )

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from nbagent.notebook.display import bundle

        return bundle([self._transcript], agent_name=self.agent)


class TurnError(LlmError):
    """A turn ended in an error; `reply` is what there was until then."""

    reply: Reply

    @classmethod
    def of(cls, reply: Reply) -> TurnError:
        """The failure of a reply whose reason is an error, in one line."""
        facts: dict[str, Any] = dict(reply.reason["error"])
        message = " ".join(str(facts["message"]).split())
        if len(message) > 400:
            message = f"{message[:399]}…"
        failure = cls(
            message,
            code=facts["code"],
            status=facts.get("status"),
            provider_retry_after_ms=facts.get("providerRetryAfterMs"),
            request_id=facts.get("requestId"),
        )
        failure.reply = reply
        return failure
