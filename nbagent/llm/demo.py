"""The demo route: no language model, but the whole loop.

It streams, calls the tools that a prompt names, sums their results up, and says in every reply what it is and how to
connect a model. The same prompt always gives the same bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import anyio
import orjson

from nbagent.cancellation import CancelSignal
from nbagent.llm.demo_calls import calls_in
from nbagent.types.config import ModelFacts, Request
from nbagent.types.messages import Message
from nbagent.types.stream import StreamChunk, finish, text_delta, tool_call_delta, usage_chunk

__all__ = ("DemoAdapter",)

_HOW_TO_CONNECT = (
    "*This is the nbagent demo: no language model is connected. To connect one, set `DEEPSEEK_API_KEY` or "
    "`OPENAI_API_KEY` and create the agent with `--model deepseek` or `--model openai`; any other server works with "
    "`--model custom/NAME --base-url URL`.*"
)
_DELAY_MS = 15
_SHOWN = 300
_PIECE = re.compile(r"\s*\S+|\s+")


class DemoAdapter:
    """Answers from the prompt's own words.

    Args:
        delay_ms: Pause before each piece of text, in milliseconds; `NBAGENT_DEMO_DELAY_MS` or 15 by default.
    """

    def __init__(self, *, delay_ms: float | None = None) -> None:
        self._delay = _delay_ms() if delay_ms is None else delay_ms

    def facts(self, model: str) -> ModelFacts:  # noqa: ARG002 - there is one
        """Nothing is known of a model that is none."""
        return ModelFacts()

    async def stream(self, request: Request, signal: CancelSignal) -> AsyncIterator[StreamChunk]:  # noqa: ARG002
        """Answer the last prompt, or sum up the tool results that came since."""
        prompt, results = _situation(request.messages)
        calls = [] if results else calls_in(prompt, request.tools)
        text = _summary(results) if results else _opening(calls, request)
        for piece in _PIECE.findall(text):
            await anyio.sleep(self._delay / 1000)
            yield text_delta(0, piece)
        number = sum(len(message.tool_calls) for message in request.messages)
        for index, (name, arguments) in enumerate(calls, start=1):
            await anyio.sleep(self._delay / 1000)
            raw = orjson.dumps(arguments).decode()
            yield tool_call_delta(index, raw, id=f"demo-{number + index}", name=name)
        words = sum(len(message.text.split()) for message in request.messages)
        yield usage_chunk({"inputTokens": words, "outputTokens": len(text.split()) + 4 * len(calls)})
        yield finish("tool-calls" if calls else "stop")


def _situation(messages: Sequence[Message]) -> tuple[str, list[tuple[str, Message]]]:
    """The prompts since the model last spoke to the user, and the tool results since."""
    tail = list(takewhile(lambda message: message.role == "tool", reversed(messages)))[::-1]
    calls = {call["id"]: _as_written(call) for message in messages for call in message.tool_calls}
    results = [(calls.get(message.tool_call_id or "", "a tool"), message) for message in tail]
    prompts = [message.text for message in messages if message.role == "user" and message.source["kind"] == "user"]
    return (prompts[-1] if prompts else ""), results


def _opening(calls: Sequence[tuple[str, dict[str, object]]], request: Request) -> str:
    if calls:
        names = list(dict.fromkeys(f"`{name}`" for name, _ in calls))
        return f"The prompt names {_listed(names)}, so the demo calls {'it' if len(names) == 1 else 'them'} now."
    tools = [f"`{tool.name}`" for tool in request.tools]
    can = (
        f"name one of its tools ({_listed(tools)}) and it will call it"
        if tools
        else "give the agent a tool and name it"
    )
    return (
        "Your prompt went through the whole loop: inbox, log, request, stream. "
        f"There is nobody here to understand it, though; {can}.\n\n{_HOW_TO_CONNECT}"
    )


def _summary(results: Sequence[tuple[str, Message]]) -> str:
    lines = [
        f"- {_inline(call)} {'failed' if message.is_error else 'returned'}: {_inline(message.text)}"
        for call, message in results
    ]
    return "Here is what came back:\n\n" + "\n".join(lines) + f"\n\n{_HOW_TO_CONNECT}"


def _as_written(call: Mapping[str, Any]) -> str:
    """A call as one would write it in Python."""
    arguments = orjson.loads(call["arguments"])
    return f"{call['name']}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" and {words[-1]}"


def _inline(text: str) -> str:
    """A result as one code span, whatever is in it."""
    line = " ".join(text.split())
    line = line if len(line) <= _SHOWN else line[:_SHOWN] + "..."
    fence = "`"
    while fence in line:
        fence += "`"
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _delay_ms() -> float:
    try:
        return max(0.0, float(os.environ.get("NBAGENT_DEMO_DELAY_MS", _DELAY_MS)))
    except ValueError:
        return _DELAY_MS
