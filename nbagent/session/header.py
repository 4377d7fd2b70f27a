"""Folds of the request events: the latest header and context, and how the tool catalogue grew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.errors import SessionError
from nbagent.types.config import ToolHistory
from nbagent.types.events import Event
from nbagent.types.frozen import FrozenDict, freeze

__all__ = ("RequestFold",)


class RequestFold:
    """What the log says of requests.

    Attributes:
        header: The latest header, or none.
        context: The latest context, or none.
    """

    def __init__(self) -> None:
        self.header: FrozenDict | None = None
        self.context: FrozenDict | None = None
        self._headers: dict[int, Mapping[str, Any]] = {}
        self._baseline: list[Mapping[str, Any]] = []
        self._retained: dict[str, Mapping[str, Any]] = {}
        self._updates: list[dict[str, Any]] = []
        self._active: list[str] = []
        self._history: ToolHistory | None = None

    def commit(self, event: Event) -> None:
        """Follow a committed event."""
        if event.type == "request/header":
            self._follow_header(event)
        elif event.type == "request/context":
            self.context = event.data
        elif event.type == "developer/message":
            self._follow_changes(event)

    def tool_history(self) -> ToolHistory:
        """Baseline declarations and updates of the current series."""
        if self._history is None:
            names = [tool["name"] for tool in self._tools()]
            if sorted(self._active) == sorted(names):
                history = {"tools": self._baseline, "updates": self._updates}
            else:
                history = {"tools": self._tools(), "updates": []}
            self._history = ToolHistory(freeze(history))
        return self._history

    def _tools(self) -> list[Mapping[str, Any]]:
        return list(self.header.get("tools", ())) if self.header is not None else []

    def _follow_header(self, event: Event) -> None:
        first = self.header is None
        self.header = event.data["header"]
        self._headers[event.seq] = event.data["header"]
        self._history = None
        tools = self._tools()
        redefined = any(self._retained.get(tool["name"], tool) != tool for tool in tools)
        if first or event.data["reason"] == "series" or event.data.get("startsSeries") or redefined:
            self._baseline = tools
            self._retained = {}
            self._updates = []
            self._active = [tool["name"] for tool in tools]
        for tool in tools:
            self._retained[tool["name"]] = tool

    def _follow_changes(self, event: Event) -> None:
        message = event.data["message"]
        header = self._headers.get(event.data.get("headerSeq", -1), {})
        definitions = {tool["name"]: tool for tool in header.get("tools", ())}
        additions: list[Mapping[str, Any]] = []
        active = list(self._active)
        for block in message["content"]:
            name = block["toolName"]
            if block["type"] == "tool-removal":
                active = [each for each in active if each != name]
            elif name not in definitions:
                raise SessionError(f"tool history: missing definition for {name}", code="INVALID_EVENT")
            elif name not in active:
                # A new baseline that was declared with this change already has it.
                additions.append(definitions[name])
                active.append(name)
        self._history = None
        if active != self._active or additions:
            self._updates.append({"messageId": message["id"], "additions": additions})
            self._active = active
