"""The shape of an event's data: what each type must and may hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from nbagent.errors import SessionError
from nbagent.types.events import Event
from nbagent.types.messages import Message

__all__ = ("check_message", "check_shape", "message_of")

_ROLES = {
    "system/message": "system",
    "developer/message": "developer",
    "user/message": "user",
    "assistant/message": "assistant",
    "tool/result": "tool",
}
_TOOL_CHANGES = frozenset({"tool-addition", "tool-removal"})
_BLOCK_TEXTS = {"text": ("text",), "reasoning": ("text",), "tool-call": ("id", "name", "arguments")}
_CHUNK_FIELDS: dict[str, tuple[tuple[str, type], ...]] = {
    "block-start": (("index", int), ("blockType", str)),
    "text-delta": (("index", int), ("text", str)),
    "reasoning-delta": (("index", int), ("text", str)),
    "tool-call-delta": (("index", int), ("argumentsDelta", str)),
    "block-end": (("index", int), ("block", dict)),
    "usage": (("usage", dict),),
    "finish": (("reason", dict),),
}
_DEFAULTED = frozenset({"reasoningEffort", "maxTokens"})


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
        check_message(type, message, _ROLES[type])
        if type == "developer/message":
            _check_tool_changes(data, events)
        elif type == "tool/result" and "error" in data:
            _check_error(type, data)
        elif type == "assistant/message" and not isinstance(data.get("usage", data), Mapping):
            raise _invalid(type, "needs a usage that is an object")
    check = _CHECKS.get(type)
    if check is not None:
        check(type, data)


def check_message(type: str, value: Any, role: str) -> None:
    """Raise unless `value` is a message of `role` that an event of `type` may hold.

    Raises:
        SessionError: `INVALID_EVENT`.
    """
    if not isinstance(value, Mapping):
        raise _invalid(type, "lacks its message")
    message = cast("Mapping[str, Any]", value)
    if message.get("role") != role:
        raise _invalid(type, f"needs a message of role {role}, got {message.get('role')!r}")
    if not _is_name(message.get("id")):
        raise _invalid(type, "needs a message with a non-empty id")
    source = message.get("source")
    if not isinstance(source, Mapping) or not _is_name(cast("Mapping[str, Any]", source).get("kind")):
        raise _invalid(type, "needs a message source with a kind")
    content = message.get("content")
    if not isinstance(content, list):
        raise _invalid(type, "needs message content that is a list of blocks")
    for block in cast("list[Any]", content):
        _check_block(type, block)
    _check_source(type, message, cast("Mapping[str, Any]", source))


def _check_block(type: str, value: Any) -> None:
    block: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
    kind = block.get("type")
    if not isinstance(kind, str):
        raise _invalid(type, "needs content blocks with a type")
    if kind in _TOOL_CHANGES and type != "developer/message":
        raise _invalid(type, "cannot hold tool changes")
    for field in _BLOCK_TEXTS.get(kind, ()):
        if not isinstance(block.get(field), str):
            raise _invalid(type, f"needs {kind} blocks whose {field} is a text")


def _check_source(type: str, message: Mapping[str, Any], source: Mapping[str, Any]) -> None:
    if type == "assistant/message":
        if source["kind"] != "model" or not _is_name(source.get("provider")) or not _is_name(source.get("model")):
            raise _invalid(type, "needs a model source with provider and model")
    elif type == "tool/result":
        call_id = message.get("toolCallId")
        if source["kind"] != "tool" or not _is_name(call_id) or source.get("callId") != call_id:
            raise _invalid(type, "needs a tool source whose callId is the message's toolCallId")


def _check_error(type: str, data: Mapping[str, Any]) -> None:
    error = data["error"]
    if not isinstance(error, Mapping) or not all(_is_name(error.get(key)) for key in ("name", "code")):  # pyright: ignore[reportUnknownMemberType]
        raise _invalid(type, "needs an error with name and code")
    if data["message"].get("isError") is not True:
        raise _invalid(type, "an error needs an error message")


def _check_tool_changes(data: Mapping[str, Any], events: Sequence[Event]) -> None:
    blocks = data["message"]["content"]
    added = [block.get("toolName") for block in blocks if block["type"] == "tool-addition"]
    for block in blocks:
        if block["type"] not in _TOOL_CHANGES or not _is_name(block.get("toolName")) or len(block) != 2:
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
    if "system" in header:
        raise _invalid(type, "must not hold the system prompt")
    for field in ("tools", "adapterDefaults"):
        if field in header and not header[field]:
            raise _invalid(type, f"must leave out empty {field}")
    config = header.get("config")
    if not isinstance(config, Mapping):
        raise _invalid(type, "needs a provider and a model")
    config = cast("Mapping[str, Any]", config)
    if not _is_name(config.get("provider")) or not _is_name(config.get("model")):
        raise _invalid(type, "needs a provider and a model")
    if "reasoningEffort" in config and not _is_name(config["reasoningEffort"]):
        raise _invalid(type, "has an empty reasoningEffort")
    _check_defaults(type, header.get("adapterDefaults"), config)
    _check_tools(type, header.get("tools"))
    if data.get("reason") not in ("initial", "resume", "change", "series"):
        raise _invalid(type, f"has the unknown reason {data.get('reason')!r}")


def _check_defaults(type: str, value: Any, config: Mapping[str, Any]) -> None:
    marks: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
    if (value is not None and not marks) or any(
        field not in _DEFAULTED or mark is not True or field not in config for field, mark in marks.items()
    ):
        raise _invalid(type, "adapterDefaults mark reasoningEffort or maxTokens that the config has")


def _check_tools(type: str, value: Any) -> None:
    if value is None:
        return
    tools = cast("list[Any]", value) if isinstance(value, list) else [None]
    if any(
        not isinstance(tool, Mapping) or not _is_name(cast("Mapping[str, Any]", tool).get("name")) for tool in tools
    ):
        raise _invalid(type, "needs tools that are declarations with a name")


def _check_splice(type: str, data: Mapping[str, Any]) -> None:
    # Whether the coordinates fit is for the fold to say, which knows the lists.
    _needs(target=_is_name, start=_is_count, inserted=_is_list)(type, data)
    for message in data["inserted"]:
        check_message(type, message, "user")


def _needs(**fields: Callable[[Any], bool]) -> Callable[[str, Mapping[str, Any]], None]:
    def check(type: str, data: Mapping[str, Any]) -> None:
        for field, valid in fields.items():
            if field not in data:
                raise _invalid(type, f"lacks {field}")
            if not valid(data[field]):
                raise _invalid(type, f"has a wrong {field}: {str(data[field])[:80]!r}")

    return check


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_reason(value: Any) -> bool:
    return isinstance(value, Mapping) and _is_name(cast("Mapping[str, Any]", value).get("kind"))


def _check_frame(type: str, data: Mapping[str, Any]) -> None:
    _FRAME(type, data)
    for value in data["chunks"]:
        chunk: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
        kind = chunk.get("type")
        for field, shape in _CHUNK_FIELDS.get(kind, ()) if isinstance(kind, str) else (("type", str),):
            if not isinstance(chunk.get(field), shape):
                raise _invalid(type, f"needs {kind} chunks with a valid {field}")
        if kind == "block-end":
            _check_block(type, chunk["block"])
        elif kind == "finish" and not _is_reason(chunk["reason"]):
            raise _invalid(type, "needs finish chunks whose reason has a kind")


_FRAME = _needs(turn=_is_count, step=_is_count, attempt=_is_count, index=_is_count, chunks=_is_list)

_CHECKS: dict[str, Callable[[str, Mapping[str, Any]], None]] = {
    "turn/start": _needs(turn=_is_count),
    "turn/end": _needs(turn=_is_count, reason=_is_reason),
    "step/start": _needs(turn=_is_count, step=_is_count),
    "step/end": _needs(turn=_is_count, step=_is_count),
    "tool/call": _needs(turn=_is_count, step=_is_count, callId=_is_name, name=_is_text, arguments=_is_text),
    "assistant/frame": _check_frame,
    "agent/inbox/spliced": _check_splice,
    "request/header": _check_header,
    "request/context": _needs(provider=_is_name, model=_is_name),
    "llm/retry": _needs(retryId=_is_name),
    "llm/retry-started": _needs(retryId=_is_name),
}


def _invalid(type: str, fault: str) -> SessionError:
    return SessionError(f'session event "{type}" {fault}', code="INVALID_EVENT")
