"""The runtime context: facts of the moment, told to the model as a message that supersedes the one before.

A snapshot is a user message of the loop's own. It is sent when the facts changed, and again when the snapshot the model
had was removed from the surface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbagent.agent.prompt import Section
from nbagent.session import Session
from nbagent.types.events import Event
from nbagent.types.messages import Message, user_message

__all__ = ("RuntimeContext", "is_context")

_PLUGIN = "nbagent/runtime-context"
_FIRST_LINE = "Current runtime context. This snapshot supersedes earlier runtime-context snapshots."
_CLEARED = "Current runtime context: none. Earlier runtime-context snapshots no longer apply."


def is_context(message: Message) -> bool:
    """Whether `message` is a snapshot of the loop's own."""
    return message.source.get("plugin") == _PLUGIN


class RuntimeContext:
    """What the model was last told of the runtime, kept up from the log of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        told = [event.seq for event in session.events if _is_snapshot(event)]
        surface = set(session.surface)
        self._existed = bool(told)
        self._retained: int | None = next((seq for seq in reversed(told) if seq in surface), None)

    def observe(self, event: Event) -> None:
        """Follow a committed event."""
        if _is_snapshot(event):
            self._existed = True
            self._retained = event.seq
        elif isinstance(event.surface_op, dict) and self._retained in (event.source_event_seqs or ()):
            self._retained = None

    def candidate(self, sections: Sequence[Section]) -> Message | None:
        """The message that would bring the model up to date, or none when it already is."""
        present = [section for section in sections if section.text]
        if not present and not self._existed:
            return None
        text = "\n\n".join([_FIRST_LINE, *(section.text for section in present)]) if present else _CLEARED
        if text == self._retained_text():
            return None
        source: dict[str, Any] = {"kind": "plugin", "plugin": _PLUGIN, "form": "snapshot"}
        if present:
            source["sections"] = [section.name for section in present]
        return user_message(text, source=source)

    def _retained_text(self) -> str | None:
        if self._retained is None:
            return None
        content = self._session.events[self._retained].data["content"]
        return content[0]["text"] if len(content) == 1 and content[0]["type"] == "text" else None


def _is_snapshot(event: Event) -> bool:
    return event.type == "user/message" and is_context(Message.of(event.data))
