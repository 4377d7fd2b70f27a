"""Agents that a configuration declares: what an entry may say, and how a file of them is read."""

from __future__ import annotations

import importlib
import json
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from nbagent.agent.options import AgentChoices, AgentOptions
from nbagent.errors import InputError
from nbagent.storage.store import check_session_id

__all__ = ("DeclaredAgent", "declared_agents", "read_agents")


class DeclaredAgent(BaseModel):
    """One agent of a configuration. In files the names are written as here or in camelCase (`sessionId`).

    At most one of `session_id`, `resume_session_id` and `stable` is given; without them every start is a new session
    `<id>-session-<uuid>`.

    Attributes:
        id: What the configuration calls the agent.
        session_id: Its exact session, made by the first start and resumed by later ones.
        resume_session_id: A session that has to exist.
        stable: The same as `session_id = "<id>-session"`.
        provider: As in `AgentChoices`, like `model`, `reasoning_effort` and the `max_` fields.
        persona: Its system prompt.
        tools: Tools, or functions that become tools, as `package.module:name`.
        setup: `async def setup(scope, agent)`, as `package.module:name`.
        cwd: Working directory of a new session, absolute.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True)

    id: str
    session_id: str | None = None
    resume_session_id: str | None = None
    stable: bool = False
    provider: str | None = None
    model: str | None = None
    reasoning_effort: str | None = None
    max_tokens: int | None = None
    max_parallel_tool_calls: int | None = None
    max_steps: int | None = None
    max_turn_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    persona: str | None = None
    tools: list[str] = []
    setup: str | None = None
    cwd: str | None = None

    @classmethod
    def checked(cls, value: DeclaredAgent | Mapping[str, Any]) -> Self:
        """An entry of a configuration, checked as far as that goes without starting it.

        Raises:
            InputError: `INVALID_CONFIG`, `INVALID_OPTION`, `INVALID_SESSION_ID`.
        """
        try:
            entry = cls.model_validate(value if isinstance(value, Mapping) else value.model_dump())
        except ValidationError as fault:
            first = fault.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "entry"
            raise InputError(f"declared agent: {place}: {first['msg']}", code="INVALID_CONFIG") from None
        if not entry.id:
            raise InputError("declared agent: id must not be empty", code="INVALID_CONFIG")
        if entry.session_id is not None and entry.resume_session_id is not None:
            raise InputError(
                f'agent "{entry.id}": sessionId and resumeSessionId are mutually exclusive', code="INVALID_CONFIG"
            )
        if entry.stable and (entry.session_id is not None or entry.resume_session_id is not None):
            raise InputError(
                f'agent "{entry.id}": stable names a session by itself: leave sessionId and resumeSessionId out',
                code="INVALID_CONFIG",
            )
        check_session_id(entry.start_session_id())
        for path in (*entry.tools, *([entry.setup] if entry.setup is not None else [])):
            _split(entry.id, path)
        AgentOptions.of(entry.options())
        return entry

    @property
    def exact_session_id(self) -> str | None:
        """The session that it has at every start, or none when each start makes a new one."""
        if self.stable:
            return f"{self.id}-session"
        return self.session_id if self.session_id is not None else self.resume_session_id

    def start_session_id(self) -> str:
        """The session of one start: the exact one, or a new one."""
        exact = self.exact_session_id
        return exact if exact is not None else f"{self.id}-session-{uuid.uuid4()}"

    def options(self) -> AgentChoices:
        """How it calls its model, and its budgets."""
        names = AgentChoices.__annotations__.keys() & type(self).model_fields.keys() - {"tools", "setup"}
        return cast("AgentChoices", {name: getattr(self, name) for name in names})

    def choices(self) -> AgentChoices:
        """What it is created or resumed with; imports its tools and its setup.

        Raises:
            InputError: `INVALID_CONFIG`, an import path leads nowhere.
        """
        choices = self.options()
        choices["system"] = self.persona
        choices["tools"] = [_imported(self.id, path) for path in self.tools]
        if self.setup is not None:
            choices["setup"] = _imported(self.id, self.setup)
        return choices


def declared_agents(values: Iterable[DeclaredAgent | Mapping[str, Any]]) -> list[DeclaredAgent]:
    """The entries of a configuration, each checked, no two with the same exact session.

    Raises:
        InputError: As `DeclaredAgent.checked`.
    """
    entries = [DeclaredAgent.checked(value) for value in values]
    owners: dict[str, str] = {}
    for entry in entries:
        exact = entry.exact_session_id
        if exact is None:
            continue
        if exact in owners:
            raise InputError(
                f'agents "{owners[exact]}" and "{entry.id}" use duplicate exact session identity "{exact}"',
                code="INVALID_CONFIG",
            )
        owners[exact] = entry.id
    return entries


def read_agents(path: str | Path) -> list[DeclaredAgent]:
    """The agents that a file declares: `[[agents]]` tables in TOML, or `{"agents": [...]}` in JSON.

    Raises:
        InputError: `INVALID_CONFIG`, it cannot be read; and as `declared_agents`.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        content: Any = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as fault:
        raise InputError(f"{file} cannot be read: {fault}", code="INVALID_CONFIG") from None
    fields = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    agents = fields.get("agents")
    if not isinstance(agents, list) or not all(isinstance(each, dict) for each in cast("list[Any]", agents)):
        raise InputError(f'{file} declares no agents: it needs a list "agents" of tables', code="INVALID_CONFIG")
    return declared_agents(cast("list[dict[str, Any]]", agents))


def _split(agent_id: str, path: str) -> tuple[str, str]:
    module, _, name = path.partition(":")
    if not module or not name:
        raise InputError(
            f'agent "{agent_id}": {path!r} is no import path: write it as package.module:name', code="INVALID_CONFIG"
        )
    return module, name


def _imported(agent_id: str, path: str) -> Any:
    module, name = _split(agent_id, path)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as fault:
        raise InputError(f'agent "{agent_id}": {path!r} cannot be imported: {fault}', code="INVALID_CONFIG") from fault
    return found
