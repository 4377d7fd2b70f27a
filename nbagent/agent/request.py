"""What a request is made of, and what the log says of it before it is sent.

A request is derived from the log alone: the header event holds configuration and tools, the surface holds the messages.
`RequestLog` decides which header, context and developer events make the log say what is about to be sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbagent.agent.prompt import Section
from nbagent.agent.reconcile import prompt_node, reconcile
from nbagent.session import Session
from nbagent.types.config import CallConfig, ModelFacts, Request, ToolDeclaration
from nbagent.types.frozen import FrozenDict, freeze
from nbagent.types.messages import Message, new_id, system_message

if TYPE_CHECKING:
    from nbagent.agent.agent import Agent, AgentOptions
    from nbagent.llm.runtime import PreparedCall

__all__ = ("RequestLog",)


class RequestLog:
    """The requests of one agent object on one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._has_logged_header = False
        self._generation = session.content_generation

    # -- proposal ------------------------------------------------------------------------------------------------------

    def seed(self, options: AgentOptions) -> CallConfig:
        """The configuration that listeners of `agent/request` start from.

        The first request of an agent object takes its options (an effort that was chosen, not defaulted, survives a
        resume on the same model); later ones take the latest header without what the route had filled in.
        """
        header = self._session.request_header()
        if self._has_logged_header and header is not None:
            defaults = header.get("adapterDefaults", {})
            return CallConfig.of({key: value for key, value in header["config"].items() if key not in defaults})
        config: dict[str, Any] = {"provider": options.provider or "", "model": options.model or ""}
        effort = options.reasoning_effort or _kept_effort(header, config)
        if effort is not None:
            config["reasoningEffort"] = effort
        if options.max_tokens is not None:
            config["maxTokens"] = options.max_tokens
        return CallConfig.of(config)

    def variables(self, options: AgentOptions) -> dict[str, str | None]:
        """The prompt variables that the loop supplies; one without a value may not be used."""
        seed = self.seed(options)
        return {"provider": seed.provider, "model": seed.model, "cwd": self._session.header.cwd}

    # -- admission -----------------------------------------------------------------------------------------------------

    def admit(
        self,
        agent: Agent,
        *,
        turn: int,
        step: int,
        prepared: PreparedCall | None,
        proposal: CallConfig,
        rendering: str,
        tools: Sequence[ToolDeclaration],
        context: Sequence[Section],
        batch: Sequence[Message] | None,
        starts_series: bool,
    ) -> Request:
        """Write what the next request says into the log, and build it from there. A plain call: nothing interleaves.

        Args:
            agent: Whose request.
            turn: Its turn.
            step: Its step.
            prepared: The prepared call, or none when no route of that name is registered.
            proposal: The configuration, when nothing was prepared.
            rendering: The system prompt.
            tools: The assembled tools.
            context: The runtime context as it is now.
            batch: The messages that enter with this attempt; none on a retry.
            starts_series: Whether the step's decision began a new series; only on the first attempt.
        """
        session = self._session
        config = prepared.config if prepared is not None else proposal
        facts = prepared.facts if prepared is not None else ModelFacts()
        self._write_prompt(turn, step, rendering, tools, facts, starts_series)
        for message in _with_context(batch, agent.runtime_context.candidate(context)):
            session.append("user/message", message, surface_op="append")
        series = starts_series or session.content_generation != self._generation
        defaults: Mapping[str, bool] = prepared.adapter_defaults if prepared is not None else {}
        self._write_header(turn, step, _header(config, defaults, tools), series)
        # Only now: a header that the log refused leaves the next request to say that the series broke.
        self._generation = session.content_generation
        self._write_context(config, facts)
        return Request(
            config=config,
            messages=tuple(session.messages()),
            tools=tuple(tools),
            tool_history=session.tool_history(),
            session_id=session.id,
        )

    def _write_prompt(
        self,
        turn: int,
        step: int,
        rendering: str,
        tools: Sequence[ToolDeclaration],
        facts: ModelFacts,
        starts_series: bool,
    ) -> None:
        session = self._session
        events = session.events
        nodes = [prompt_node(seq, events[seq].data["message"]) for seq in session.system_nodes]
        header = session.request_header()
        tools_changed = header is not None and list(header.get("tools", ())) != list(tools)
        new_series = (
            starts_series or session.content_generation != self._generation or (tools_changed and not facts.tool_update)
        )
        in_history = facts.system_prompt_update == "in-history"
        for write in reconcile(nodes, rendering, in_history=in_history, new_series=new_series):
            data = {"turn": turn, "step": step, "message": system_message(write.text)}
            if write.replaces is None:
                session.append("system/message", data, surface_op="append")
            else:
                place = {"op": "replace", "startSeq": write.replaces, "endSeq": write.replaces}
                session.append("system/message", data, surface_op=place, source_event_seqs=[write.replaces])

    def _write_header(self, turn: int, step: int, header: FrozenDict, series: bool) -> None:
        session = self._session
        baseline = session.request_header()
        if not self._has_logged_header:
            reason = "initial" if baseline is None else "resume"
        elif baseline != header:
            reason = "change"
        elif series:
            reason = "series"
        else:
            return
        data: dict[str, Any] = {"header": header, "reason": reason}
        if series and reason != "series":
            data["startsSeries"] = True
        event = session.append("request/header", data)
        self._has_logged_header = True
        if baseline is not None and reason != "series":
            self._write_tool_changes(turn, step, baseline, header, event.seq)

    def _write_tool_changes(
        self, turn: int, step: int, before: Mapping[str, Any], after: Mapping[str, Any], header_seq: int
    ) -> None:
        old = [tool["name"] for tool in before.get("tools", ())]
        new = [tool["name"] for tool in after.get("tools", ())]
        added = [{"type": "tool-addition", "toolName": name} for name in new if name not in old]
        removed = [{"type": "tool-removal", "toolName": name} for name in old if name not in new]
        if not added and not removed:
            return
        message = {
            "id": new_id(),
            "role": "developer",
            "content": added + removed,
            "source": {"kind": "tool-registry"},
        }
        data: dict[str, Any] = {"turn": turn, "step": step, "message": Message.of(message)}
        if added:
            data["headerSeq"] = header_seq
        self._session.append("developer/message", data, surface_op="append")

    def _write_context(self, config: CallConfig, facts: ModelFacts) -> None:
        context: dict[str, Any] = {"provider": config.provider, "model": config.model}
        if facts.context_window is not None:
            context["contextWindow"] = facts.context_window
        if facts.system_prompt_update is not None:
            context["systemPromptUpdate"] = facts.system_prompt_update
        if self._session.request_context() != context:
            self._session.append("request/context", context)


def _with_context(batch: Sequence[Message] | None, candidate: Message | None) -> list[Message]:
    """The batch with the loop's own context message brought up to date, in its place when it had one."""
    from nbagent.agent.context import is_context

    messages: list[Message] = []
    for message in batch or ():
        if not is_context(message):
            messages.append(message)
        elif candidate is not None:
            messages.append(candidate)
            candidate = None
    return messages if candidate is None else [*messages, candidate]


def _kept_effort(header: Mapping[str, Any] | None, config: Mapping[str, Any]) -> str | None:
    if header is None or "reasoningEffort" in header.get("adapterDefaults", {}):
        return None
    stored = header["config"]
    same = stored["provider"] == config["provider"] and stored["model"] == config["model"]
    return stored.get("reasoningEffort") if same else None


def _header(config: CallConfig, defaults: Mapping[str, bool], tools: Sequence[ToolDeclaration]) -> FrozenDict:
    header: dict[str, Any] = {"config": config}
    if defaults:
        header["adapterDefaults"] = dict(defaults)
    if tools:
        header["tools"] = list(tools)
    return freeze(header)
