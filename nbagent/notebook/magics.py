"""The registered magic: `%agent` on a line, `%%agent` on a cell."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from nbagent.notebook.parser import Command, help_text, parse_cell, parse_line
from nbagent.notebook.roster import roster
from nbagent.notebook.transformer import AWAITED

__all__ = ("agent", "register", "unregister")


def agent(line: str, cell: str | None = None) -> Awaitable[None] | None:
    """Make and drive agents.

    `%agent create NAME` makes an agent; a cell that begins with `%%agent NAME` sends the rest of the cell as a prompt.
    `%agent -h` lists the verbs, `%agent VERB -h` says more.
    """
    awaited = line.startswith(AWAITED)
    line = line.removeprefix(AWAITED)
    command = parse_line(line, roster.names) if cell is None else _cell_command(line)
    if command is None or command.help:
        return _answer(_help, command, awaited=awaited)
    # What the verbs need is imported when one is used: loading the extension stays quick.
    from nbagent.notebook import actions

    if cell is not None:
        answer = actions.run_cell(command, cell, awaited=awaited)
    else:
        answer = actions.ACTIONS[command.verb.name](command, awaited=awaited)
    return answer if answer is not None or not awaited else _nothing()


# Prompts are sent as typed: IPython puts no variables into them.
agent._ipython_magic_no_var_expand = True  # type: ignore[attr-defined]


def register(shell: Any) -> None:
    """Add the magic to `shell`; adding it again changes nothing."""
    shell.register_magic_function(agent, magic_kind="line_cell", magic_name="agent")


def unregister(shell: Any) -> None:
    """Take the magic out of `shell`."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("agent", None)


def _cell_command(line: str) -> Command:
    command = parse_cell(line)
    if command.name is not None and command.name not in roster.names:
        from nbagent.errors import InputError
        from nbagent.notebook.verbs import VERBS

        if command.name in VERBS:
            raise InputError(
                f"verbs stand on a line: %agent {command.name}; a cell begins with %%agent [NAME]", code="UNKNOWN_AGENT"
            )
    return command


def _help(command: Command | None) -> None:
    from nbagent.notebook.shell import say

    say(help_text(command.verb if command is not None else None))


def _answer(function: Any, *args: Any, awaited: bool) -> Awaitable[None] | None:
    function(*args)
    return _nothing() if awaited else None


async def _nothing() -> None:
    """What an awaited call gets from a verb that has already done its work."""
