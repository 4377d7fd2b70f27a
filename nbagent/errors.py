"""Every error nbagent raises on purpose, in one family with stable codes.

The tree:

    NbagentError
    ├── InputError            something the caller can mend: a name, an option, a path, a key
    ├── SessionError          the log refused: bad data, a broken invariant, re-entrance
    │   └── InvariantError    an event would make the log inconsistent
    ├── StorageError          a session file cannot be found, opened, read or written
    ├── LlmError              a model call failed; carries the provider's facts
    ├── ToolError             raised by a tool body to give the model a coded error result
    └── LifecycleError        an agent cannot be created, resumed or used in its present state

`code` is for programs and never changes its meaning; the message is for people, one or two lines that
say what to do.
"""

from __future__ import annotations

from typing import Any

__all__ = (
    "InputError",
    "InvariantError",
    "LifecycleError",
    "LlmError",
    "NbagentError",
    "SessionError",
    "StorageError",
    "ToolError",
    "error_chain",
)


class NbagentError(Exception):
    """Base of the family.

    Args:
        message: One or two lines for a person.
        code: Stable identifier, in capitals (`SESSION_LOCKED`); the class supplies a default.
    """

    default_code = "ERROR"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code

    def _render_traceback_(self) -> list[str]:
        # IPython asks an exception for its own rendering: a mistake the user can mend is a line, not a stack.
        return [f"{type(self).__name__} [{self.code}]: {self.message}"]


class InputError(NbagentError):
    """The caller can mend this: an unknown name, a bad option, a missing key."""

    default_code = "INVALID_INPUT"


class SessionError(NbagentError):
    """The session log refused an operation; nothing was stored.

    Attributes:
        seq: Where a log that was being read is at fault, when it was.
    """

    default_code = "SESSION_REFUSED"
    seq: int | None = None


class InvariantError(SessionError):
    """An event would break what every log must satisfy."""

    default_code = "INVARIANT_VIOLATED"


class StorageError(NbagentError):
    """A stored session cannot be found, opened, read or written.

    Codes: `SESSION_NOT_FOUND`, `SESSION_ALREADY_EXISTS`, `SESSION_LOCKED`, `SESSION_DAMAGED`,
    `SESSION_FORMAT`, `STORAGE_WRITE_FAILED`, `STORAGE_UNAVAILABLE`, `HANDLE_CLOSED`, `HANDLE_READ_ONLY`,
    `OWNERSHIP_LOST`.
    """

    default_code = "STORAGE_FAILED"


class LlmError(NbagentError):
    """A model call failed.

    Args:
        message: The provider's own words where there are any.
        code: One of the failure codes (`SERVER`, `RATE_LIMIT`, `AUTH`, ...).
        status: HTTP status, when there was one.
        provider_retry_after_ms: How long the provider asked to wait, in milliseconds.
        request_id: The provider's identifier of the request.
    """

    default_code = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        provider_retry_after_ms: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.provider_retry_after_ms = provider_retry_after_ms
        self.request_id = request_id

    def facts(self) -> dict[str, Any]:
        """The failure as it is stored: `{message, code, status?, providerRetryAfterMs?, requestId?}`."""
        facts: dict[str, Any] = {"message": self.message, "code": self.code}
        if self.status is not None:
            facts["status"] = self.status
        if self.provider_retry_after_ms is not None:
            facts["providerRetryAfterMs"] = self.provider_retry_after_ms
        if self.request_id is not None:
            facts["requestId"] = self.request_id
        return facts

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> LlmError:
        """The error that `facts()` describes."""
        return cls(
            facts["message"],
            code=facts["code"],
            status=facts.get("status"),
            provider_retry_after_ms=facts.get("providerRetryAfterMs"),
            request_id=facts.get("requestId"),
        )


class ToolError(NbagentError):
    """Raise it in a tool body to give the model an error result that carries `code`."""

    default_code = "TOOL_FAILED"


class LifecycleError(NbagentError):
    """An agent or runtime cannot do this in its present state."""

    default_code = "LIFECYCLE"


def error_chain(error: BaseException) -> str:
    """One line for an exception and what caused it.

    The outermost message (the class name when it is empty), members of a group in brackets, then the causes
    joined by `: `; a cause that repeats its wrapper's text is skipped, a cycle ends in `<circular cause>`.
    """
    return _chain(error, frozenset())


def _chain(error: BaseException, above: frozenset[int]) -> str:
    parts: list[str] = []
    seen = set(above)
    current: BaseException | None = error
    while current is not None:
        if id(current) in seen:
            parts.append("<circular cause>")
            break
        seen.add(id(current))
        text = _own_text(current, frozenset(seen))
        if not parts or parts[-1] != text:
            parts.append(text)
        current = current.__cause__
    return ": ".join(parts)


def _own_text(error: BaseException, above: frozenset[int]) -> str:
    try:
        if isinstance(error, BaseExceptionGroup):
            members = "; ".join(_chain(member, above) for member in error.exceptions)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType, reportUnknownArgumentType]
            return f"{error.message} [{members}]"
        text = str(error)
    except Exception:  # an exception whose str() raises must still be reported
        return "<unprintable error>"
    return text or type(error).__name__
