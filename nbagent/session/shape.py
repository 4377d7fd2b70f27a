"""The shape of an event's data: what each type must and may hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from nbagent.errors import SessionError
from nbagent.types.events import Event
from nbagent.types.messages import Message

__all__ = ("check_shape", "message_of")

_ROLES = {
    "system/message": "system",
    "developer/message": "developer",
    "user/message": "user",
    "assistant/message": "assistant",
    "tool/result": "tool",
}
_TOOL_CHANGES = frozenset({"tool-addition", "tool-removal"})


def message_of(event: Event) -> Message | None:
    """The message that an event puts on the surface, or none."""
    if event.type == "user/message":
        return cast("Message", event.data)
    if event.type in _ROLES:
        return event.data["message"]
    return None


def check_shape(type: str, data: Mapping[str, Any], events: Sequence[Event]) -> None:
    """Raise unless `data` may be the data of an event of `type` that follows `events`.

    Raises:
        SessionError: `INVALID_EVENT`.
    """
    if type in _ROLES:
        message = data if type == "user/message" else data.get("message")
        _check_message(type, message)
        if type == "developer/message":
            _check_tool_changes(data, events)
        elif type == "tool/result" and "error" in data and not data["message"].get("isError"):
            raise _invalid(type, "an error needs an error message")
    check = _CHECKS.get(type)
    if check is not None:
        check(type, data)


def _check_message(type: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise _invalid(type, "lacks its message")
    message = cast("Mapping[str, Any]", value)
    if message.get("role") != _ROLES[type]:
        raise _invalid(type, f"needs a message of role {_ROLES[type]}, got {message.get('role')!r}")
    if not isinstance(message.get("id"), str) or not message["id"]:
        raise _invalid(type, "needs a message with a non-empty id")
    source = message.get("source")
    if not isinstance(source, Mapping) or not cast("Mapping[str, Any]", source).get("kind"):
        raise _invalid(type, "needs a message source with a kind")
    content = message.get("content")
    if not isinstance(content, list):
        raise _invalid(type, "needs message content that is a list of blocks")
    for block in cast("list[Any]", content):
        if not isinstance(block, Mapping) or not isinstance(cast("Mapping[str, Any]", block).get("type"), str):
            raise _invalid(type, "needs content blocks with a type")
        if cast("Mapping[str, Any]", block)["type"] in _TOOL_CHANGES and type != "developer/message":
            raise _invalid(type, "cannot hold tool changes")
    _check_source(type, message, cast("Mapping[str, Any]", source))


def _check_source(type: str, message: Mapping[str, Any], source: Mapping[str, Any]) -> None:
    if type == "assistant/message":
        if source["kind"] != "model" or not source.get("provider") or not source.get("model"):
            raise _invalid(type, "needs a model source with provider and model")
    elif type == "tool/result" and (not message.get("toolCallId") or source.get("callId") != message["toolCallId"]):
        raise _invalid(type, "needs a tool source whose callId is the message's toolCallId")


def _check_tool_changes(data: Mapping[str, Any], events: Sequence[Event]) -> None:
    blocks = data["message"]["content"]
    added = [block.get("toolName") for block in blocks if block["type"] == "tool-addition"]
    for block in blocks:
        if block["type"] not in _TOOL_CHANGES or not block.get("toolName") or set(block) != {"type", "toolName"}:
            raise _invalid("developer/message", "holds only tool-addition and tool-removal blocks with a toolName")
    header_seq = data.get("headerSeq")
    if (header_seq is not None) != bool(added):
        raise _invalid("developer/message", "has a headerSeq exactly when it adds a tool")
    if header_seq is None:
        return
    if type(header_seq) is not int or not 0 <= header_seq < len(events):
        raise _invalid("developer/message", "headerSeq must be an earlier event")
    header = events[header_seq]
    if header.type != "request/header":
        raise _invalid("developer/message", "headerSeq must be a request/header")
    declared = [tool["name"] for tool in header.data["header"].get("tools", ())]
    for name in added:
        if declared.count(name) != 1:
            raise _invalid("developer/message", f'adds "{name}", which its header does not define exactly once')


def _check_header(type: str, data: Mapping[str, Any]) -> None:
    header = data.get("header")
    if not isinstance(header, Mapping):
        raise _invalid(type, "lacks its header")
    header = cast("Mapping[str, Any]", header)
    config: Mapping[str, Any] = header.get("config") or {}
    if not config.get("provider") or not config.get("model"):
        raise _invalid(type, "needs a provider and a model")
    if "reasoningEffort" in config and not config["reasoningEffort"]:
        raise _invalid(type, "has an empty reasoningEffort")
    if "system" in header:
        raise _invalid(type, "must not hold the system prompt")
    for field in ("tools", "adapterDefaults"):
        if field in header and not header[field]:
            raise _invalid(type, f"must leave out empty {field}")
    for field, value in header.get("adapterDefaults", {}).items():
        if field not in {"reasoningEffort", "maxTokens"} or value is not True or field not in config:
            raise _invalid(type, "adapterDefaults mark reasoningEffort or maxTokens that the config has")
    if data.get("reason") not in {"initial", "resume", "change", "series"}:
        raise _invalid(type, f"has the unknown reason {data.get('reason')!r}")


def _needs(*fields: str) -> Callable[[str, Mapping[str, Any]], None]:
    def check(type: str, data: Mapping[str, Any]) -> None:
        for field in fields:
            if field not in data:
                raise _invalid(type, f"lacks {field}")

    return check


_CHECKS: dict[str, Callable[[str, Mapping[str, Any]], None]] = {
    "turn/start": _needs("turn"),
    "turn/end": _needs("turn", "reason"),
    "step/start": _needs("turn", "step"),
    "step/end": _needs("turn", "step"),
    "tool/call": _needs("turn", "step", "callId", "name", "arguments"),
    "assistant/frame": _needs("turn", "step", "attempt", "index", "chunks"),
    "agent/inbox/spliced": _needs("target", "start", "inserted"),
    "request/header": _check_header,
    "request/context": _needs("provider", "model"),
    "llm/retry": _needs("retryId"),
    "llm/retry-started": _needs("retryId"),
}


def _invalid(type: str, fault: str) -> SessionError:
    return SessionError(f'session event "{type}" {fault}', code="INVALID_EVENT")
