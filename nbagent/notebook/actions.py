"""What the verbs of `%agent` do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from nbagent.notebook.asking import ask, deliver, filled, wait_for
from nbagent.notebook.creation import Created, CreateOptions, create_agent, tool_names
from nbagent.notebook.identity import notebook, session_folder
from nbagent.notebook.listing import stored_sessions, table
from nbagent.notebook.parser import Command
from nbagent.notebook.roster import roster
from nbagent.notebook.shell import is_live, namespace, say

__all__ = ("ACTIONS", "run_cell")


def run_cell(command: Command, body: str, *, awaited: bool) -> Awaitable[None] | None:
    """`%%agent`: the body is the prompt."""
    agent = roster.find(command.name)
    # A cell ends in a line end that nobody typed.
    text = body.removesuffix("\n")
    if command.options.get("fmt"):
        text = filled(text, namespace())
    for how in ("steer", "inject"):
        if command.options.get(how):
            return deliver(agent, text, how)
    return ask(agent, text, command, awaited=awaited)


def _create(command: Command, *, awaited: bool) -> None:  # noqa: ARG001 - all actions are called alike
    created = create_agent(command.name, CreateOptions(**command.options))
    say(_welcome(created, session_dir=command.options.get("session_dir")))


def _welcome(created: Created, *, session_dir: str | None) -> str:
    agent = created.agent
    name = agent.name
    model = agent.model
    if model == "demo/demo":
        model = "demo model"
        if created.chosen and not created.resumed:
            model += " (no language model is connected; %agent models says how to connect one)"
    lines = [f"{name} is ready: {model}"]
    if agent.tools:
        lines.append(f"Tools: {', '.join(agent.tools)}")
    if created.resumed:
        turns = f"{agent.turns} turn{'' if agent.turns == 1 else 's'}"
        pending = len(agent.inbox.pending)
        more = f", {pending} pending" if pending else ""
        lines.append(f"It goes on with a stored session: {turns}{more}")
    if created.dropped_tail:
        lines.append("The last record of that session was cut short when it was written; it was dropped")
    live = is_live()
    if created.replaced is not None and created.replaced != agent.id:
        back = f"%agent create {name} --session {created.replaced} brings it back" if live else "its session is kept"
        lines.append(f"The agent that was called {name} is disposed; {back}")
    if live and agent.session.path is not None:
        lines.append(f"Session: {_short(agent.session.path)}")
        known = notebook(search=False)
        if session_dir is None and known is not None and known.source == "unknown":
            lines.append("No notebook is known here: NBAGENT_NOTEBOOK or --session-dir says where sessions belong")
    return "\n".join(lines)


def _send(command: Command, *, awaited: bool) -> Awaitable[None] | None:
    return ask(roster.find(command.name), command.text, command, awaited=awaited)


def _steer(command: Command, *, awaited: bool) -> None:  # noqa: ARG001
    deliver(roster.find(command.name), command.text, "steer")


def _inject(command: Command, *, awaited: bool) -> None:  # noqa: ARG001
    deliver(roster.find(command.name), command.text, "inject")


def _cancel(command: Command, *, awaited: bool) -> None:  # noqa: ARG001
    agent = roster.find(command.name)
    was = agent.status
    before = len(agent.inbox.pending)
    left = agent.cancel(keep_inbox=bool(command.options.get("keep_inbox")))
    done = "cancelled" if was == "running" else "nothing was running"
    dropped = f"{_prompts(before - left)} dropped, " if before > left else ""
    say(f"{agent.name}: {done}; {dropped}{_prompts(left)} remain{'s' if left == 1 else ''} pending")


def _prompts(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


def _wait(command: Command, *, awaited: bool) -> Awaitable[None] | None:
    return wait_for(roster.find(command.name), command.options.get("timeout"), awaited=awaited)


def _list(command: Command, *, awaited: bool) -> None:  # noqa: ARG001
    agents = roster.all()
    if not agents:
        say("no agent yet: %agent create NAME makes one")
        return
    rows = [
        (
            "*" if agent.name == roster.current else "",
            agent.name,
            agent.status,
            agent.model,
            str(agent.turns),
            str(len(agent.inbox.pending)),
        )
        for agent in agents
    ]
    say(table(("", "name", "status", "model", "turns", "pending"), rows))


def _use(command: Command, *, awaited: bool) -> None:  # noqa: ARG001
    say(f"{roster.find(command.name).name} is meant when no name is given")


def _info(command: Command, *, awaited: bool) -> None:  # noqa: ARG001
    agent = roster.find(command.name)
    options = agent.core.options
    known = notebook(search=False)
    facts: list[tuple[str, Any]] = [
        ("name", agent.name),
        ("status", agent.status),
        ("model", agent.model),
        ("effort", options.reasoning_effort),
        ("max tokens", options.max_tokens),
        ("max steps", options.budget.steps),
        ("tools", ", ".join(agent.tools) or "none"),
        ("turns", agent.turns),
        ("pending", len(agent.inbox.pending)),
        ("session", agent.id),
        ("file", agent.session.path),
        ("notebook", known.path if known is not None and known.path is not None else "not known"),
        ("cwd", agent.core.session.header.cwd),
    ]
    say("\n".join(f"{key:<10}  {value}" for key, value in facts if value is not None))


def _show(command: Command, *, awaited: bool) -> None:  # noqa: ARG001
    roster.find(command.name).show(command.options.get("turn"), all=bool(command.options.get("all")))


def _dispose(command: Command, *, awaited: bool) -> None:  # noqa: ARG001
    agent = roster.find(command.name)
    keep = bool(command.options.get("keep_inbox"))
    pending = len(agent.inbox.pending)
    agent.dispose(keep_inbox=keep)
    fate = f"; {_prompts(pending)} {'kept in it' if keep else 'dropped'}" if pending else ""
    say(f"{agent.name} is disposed; its session stays on disk{fate}")


def _sessions(command: Command, *, awaited: bool) -> None:  # noqa: ARG001
    folder = session_folder(command.options.get("session_dir"))
    rows = stored_sessions(folder)
    if not rows:
        say("no session is stored here yet" if not is_live() else f"no session is stored in {_short(folder)} yet")
        return
    say(table(("session", "turns", "size", "last prompt"), rows))


def _tools(command: Command, *, awaited: bool) -> None:  # noqa: ARG001
    parts: list[str] = []
    if command.name is not None or roster.current is not None:
        agent = roster.find(command.name)
        visible = agent.host.call(agent.core.tools.visible)
        rows = [(tool.name, _first_line(tool.declaration.description)) for tool in visible]
        parts.append(table((f"tools of {agent.name}", ""), rows) if rows else f"{agent.name} has no tools")
    free = tool_names(namespace())
    if free:
        parts.append(f"Functions here that --tools takes: {', '.join(free)}")
    say(
        "\n\n".join(parts)
        or "there is no tool yet: @nbagent.tool makes one of a function, --tools NAME gives it to an agent"
    )


def _models(command: Command, *, awaited: bool) -> None:  # noqa: ARG001
    from nbagent.llm.routes import known_routes

    rows: list[tuple[str, ...]] = []
    for state in known_routes():
        route = state.route
        model = "demo" if route.name == "demo" else f"{route.name}/{route.default_model or 'NAME'}"
        rows.append((model, "ready" if state.ready else f"missing: {state.missing}"))
    say(table(("--model", ""), rows))
    say(
        "demo is no language model: it shows what agents do, without a key. Another name than the default goes after the slash."
    )


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


ACTIONS: Mapping[str, Callable[..., Awaitable[None] | None]] = {
    "create": _create,
    "send": _send,
    "steer": _steer,
    "inject": _inject,
    "cancel": _cancel,
    "wait": _wait,
    "list": _list,
    "use": _use,
    "info": _info,
    "show": _show,
    "dispose": _dispose,
    "sessions": _sessions,
    "tools": _tools,
    "models": _models,
}
"""By verb. Called as `action(command, awaited=...)`; answers an awaitable only when awaited, and only where it waits."""
