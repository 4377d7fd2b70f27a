"""From options to a live agent: what `%agent create`, `nbagent.create` and `nbagent.acreate` share.

Everything that can be wrong is looked at before anything is made; what fails later leaves nothing behind.
"""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from nbagent.errors import InputError, LifecycleError, StorageError
from nbagent.notebook.host import Host, host
from nbagent.notebook.identity import notebook, session_folder
from nbagent.notebook.notebook_agent import NotebookAgent
from nbagent.notebook.parser import near
from nbagent.notebook.roster import roster
from nbagent.notebook.shell import current_shell, namespace

if TYPE_CHECKING:
    from nbagent.agent import Agent, AgentHandle, Runtime
    from nbagent.llm.adapter import Adapter
    from nbagent.tools import Tool

__all__ = ("CreateOptions", "Created", "check_name", "create_agent", "tool_names")


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """What an agent is made from; the names are those of the options of `%agent create`.

    Attributes:
        tools: Tools, functions, or names of either.
        resume: A session id, or `True` for the last session of this name.
    """

    model: str | None = None
    effort: str | None = None
    max_tokens: int | None = None
    system: str | Callable[..., Any] | None = None
    system_file: str | Path | None = None
    system_var: str | None = None
    tools: Sequence[Any] = ()
    parallel: int | None = None
    session: str | None = None
    resume: str | bool | None = None
    max_steps: int | None = None
    cwd: str | Path | None = None
    base_url: str | None = None
    session_dir: str | Path | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """A new agent and what is worth telling about it.

    Attributes:
        resumed: Whether it goes on with a stored session.
        dropped_tail: Whether a torn last record of that session was dropped.
        replaced: Session of the agent that had the name before.
        chosen: Whether nobody named a model.
    """

    agent: NotebookAgent
    resumed: bool
    dropped_tail: bool
    replaced: str | None
    chosen: bool


def create_agent(name: str | None, options: CreateOptions) -> Created:
    """Make an agent, give it its name, and bind it where there is an IPython namespace.

    Args:
        name: The name; without one a free name is taken and nothing is bound.
        options: As above.

    Raises:
        InputError: `INVALID_NAME`, `NAME_TAKEN`, `INVALID_OPTION`, `CONFLICTING_OPTIONS`, `UNKNOWN_TOOL`,
            `INVALID_TOOL`, `DUPLICATE_TOOL`, `UNKNOWN_PROVIDER`, `UNKNOWN_MODEL`, `INVALID_MODEL`, `MISSING_KEY`,
            `MISSING_BASE_URL`, `INVALID_CREDENTIAL`, `INVALID_SESSION_ID`, `NOTEBOOK_NOT_FOUND`.
        StorageError: `SESSION_NOT_FOUND`, `SESSION_LOCKED`, `SESSION_DAMAGED`, `STORAGE_UNAVAILABLE`.
        LifecycleError: `SESSION_ALREADY_EXISTS`, another agent of this kernel has that session.
    """
    home = host()
    home.check_may_wait()
    if name is not None:
        check_name(name)
    _check_together(options)
    recipe = _Recipe.of(options)
    called = name if name is not None else _free_name()
    folder = session_folder(options.session_dir)
    runtime = home.runtime(folder)
    plan = home.call(_plan, runtime, called, options)
    before = roster.get(called)
    if before is not None and before.id == plan.session_id:
        # Its session cannot be opened before it is closed; everything else is looked at first.
        recipe.check_route(before.core.options.provider)
        before.dispose(keep_inbox=True)
    elif runtime.agents.get(plan.session_id) is not None:
        holder = next((each.name for each in roster.all() if each.id == plan.session_id), "another agent")
        raise LifecycleError(
            f'session "{plan.session_id}" is open as {holder} in this kernel: use that, or %agent dispose {holder} first',
            code="SESSION_ALREADY_EXISTS",
        )
    agent, dropped_tail = home.call(_make, home, runtime, called, plan, recipe)
    if before is not None and before.status != "disposed":
        before.dispose(keep_inbox=True)
    roster.add(agent)
    shell = current_shell()
    if shell is not None and name is not None:
        shell.user_ns[name] = agent
    return Created(agent, plan.stored, dropped_tail, before.id if before is not None else None, recipe.model is None)


