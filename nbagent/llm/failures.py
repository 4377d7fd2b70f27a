"""What a server's failure means: one code, the server's own words, and nothing secret.

The type and code that a server gives decide before its status does; the words decide where neither says enough.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any, cast

import orjson

from nbagent.errors import LlmError
from nbagent.secrets import mask

__all__ = ("error_of", "failure_of_body", "failure_of_error", "readable")

_BOUND = 500
"""Characters of a server's words that are shown."""

_BY_WORD: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "CONTEXT_WINDOW_EXCEEDED",
        re.compile(
            r"context_length_exceeded|exceed_context_size|context[ _-](window|length|size)|maximum context"
            r"|prompt is too long|too many (input )?tokens|input length .*exceed",
            re.IGNORECASE,
        ),
    ),
    (
        "QUOTA",
        re.compile(
            r"insufficient[_ ](quota|balance|credit|fund)|billing|exceeded your current quota|out of credits?"
            r"|payment required|credit balance",
            re.IGNORECASE,
        ),
    ),
    ("CONTENT_FILTER", re.compile(r"content[_ ]filter|content[_ ]policy", re.IGNORECASE)),
    ("OVERLOADED", re.compile(r"overloaded|over capacity|engine_overloaded", re.IGNORECASE)),
    ("RATE_LIMIT", re.compile(r"rate[_ -]?limit|too many requests", re.IGNORECASE)),
    (
        "AUTH",
        re.compile(
            r"invalid[_ ]api[_ ]key|incorrect api key|authentication|unauthori[sz]ed|permission[_ ]denied"
            r"|invalid[_ ]token",
            re.IGNORECASE,
        ),
    ),
    ("INVALID_REQUEST", re.compile(r"invalid_request|not_found_error|model_not_found", re.IGNORECASE)),
    ("SERVER", re.compile(r"server_error|internal_error|api_error|unavailable_error|bad_gateway", re.IGNORECASE)),
    ("TIMEOUT", re.compile(r"timed? ?out", re.IGNORECASE)),
)
_BY_STATUS = {
    400: "INVALID_REQUEST",
    401: "AUTH",
    402: "QUOTA",
    403: "AUTH",
    404: "INVALID_REQUEST",
    408: "TIMEOUT",
    413: "CONTEXT_WINDOW_EXCEEDED",
    422: "INVALID_REQUEST",
    429: "RATE_LIMIT",
    503: "OVERLOADED",
    504: "TIMEOUT",
    529: "OVERLOADED",
}


def failure_of_body(status: int, body: bytes, headers: Mapping[str, str], *, host: str) -> LlmError:
    """The failure that an answer with an error status is.

    Args:
        status: HTTP status.
        body: What came with it; JSON, a web page or anything.
        headers: Of the answer; asked for a wait and a request id.
        host: For messages about a body that says nothing.
    """
    error = error_of(_parsed(body))
    if error is None:
        words = readable(body.decode("utf-8", "replace"))
        error = {"message": f"{host} answered {status}" + (f": {words}" if words else "")}
    request_id = headers.get("x-request-id") or headers.get("request-id")
    return failure_of_error(error, status=status, retry_after_ms=_retry_after(headers), request_id=request_id)


def failure_of_error(
    error: Any, *, status: int | None = None, retry_after_ms: int | None = None, request_id: str | None = None
) -> LlmError:
    """The failure that an error object of a server is, whatever its shape.

    Args:
        error: `{message, type?, code?}`, a text, or a list of them.
        status: HTTP status; a numeric `code` inside the error stands in for it.
        retry_after_ms: How long the server asked to wait.
        request_id: The server's id of the request.
    """
    fields = _fields(error)
    message = str(fields.get("message") or fields.get("detail") or fields.get("type") or "the server gave no reason")
    code = fields.get("code")
    if isinstance(code, int | str) and str(code).isdigit() and not (status and status >= 400):
        status = int(code)
    labels = " ".join(str(fields.get(key) or "") for key in ("type", "code", "status"))
    return LlmError(
        readable(message),
        code=_classify(labels, message, status),
        status=status,
        provider_retry_after_ms=retry_after_ms,
        request_id=request_id if request_id and len(request_id) <= 200 else None,
    )


def readable(text: str) -> str:
    """One bounded, masked line of a server's text; of a web page its title."""
    if re.search(r"<(!doctype|html|head|body)\b", text, re.IGNORECASE):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        text = f"a web page ({title.group(1)})" if title else "a web page"
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    line = mask(line)
    return line if len(line) <= _BOUND else line[:_BOUND] + "..."


def _classify(labels: str, message: str, status: int | None) -> str:
    for code, pattern in _BY_WORD:
        if pattern.search(labels):
            # A label as general as this one says less than the words do.
            if code in {"INVALID_REQUEST", "SERVER"}:
                break
            return code
    if status in {401, 402, 403}:
        return _BY_STATUS[status]
    for code, pattern in _BY_WORD[:5]:
        if pattern.search(message):
            return code
    for code, pattern in _BY_WORD:
        if pattern.search(labels):
            return code
    if status is not None and status >= 400:
        return _BY_STATUS.get(status, "SERVER" if status >= 500 else "INVALID_REQUEST")
    for code, pattern in _BY_WORD:
        if pattern.search(message):
            return code
    return "SERVER"


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body.strip())
    except orjson.JSONDecodeError:
        return None


def error_of(payload: Any) -> Any | None:
    """The error inside a payload that is one, in any of the shapes servers use; else none."""
    if isinstance(payload, list):
        listed = cast("list[Any]", payload)
        return error_of(listed[0]) if listed else None
    if not isinstance(payload, dict):
        return None
    fields = cast("dict[str, Any]", payload)
    if fields.get("error"):
        return fields["error"]
    if fields.get("object") == "error" or (fields.get("type") == "error" and "message" in fields):
        return fields
    if "choices" not in fields and ("detail" in fields or ("message" in fields and "code" in fields)):
        return fields
    return None


def _fields(error: Any) -> dict[str, Any]:
    if isinstance(error, list):
        listed = cast("list[Any]", error)
        return _fields(listed[0]) if listed else {}
    if isinstance(error, dict):
        return cast("dict[str, Any]", error)
    return {"message": str(error)}


def _retry_after(headers: Mapping[str, str]) -> int | None:
    exact = headers.get("retry-after-ms")
    given = headers.get("retry-after")
    try:
        if exact is not None:
            return max(0, round(float(exact)))
        if given is None:
            return None
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", given):
            return round(float(given) * 1000)
        return max(0, round((email.utils.parsedate_to_datetime(given).timestamp() - time.time()) * 1000))
    except (ValueError, OverflowError):
        return None
