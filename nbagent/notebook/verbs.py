"""Every verb of `%agent` and the cell form `%%agent`, declared once: parsing, help and completion read this table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ("CELL", "VERBS", "Option", "Verb")

Kind = Literal["flag", "text", "optional-text", "count", "seconds", "names"]
Values = Literal["", "models", "tools", "sessions", "efforts", "texts", "paths"]
"""Where Tab finds the values of an option."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a verb.

    Attributes:
        name: With its two dashes.
        help: What it does, in half a line.
        metavar: What stands for its value in the help; absent on flags.
        kind: `count` is a positive whole number, `seconds` a positive number, `names` a comma-separated list.
    """

    name: str
    help: str
    metavar: str = ""
    kind: Kind = "flag"
    values: Values = ""

    @property
    def key(self) -> str:
        """Its key in the parsed options."""
        return self.name[2:].replace("-", "_")


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb.

    Attributes:
        name: The word after `%agent`.
        summary: What it does, in one line.
        takes: `new` wants the name of an agent to make, `agent` takes the name of a live one, `nothing` neither.
        text: Whether what follows the options is a text, taken as typed.
        waits: Whether the cell waits for turns.
        exclusive: Options that do not go together.
    """

    name: str
    summary: str
    takes: Literal["new", "agent", "nothing"] = "agent"
    text: bool = False
    waits: bool = False
    options: tuple[Option, ...] = ()
    exclusive: tuple[tuple[str, ...], ...] = field(default=())

    def option(self, name: str) -> Option | None:
        """The option of this name, dashes included."""
        return next((option for option in self.options if option.name == name), None)

    @property
    def usage(self) -> str:
        """`%agent create NAME [--model PROVIDER/MODEL] ...`."""
        head = "%%agent" if self is CELL else f"%agent {self.name}"
        name = {"new": "NAME", "agent": "[NAME]", "nothing": ""}[self.takes]
        options = "[OPTIONS]" if self.options else ""
        return " ".join(part for part in (head, name, options, "TEXT" if self.text else "") if part)


_BACKGROUND = Option("--bg", "return at once and let the turn go on in the background")
_KEEP_INBOX = Option("--keep-inbox", "leave pending prompts where they are")
_SESSION_DIR = Option("--session-dir", "folder that the session files are kept in", "PATH", "text", "paths")

VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb(
            "create",
            "make an agent and bind it to its name",
            takes="new",
            options=(
                Option("--model", "which model answers, for example demo", "PROVIDER/MODEL", "text", "models"),
                Option("--effort", "reasoning effort asked of the model", "EFFORT", "text", "efforts"),
                Option("--max-tokens", "cap on the tokens of one answer", "N", "count"),
                Option("--system", "system prompt", "TEXT", "text"),
                Option("--system-file", "file that holds the system prompt", "PATH", "text", "paths"),
                Option("--system-var", "variable that holds the system prompt", "NAME", "text", "texts"),
                Option(
                    "--tools", "functions of the notebook it may call, with commas between", "A,B", "names", "tools"
                ),
                Option("--parallel", "parallel tool calls it may have in flight", "N", "count"),
                Option(
                    "--session", "exactly this session: made when new, continued when stored", "ID", "text", "sessions"
                ),
                Option(
                    "--resume",
                    "go on with a stored session, the last of this name by default",
                    "[ID]",
                    "optional-text",
                    "sessions",
                ),
                Option("--max-steps", "model calls that one turn may make", "N", "count"),
                Option("--cwd", "working directory recorded in the session", "PATH", "text", "paths"),
                Option("--base-url", "where a custom/NAME model is served", "URL", "text"),
                _SESSION_DIR,
            ),
            exclusive=(("--session", "--resume"), ("--system", "--system-file", "--system-var")),
        ),
        Verb(
            "send",
            "send a prompt and wait for its turn",
            text=True,
            waits=True,
            options=(_BACKGROUND,),
        ),
        Verb("steer", "put a message into the running turn, before its next model call", text=True),
        Verb("inject", "like steer, but without waking an idle agent", text=True),
        Verb("cancel", "stop the running turn and drop what is pending", options=(_KEEP_INBOX,)),
        Verb(
            "wait",
            "wait until the agent is idle",
            waits=True,
            options=(Option("--timeout", "give up after so many seconds; the agent goes on", "S", "seconds"),),
        ),
        Verb("list", "the agents of this kernel", takes="nothing"),
        Verb("use", "make an agent the one that is meant when no name is given"),
        Verb("info", "model, tools, session and file of an agent"),
        Verb(
            "show",
            "draw a turn again from the log, the last one by default",
            options=(
                Option("--turn", "which turn", "N", "count"),
                Option("--all", "every turn"),
            ),
            exclusive=(("--turn", "--all"),),
        ),
        Verb("dispose", "end an agent; its session stays on disk", options=(_KEEP_INBOX,)),
        Verb("sessions", "the stored sessions of this notebook", takes="nothing", options=(_SESSION_DIR,)),
        Verb("tools", "the tools of an agent, and the functions of the notebook that can become one"),
        Verb("models", "models that can be used here, and what the others lack", takes="nothing"),
    )
}
"""By name, in the order of the help."""

CELL = Verb(
    "%%agent",
    "send the cell as a prompt and wait for its turn",
    waits=True,
    options=(
        _BACKGROUND,
        Option("--steer", "put it into the running turn and return at once"),
        Option("--inject", "like --steer, but without waking an idle agent"),
        Option("--queue", "give it a turn of its own (what happens anyway)"),
        Option("--fmt", "replace {name} by the variable's value"),
        Option("--as", "variable that gets the reply", "VAR", "text"),
    ),
    exclusive=(
        ("--steer", "--inject", "--queue"),
        ("--steer", "--bg"),
        ("--inject", "--bg"),
        ("--steer", "--as"),
        ("--inject", "--as"),
    ),
)
"""The cell form."""
