"""A turn as Markdown and as plain text: what a diff, a code-hosting site or a terminal shows of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from nbagent.notebook.markdown import harmless_markdown
from nbagent.notebook.turn_items import Call, LateMessage, Prose, RetryNotice, TurnState
from nbagent.notebook.wording import (
    FULL_CALLS,
    PROMPT_LIMIT,
    SHORT,
    answer_text,
    bounded,
    call_preview,
    call_word,
    retry_line,
    status_line,
    usage_line,
    visible,
)

__all__ = ("turn_markdown", "turn_plain")

_RESULT_LIMIT = 2_000
_REASONING_LIMIT = 600


def turn_plain(state: TurnState, agent_name: str, note: str | None) -> str:
    """One turn as plain text."""
    parts = [_title(state, agent_name)]
    if note:
        parts.append(note)
    parts.extend(_prefixed("> ", bounded(prompt, PROMPT_LIMIT)) for prompt in state.prompts)
    limits = _limits()
    for item in state.items:
        match item:
            case Prose(kind="text"):
                parts.append(answer_text(item).strip())
            case Prose():
                parts.append(_prefixed("  ", f"(reasoning) {bounded(item.text.strip(), _REASONING_LIMIT)}"))
            case Call():
                parts.append(_call_plain(item, next(limits)))
            case RetryNotice():
                parts.append(f"[{retry_line(item)}]")
            case LateMessage():
                parts.append(_prefixed("> ", bounded(item.text, PROMPT_LIMIT)))
    parts.append(f"[{_ending(state)}]")
    return "\n\n".join(part for part in parts if part)


def _call_plain(call: Call, limit: int) -> str:
    line = f"[{visible(call.name)}({call_preview(call)}): {call_word(call)}]"
    result = _result_text(call, limit)
    return f"{line}\n{_prefixed('  ', result)}" if result else line


def turn_markdown(state: TurnState, agent_name: str, note: str | None) -> str:
    """One turn as Markdown in which only the answer is markup."""
    name, rest = _split_title(state, agent_name)
    parts = [f"**{_literal(name)}**" + (f" · {_literal(rest)}" if rest else "")]
    if note:
        parts.append(f"*{_literal(note)}*")
    parts.extend(_quoted(prompt) for prompt in state.prompts)
    limits = _limits()
    for item in state.items:
        match item:
            case Prose(kind="text"):
                parts.append(harmless_markdown(answer_text(item).strip()))
            case Prose():
                parts.append(f"*Reasoning*\n\n{_quoted(bounded(item.text.strip(), _REASONING_LIMIT))}")
            case Call():
                parts.append(_call_markdown(item, next(limits)))
            case RetryNotice():
                parts.append(f"*{_literal(retry_line(item))}*")
            case LateMessage():
                parts.append(_quoted(item.text))
    parts.append(f"*{_literal(_ending(state))}*")
    return "\n\n".join(part for part in parts if part)


def _call_markdown(call: Call, limit: int) -> str:
    line = f"**Tool** {_code(f'{visible(call.name)}({call_preview(call)})')}: {_literal(call_word(call))}"
    result = _result_text(call, limit)
    return f"{line}\n\n{_fenced(result)}" if result else line


def _limits() -> Iterator[int]:
    """How much of each result is told, call after call."""
    return itertools.chain(itertools.repeat(_RESULT_LIMIT, FULL_CALLS), itertools.repeat(SHORT))


def _title(state: TurnState, agent_name: str) -> str:
    return f"{agent_name} ({visible(state.model)})" if state.model else agent_name


def _split_title(state: TurnState, agent_name: str) -> tuple[str, str]:
    return agent_name, visible(state.model)


def _ending(state: TurnState) -> str:
    parts = [status_line(state)]
    if state.reason is not None and state.reason["kind"] == "error":
        parts[0] += f": {visible(state.reason['error']['message'])}"
    usage = usage_line(state.usage)
    if usage:
        parts.append(usage)
    return " · ".join(parts)


def _result_text(call: Call, limit: int) -> str:
    lines = [bounded(call.result, limit).rstrip()] if call.result else []
    lines.extend(f"[{picture.media_type}]" for picture in call.pictures)
    return "\n".join(lines)


def _prefixed(prefix: str, text: str) -> str:
    return "\n".join(f"{prefix}{line}".rstrip() for line in text.split("\n"))


def _literal(text: str) -> str:
    """Text with everything escaped that Markdown could read, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&$-])", r"\\\1", " ".join(text.split()))


def _quoted(text: str) -> str:
    lines = bounded(text, PROMPT_LIMIT).split("\n")
    return "\n".join(
        f"> {_literal(line)}  ".rstrip() if not line.strip() else f"> {_literal(line)}  " for line in lines
    )


def _code(text: str) -> str:
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _fenced(text: str) -> str:
    fence = "`" * max(3, max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return f"{fence}text\n{text}\n{fence}"
