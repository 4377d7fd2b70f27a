"""A prompt from a cell: how it enters, where its turn is shown, and how the cell ends.

Where a front end watches, the turn is drawn while it happens and then replaced by plain output. Where none does, it is
published once, at the end.
"""

from __future__ import annotations

import string
from collections.abc import Awaitable, Mapping
from typing import Any

from nbagent.errors import InputError
from nbagent.notebook.notebook_agent import NotebookAgent, check_waited
from nbagent.notebook.parser import Command
from nbagent.notebook.run import Run
from nbagent.notebook.shell import hears_page, is_live, namespace, publish, say
from nbagent.notebook.waiting import Interrupts, StoppedByUser, settle, wait

__all__ = ("ask", "deliver", "filled", "wait_for")


def ask(agent: NotebookAgent, text: str, command: Command, *, awaited: bool) -> Awaitable[None] | None:
    """Send a prompt from the running cell, and wait for its turn unless `--bg` is given.

    Args:
        agent: Who is asked.
        text: The prompt, as typed.
        command: With the options `bg` and `as`.
        awaited: Whether the caller awaits what this answers; otherwise the cell is held here.
    """
    variable: str | None = command.options.get("as")
    background = bool(command.options.get("bg"))
    if variable is not None:
        from nbagent.notebook.creation import check_variable

        check_variable(variable, "the variable of --as")
    live = is_live()
    run = agent.start(text) if background else agent.launch(text)
    if variable is not None:
        run.future.add_done_callback(lambda future: _bind(variable, future))
    if live:
        from nbagent.notebook.views.run import RunView

        view = RunView(agent.name, on_stop=run.cancel, can_stop=hears_page(background=background))
        view.show()
        run.attach(view)
    if background:
        return None
    interrupts = Interrupts(run.cancel)
    if awaited:
        return _settled(run, interrupts, live=live)
    with interrupts:
        wait(run.future, interrupts)
    return _conclude(run, interrupts, live=live)


async def _settled(run: Run, interrupts: Interrupts, *, live: bool) -> None:
    with interrupts:
        await settle(run.future, interrupts)
    _conclude(run, interrupts, live=live)


def _conclude(run: Run, interrupts: Interrupts, *, live: bool) -> None:
    """End the cell: what was shown stays, an interrupt and a failure end it with one line."""
    if not live:
        publish(run.agent.host.call(run.bundle))
    if interrupts.count:
        if run.done:
            raise StoppedByUser("stopped; the text so far is kept")
        raise StoppedByUser(
            f"no longer waiting; {run.agent.name} is stopping, %agent wait {run.agent.name} waits for it"
        )
    run.outcome()


def deliver(agent: NotebookAgent, text: str, how: str) -> None:
    """Put a message into the running turn (`steer`, `inject`) and say what became of it."""
    idle = agent.status == "idle"
    (agent.steer if how == "steer" else agent.inject)(text)
    if how == "steer":
        say(
            f"{agent.name} was idle and begins a turn with it"
            if idle
            else f"{agent.name} reads it before its next step"
        )
    else:
        say(f"{agent.name} reads it with {'the next prompt' if idle else 'its next step'}")


def wait_for(agent: NotebookAgent, timeout: float | None, *, awaited: bool) -> Awaitable[None] | None:
    """Wait until an agent is idle, and publish the background turns that nobody has seen when no front end does."""
    live = is_live()
    future = agent.host.submit(agent.core.when_idle)
    interrupts = Interrupts(patience=1)

    def conclude() -> None:
        check_waited(agent, future.done(), interrupts, timeout)
        runs = agent.take_background()
        if runs and not live:
            publish(agent.host.call(_bundle_of, runs))
        elif not runs:
            say(f"{agent.name} is idle")
        for run in runs:
            run.outcome()

    async def settled() -> None:
        with interrupts:
            await settle(future, interrupts, timeout=timeout)
        conclude()

    if awaited:
        return settled()
    with interrupts:
        wait(future, interrupts, timeout=timeout)
    return conclude()


def filled(text: str, names: Mapping[str, Any]) -> str:
    """The text with `{name}` replaced by the variable's value, `{{` by a brace.

    Raises:
        InputError: `UNDEFINED_NAME`; `INVALID_FORMAT`, a brace is left open, or a value cannot be shown that way.
    """
    try:
        return string.Formatter().vformat(text, (), names)
    except KeyError as missing:
        raise InputError(
            f"--fmt: there is no variable {missing.args[0]!r}; nothing was sent", code="UNDEFINED_NAME"
        ) from None
    except Exception as fault:
        raise InputError(
            f"--fmt: {str(fault) or type(fault).__name__}; write {{{{ and }}}} for braces. Nothing was sent",
            code="INVALID_FORMAT",
        ) from None


def _bundle_of(runs: list[Run]) -> Mapping[str, str]:
    from nbagent.notebook.display import bundle

    if any(run.transcript.turn is None for run in runs):
        # A prompt that was taken back has no turn to draw.
        parts = [run.bundle() for run in runs]
        return {kind: "\n\n".join(part[kind] for part in parts) for kind in parts[0]}
    return bundle([run.transcript for run in runs], agent_name=runs[0].agent.name)


def _bind(variable: str, future: Any) -> None:
    if future.exception() is None:
        namespace()[variable] = future.result()