def check_name(name: str) -> None:
    """Raise unless an agent may have this name.

    Raises:
        InputError: `INVALID_NAME`, `NAME_TAKEN`.
    """
    check_variable(name, "an agent's name")
    shell = current_shell()
    bound = shell.user_ns.get(name) if shell is not None else None
    if bound is not None and not isinstance(bound, NotebookAgent):
        raise InputError(
            f'"{name}" is already a variable ({type(bound).__name__}): choose another name, or delete it with del {name}',
            code="NAME_TAKEN",
        )


def check_variable(name: str, what: str) -> None:
    """Raise unless `name` may be bound in the user's namespace.

    Raises:
        InputError: `INVALID_NAME`.
    """
    fault = None
    if not name.isidentifier():
        fault = "is not a Python identifier"
    elif keyword.iskeyword(name):
        fault = "is a Python keyword"
    elif hasattr(builtins, name):
        fault = "is a Python builtin"
    if fault is not None:
        raise InputError(f'"{name}" {fault}: {what} must be usable as a variable, such as analyst', code="INVALID_NAME")


def tool_names(names: Mapping[str, Any]) -> list[str]:
    """The names in a namespace that `--tools` takes: tools first, then the user's functions."""
    from nbagent.tools import Tool

    public = [(name, value) for name, value in names.items() if not name.startswith("_")]
    tools = [name for name, value in public if isinstance(value, Tool)]
    functions = [name for name, value in public if inspect.isfunction(value) and value.__module__ == "__main__"]
    return [*sorted(tools), *sorted(functions)]


# -- on the calling thread ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Recipe:
    """Options that were looked at: everything that is not about the session."""

    model: tuple[str, str] | None
    adapter: Adapter | None
    fallback: str
    base_url: str | None
    system: str | Callable[..., Any] | None
    tools: Sequence[Tool]
    cwd: Path
    options: CreateOptions

    @classmethod
    def of(cls, options: CreateOptions) -> _Recipe:
        from nbagent.llm.routes import connect, default_model, parse_model

        model = parse_model(options.model) if options.model is not None else None
        continues = options.session is not None or options.resume
        if options.base_url is not None and (model[0] != "custom" if model is not None else not continues):
            raise _wrong_base_url()
        fallback = default_model() or "demo"
        adapter = connect(model[0], base_url=options.base_url) if model is not None else None
        if adapter is not None and model is not None:
            _check_effort(adapter, model[1], options.effort)
        for key in ("max_tokens", "parallel", "max_steps"):
            value = getattr(options, key)
            if value is not None and (type(value) is not int or value < 1):
                raise InputError(f"{key} must be a whole number above 0, got {value!r}", code="INVALID_OPTION")
        tools = _tools(options.tools)
        return cls(model, adapter, fallback, options.base_url, _system(options), tools, _cwd(options.cwd), options)

    def route(self, provider: str) -> Adapter:
        """The adapter of the provider that the agent turns out to have.

        Raises:
            InputError: As `nbagent.llm.routes.connect`; `INVALID_OPTION`, `--base-url` with another route than custom.
        """
        from nbagent.llm.routes import connect

        if self.adapter is not None:
            return self.adapter
        if self.base_url is not None and provider != "custom":
            raise _wrong_base_url()
        return connect(provider, base_url=self.base_url)

    def check_route(self, provider: str | None) -> None:
        """Raise when an agent of this recipe could not be connected."""
        if self.model is None and provider is not None:
            self.route(provider)


def _wrong_base_url() -> InputError:
    return InputError(
        "--base-url says where a custom model is served: name it with --model custom/NAME", code="INVALID_OPTION"
    )


def _check_together(options: CreateOptions) -> None:
    groups = (("session", "resume"), ("system", "system_file", "system_var"))
    for group in groups:
        given = [key for key in group if getattr(options, key) not in {None, False}]
        if len(given) > 1:
            raise InputError(
                f"{given[0]} and {given[1]} do not go together: give one of them", code="CONFLICTING_OPTIONS"
            )


def _check_effort(adapter: Adapter, model: str, effort: str | None) -> None:
    efforts = adapter.facts(model).efforts
    if effort is not None and efforts is not None and effort not in efforts:
        known = ", ".join(efforts) or "none"
        raise InputError(
            f'{model} does not take reasoning effort "{effort}"; it takes: {known}', code="UNSUPPORTED_REASONING_EFFORT"
        )


