"""The command `nbagent`: runs tutorial notebooks, and looks at session files.

Each command has a module of its own, which adds its arguments to the parser and names the function that runs it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import nbagent
from nbagent.cli import sessions, tutorial
from nbagent.errors import NbagentError

__all__ = ("main",)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; answers its exit code: 0, 1 for a failure told in one line, 2 for a wrong use, 130 when stopped."""
    # A terminal that cannot show a character shows a question mark instead of ending the program.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and not (options.command == "tutorial" and options.lab):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return options.run(options, rest)
    except NbagentError as fault:
        print(f"nbagent: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("nbagent: stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nbagent", description="Drive LLM agents from a Jupyter notebook.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"nbagent {nbagent.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    tutorial.add_arguments(commands)
    sessions.add_arguments(commands)
    return parser
