"""A summary of a stretch of history, written by the agent's own model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbagent.cancellation import CancelSignal
from nbagent.errors import LlmError
from nbagent.types.assembler import Assembler
from nbagent.types.config import Request, ToolHistory
from nbagent.types.frozen import FrozenDict, freeze
from nbagent.types.messages import Message, system_message, user_message

if TYPE_CHECKING:
    from nbagent.agent.agent import Agent

__all__ = ("FIRST_LINE", "written_summary")

FIRST_LINE = "Summary of the earlier conversation, which it replaces:"
_PROMPT = (
    "You summarise the beginning of a conversation between a user and an agent that works with tools. The summary "
    "replaces it: the agent goes on from your text alone. Keep what was asked for, decisions and their reasons, facts "
    "found, names, numbers, paths and code that are still needed, what was tried and failed, and what is left to do. "
    "Leave out greetings and what was superseded. Write plain text."
)
_LONGEST_RESULT = 4_000
"""Characters of a tool result that are shown to the summary's author; the middle of a longer one is left out."""


async def written_summary(
    agent: Agent, messages: Sequence[Message], signal: CancelSignal, instructions: str | None = None
) -> tuple[str, FrozenDict | None]:
    """Ask the agent's model for a summary of `messages`; answers it and the usage that the model reported.

    Args:
        agent: Whose model and `llm/stream` listeners.
        messages: What is summarised, in order.
        signal: Ends the call.
        instructions: What to pay attention to, beyond the usual.

    Raises:
        LlmError: The call failed, or the model wrote nothing (`EMPTY_RESPONSE`).
    """
    seed = agent.requests.seed(agent.options)
    prepared = await agent.llm.prepare_call(seed, signal)
    prompt = _PROMPT if instructions is None else f"{_PROMPT}\n\n{instructions}"
    request = Request(
        config=prepared.config,
        messages=(system_message(prompt), user_message("\n\n".join(_told(message) for message in messages))),
        tools=(),
        tool_history=ToolHistory(freeze({"tools": [], "updates": []})),
        session_id=agent.id,
    )
    assembler = Assembler()
    async for chunk in prepared.stream(request, signal):
        assembler.feed(chunk)
    finish = assembler.finish or {"kind": "stop"}
    if finish["kind"] in {"error", "aborted"}:
        raise LlmError.from_facts(finish.get("error") or {"message": "the model call ended early", "code": "UNKNOWN"})
    text = "".join(block["text"] for block in assembler.blocks(tool_calls=False) if block["type"] == "text").strip()
    if not text:
        raise LlmError("the model wrote no summary", code="EMPTY_RESPONSE")
    return f"{FIRST_LINE}\n\n{text}", assembler.usage


def _told(message: Message) -> str:
    """One message as lines that another model reads."""
    lines = [f"[{message.role}]", *(_told_block(block, message.role) for block in message.content)]
    return "\n".join(line for line in lines if line)


def _told_block(block: Mapping[str, Any], role: str) -> str:
    kind = block["type"]
    if kind == "text":
        return _shortened(block["text"]) if role == "tool" else block["text"]
    if kind == "tool-call":
        return f"calls {block['name']}({_shortened(block['arguments'])})"
    if kind in {"tool-addition", "tool-removal"}:
        return f"{kind}: {block['toolName']}"
    return "" if kind == "reasoning" else f"({kind})"


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_RESULT:
        return text
    half = _LONGEST_RESULT // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
