"""Agents from Python: `nbagent.create` in notebooks and scripts, `nbagent.acreate` in async code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nbagent.notebook.creation import CreateOptions, create_agent
from nbagent.notebook.identity import notebook
from nbagent.notebook.notebook_agent import NotebookAgent
from nbagent.notebook.shell import current_kernel

__all__ = ("acreate", "create")

_told = False


def create(
    name: str | None = None,
    *,
    model: str | None = None,
    effort: str | None = None,
    max_tokens: int | None = None,
    system: str | Callable[..., Any] | None = None,
    tools: Sequence[Any] = (),
    parallel: int | None = None,
    session: str | None = None,
    resume: str | bool | None = None,
    max_steps: int | None = None,
    cwd: str | Path | None = None,
    base_url: str | None = None,
    session_dir: str | Path | None = None,
) -> NotebookAgent:
    """Make an agent. It lives on a thread of its own; every method of it may be called from any thread.

    In IPython it is also bound to `name`, and the magics know it by that. A live agent of the same name is disposed, its
    session and pending input kept. Without a notebook the sessions go to a folder in the working directory, and the first
    call says which.

    Args:
        name: What it is called; a free name is taken, and nothing bound, when there is none.
        model: `provider/model`. Without one: the model of the session that is resumed, else that of the first route whose
            key is set, else the built-in demo, which is no language model and says so.
        effort: Reasoning effort asked of the model.
        max_tokens: Cap on the tokens of one answer.
        system: System prompt, or a function called once a step that answers it.
        tools: Tools, functions, or names of either in the caller's namespace.
        parallel: Parallel-safe tool calls it may have in flight.
        session: Exactly this session: made when new, continued when stored.
        resume: A stored session to go on with; `True` for the last one of this name.
        max_steps: Model calls that one turn may make.
        cwd: Working directory recorded in the session.
        base_url: Where a `custom/NAME` model is served.
        session_dir: Folder of the session files; beside the notebook by default.

    Raises:
        InputError, StorageError, LifecycleError: With codes as `nbagent.notebook.creation.create_agent` lists them;
            nothing is made then.
    """
    made = create_agent(
        name,
        CreateOptions(
            model=model,
            effort=effort,
            max_tokens=max_tokens,
            system=system,
            tools=tools,
            parallel=parallel,
            session=session,
            resume=resume,
            max_steps=max_steps,
            cwd=cwd,
            base_url=base_url,
            session_dir=session_dir,
        ),
    )
    if session_dir is None:
        _tell_folder()
    return made.agent


async def acreate(name: str | None = None, **options: Any) -> NotebookAgent:
    """`create` for async code, on any event loop; same arguments and errors."""
    import anyio.to_thread

    return await anyio.to_thread.run_sync(partial(create, name, **options))


def _tell_folder() -> None:
    global _told  # noqa: PLW0603
    found = notebook(search=False)
    # A program that runs notebooks compares what they print, so only people are told.
    if _told or found is None or found.source != "unknown" or current_kernel() is not None:
        return
    _told = True
    sys.stderr.write(f"nbagent: no notebook is known; sessions are kept in {found.folder}\n")
