"""The names that programs and notebooks are written against."""

from __future__ import annotations

import importlib
import inspect

import pytest

import nbagent

NAMES = {
    "nbagent": (
        "CancelSignal",
        "Runtime",
        "acreate",
        "create",
        "current_agent",
        "load_ipython_extension",
        "require_agent",
        "tool",
        "unload_ipython_extension",
        "user_message",
    ),
    "nbagent.agent": ("Agent", "AgentHandle", "Runtime", "current_agent", "require_agent"),
    "nbagent.errors": (
        "InputError",
        "InvariantError",
        "LifecycleError",
        "LlmError",
        "NbagentError",
        "SessionError",
        "StorageError",
        "ToolError",
    ),
    "nbagent.llm.adapters": ("create",),
    "nbagent.notebook": ("NotebookAgent", "Reply", "Run", "TurnError"),
    "nbagent.session": ("MessageProjections", "ProjectionRegistry", "ProjectionUnit", "Session", "check_log"),
    "nbagent.session.consumed_work": ("ConsumedWork", "fold_consumed_work"),
    "nbagent.session.repair": ("interrupted_turn_closers",),
    "nbagent.session.repair_plan": ("plan_repair",),
    "nbagent.storage": ("JsonlStore", "MemoryStore"),
    "nbagent.testing": (
        "ScriptedAdapter",
        "as_json",
        "check_log",
        "fail",
        "hang",
        "read_reply",
        "reasoning",
        "sent_requests",
        "serve_bytes",
        "text",
        "tool_calls",
    ),
    "nbagent.tools": ("Tool", "current_call", "tool"),
}

PARAMETERS = {
    "nbagent.Runtime": ("store", "retry", "max_parallel_tool_calls"),
    "nbagent.create": (
        "name",
        "model",
        "effort",
        "max_tokens",
        "system",
        "tools",
        "parallel",
        "session",
        "resume",
        "max_steps",
        "cwd",
        "base_url",
        "session_dir",
    ),
    "nbagent.llm.adapters.create": ("protocol", "base_url", "api_key", "dialect"),
    "nbagent.session.Session.append": ("type", "data", "surface_op", "source_event_seqs"),
    "nbagent.testing.fail": ("message", "code", "status", "provider_retry_after_ms", "request_id"),
    "nbagent.testing.serve_bytes": ("body", "status", "content_type", "chunk_size", "keep_open"),
    "nbagent.user_message": ("text", "id", "source"),
}

MEMBERS = {
    "nbagent.agent.Agent": (
        "cancel",
        "followup",
        "inject",
        "on",
        "run_maintenance",
        "status",
        "steer",
        "when_idle",
    ),
    "nbagent.notebook.NotebookAgent": (
        "arun",
        "cancel",
        "dispose",
        "followup",
        "id",
        "inject",
        "run",
        "start",
        "status",
        "steer",
    ),
    "nbagent.session.Session": ("append", "messages", "request_context", "request_header", "tool_history"),
}


def found(path: str) -> object:
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            value = getattr(value, name)
        return value
    raise AssertionError(path)


@pytest.mark.parametrize("module", NAMES)
def test_a_module_has_its_names_and_lists_them(module: str) -> None:
    home = importlib.import_module(module)
    assert [name for name in NAMES[module] if not hasattr(home, name)] == []
    assert set(NAMES[module]) <= set(home.__all__)


@pytest.mark.parametrize("path", PARAMETERS)
def test_a_call_takes_its_parameters(path: str) -> None:
    parameters = inspect.signature(found(path)).parameters
    assert [name for name in PARAMETERS[path] if name not in parameters] == []


@pytest.mark.parametrize("path", MEMBERS)
def test_an_object_has_its_members(path: str) -> None:
    home = found(path)
    assert [name for name in MEMBERS[path] if not hasattr(home, name)] == []


def test_a_runtime_has_its_registries() -> None:
    runtime = nbagent.Runtime()
    for name in ("agents", "hooks", "llm", "on", "projections", "prompt", "sessions", "store", "tools"):
        assert hasattr(runtime, name), name


def test_dir_shows_the_public_names() -> None:
    assert set(nbagent.__all__) <= set(dir(nbagent))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = nbagent.nothing
