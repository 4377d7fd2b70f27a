"""Message projections: event types of others that rewrite messages which the model has seen, where they stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nbagent.errors import InputError, SessionError
from nbagent.session.shape import check_message
from nbagent.types.events import CORE_TYPES, Event
from nbagent.types.messages import Message

__all__ = ("Interpreter", "MessageProjections", "interpret")

Interpreter = Callable[[Event, Mapping[int, Message]], Mapping[int, Message]]
"""`(event, messages)`, the messages by the seq of their surface node; answers those that read differently from now on.

Pure: a log that is read again must come to the same messages. What it raises refuses the event.
"""

_REWRITABLE = frozenset({"user", "assistant", "tool"})


class MessageProjections:
    """Which event types rewrite messages, and how. Sessions share it."""

    def __init__(self) -> None:
        self._interpreters: dict[str, Interpreter] = {}

    def register(self, type: str, interpreter: Interpreter) -> Callable[[], None]:
        """Let events of `type` rewrite messages; answers a function that ends that.

        Such an event is not ignorable: without its interpreter it can be neither appended nor read back. A session
        that has used the interpreter cannot derive messages after that was taken away.

        Raises:
            InputError: `DUPLICATE_NAME`, the type has an interpreter; `INVALID_NAME`, it means something else already.
        """
        if type in CORE_TYPES:
            raise InputError(f'"{type}" has its own meaning: name a message projection otherwise', code="INVALID_NAME")
        if type in self._interpreters:
            raise InputError(f'"{type}" has an interpreter already', code="DUPLICATE_NAME")
        self._interpreters[type] = interpreter

        def unregister() -> None:
            if self._interpreters.get(type) is interpreter:
                del self._interpreters[type]

        return unregister

    def get(self, type: str) -> Interpreter | None:
        """The interpreter of a type, or none."""
        return self._interpreters.get(type)


def interpret(interpreter: Interpreter, event: Event, messages: Mapping[int, Message]) -> dict[int, Message]:
    """The messages that `event` rewrites, checked: each is one of `messages` with other content.

    Raises:
        SessionError: `INVALID_EVENT`.
    """
    try:
        answer = dict(interpreter(event, messages))
        return {seq: _rewritten(event, messages.get(seq), Message.of(message)) for seq, message in answer.items()}
    except SessionError:
        raise
    except Exception as fault:
        raise SessionError(
            f'the interpreter of "{event.type}" refused event {event.seq}: {fault}', code="INVALID_EVENT"
        ) from fault


def _rewritten(event: Event, old: Message | None, new: Message) -> Message:
    if old is None or old.role not in _REWRITABLE:
        raise ValueError("only user, assistant and tool messages of the surface can be rewritten")
    if {**old, "content": None} != {**new, "content": None}:
        raise ValueError("only the content of a message can be rewritten")
    check_message(event.type, new, old.role)
    return new