def _system(options: CreateOptions) -> str | Callable[..., Any] | None:
    if options.system_file is not None:
        path = Path(options.system_file).expanduser()
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            why = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8 text"
            raise InputError(f"the system prompt {path} cannot be read: {why}", code="INVALID_OPTION") from fault
    if options.system_var is not None:
        names = namespace()
        if options.system_var not in names:
            raise InputError(
                f'there is no variable "{options.system_var}" for the system prompt.{near(options.system_var, names)}',
                code="INVALID_OPTION",
            )
        value = names[options.system_var]
        if not isinstance(value, str):
            raise InputError(
                f'variable "{options.system_var}" is {type(value).__name__}, a system prompt is text',
                code="INVALID_OPTION",
            )
        return value
    return options.system


def _tools(wanted: Sequence[Any]) -> list[Tool]:
    from nbagent.tools import as_tool

    if isinstance(wanted, str):
        wanted = [part.strip() for part in wanted.split(",")]
    tools: list[Tool] = []
    for each in wanted:
        tool = as_tool(_named_tool(each) if isinstance(each, str) else each)
        if any(known.name == tool.name for known in tools):
            raise InputError(f'two tools are called "{tool.name}": give one another name', code="DUPLICATE_TOOL")
        tools.append(tool)
    return tools


def _named_tool(name: str) -> Any:
    from nbagent.tools import Tool

    names = namespace()
    value = names.get(name)
    if isinstance(value, Tool) or inspect.isroutine(value):
        return value
    known = tool_names(names)
    fault = f'there is no tool "{name}"' if value is None else f'"{name}" is {type(value).__name__}, no function'
    there = f"There are: {', '.join(known[:8])}." if known else "A function of the notebook can be one."
    raise InputError(f"{fault}.{near(name, known)} {there}", code="UNKNOWN_TOOL")


def _cwd(cwd: str | Path | None) -> Path:
    path = Path(cwd).expanduser().absolute() if cwd is not None else Path.cwd()
    if not path.is_dir():
        raise InputError(f"the working directory {path} is no folder", code="INVALID_OPTION")
    return path


def _free_name() -> str:
    names, number = roster.names, 1
    while f"agent{number}" in names:
        number += 1
    return f"agent{number}"


# -- on the loop's thread ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    session_id: str
    stored: bool


async def _plan(runtime: Runtime, name: str, options: CreateOptions) -> _Plan:
    store = runtime.store
    if options.session is not None:
        live = runtime.agents.get(options.session)
        stat = await store.stat(options.session)
        return _Plan(options.session, stored=stat is not None and (live is None or stat.event_count > 0))
    if isinstance(options.resume, str):
        return _Plan(options.resume, stored=True)
    stem = _stem(name)
    if not options.resume:
        return _Plan(f"{stem}{uuid.uuid4().hex[:12]}", stored=False)
    stats = await store.list()
    mine = [stat.header.id for stat in stats if stat.header.id.startswith(stem) and stat.event_count]
    if mine:
        return _Plan(mine[-1], stored=True)
    others = ", ".join(stat.header.id for stat in reversed(stats[-3:]))
    hint = f"stored here: {others}; --resume ID goes on with one" if others else "nothing is stored here yet"
    raise StorageError(f"there is no stored session of {name}: {hint}", code="SESSION_NOT_FOUND")


def _stem(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]", "", name)[:80] or "agent"
    return f"{plain}-session-"


async def _make(home: Host, runtime: Runtime, name: str, plan: _Plan, recipe: _Recipe) -> tuple[NotebookAgent, bool]:
    from nbagent.llm.routes import parse_model

    options = recipe.options

    async def setup(scope: Any, agent: Agent) -> None:
        if agent.options.provider is None or agent.options.model is None:
            provider, model = parse_model(recipe.fallback)
            agent.options = replace(agent.options, provider=provider, model=model)
        provider = cast("str", agent.options.provider)
        scope.llm.register([provider], recipe.route(provider))

    provider, model = recipe.model or (None, None)
    shared: dict[str, Any] = {
        "provider": provider,
        "model": model,
        "system": recipe.system,
        "tools": recipe.tools,
        "reasoning_effort": options.effort,
        "max_tokens": options.max_tokens,
        "max_steps": options.max_steps,
        "max_parallel_tool_calls": options.parallel,
        "setup": setup,
    }

    if plan.stored:
        handle: AgentHandle = await runtime.agents.resume(plan.session_id, **shared)
    else:
        known = notebook(search=False)
        header = {"notebook": known.name} if known is not None and known.name is not None else {}
        handle = await runtime.agents.create(plan.session_id, cwd=recipe.cwd, header=header, **shared)
    return NotebookAgent(home, handle, name), handle.dropped_tail
