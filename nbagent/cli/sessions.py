"""`nbagent sessions`: says what is wrong with a session file, and writes a repaired copy beside it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nbagent.session.repair_plan import RepairPlan, plan_repair
from nbagent.storage.repaired_copy import StoredLog, read_log, write_repaired_copy

__all__ = ("add_arguments",)


def add_arguments(commands: Any) -> None:
    """Add `sessions` to the commands of a parser."""
    parser = commands.add_parser(
        "sessions",
        help="check a session file, or write a repaired copy of it",
        description="Look at session files. A file is never changed.",
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = verbs.add_parser(
        "check",
        help="say what a repaired copy would change; exit code 1 when there is something",
        description="Check a session file against every rule and say what a repaired copy would change. "
        "The exit code is 1 when there is something, or when the file is damaged.",
        allow_abbrev=False,
    )
    repair = verbs.add_parser(
        "repair",
        help="write a repaired copy; without --write only say what it would change",
        description="Write a repaired copy of a session file beside it, as a session of its own. "
        "Without --write nothing is written.",
        allow_abbrev=False,
    )
    for verb, run in ((check, _check), (repair, _repair)):
        verb.add_argument("file", metavar="FILE", type=Path, help="a session file, ID.jsonl")
        verb.set_defaults(run=run)
    repair.add_argument("--write", action="store_true", help="write the copy")


def _check(options: argparse.Namespace, _rest: Sequence[str]) -> int:
    _log, _plan, changes = _planned(options.file)
    if changes:
        print(f"A repaired copy: nbagent sessions repair {options.file} --write")
    return 1 if changes else 0


def _repair(options: argparse.Namespace, _rest: Sequence[str]) -> int:
    log, plan, changes = _planned(options.file)
    if changes and options.write:
        copy = write_repaired_copy(options.file.absolute(), log.header, plan.events)
        print(f"Written: {copy}; {options.file} is as it was.")
    elif changes:
        print("Nothing was written: add --write for a repaired copy.")
    return 0


def _planned(path: Path) -> tuple[StoredLog, RepairPlan, list[str]]:
    """What a file holds, and what a repaired copy would change, which is told."""
    log = read_log(path.absolute())
    plan = plan_repair(log.events)
    changes = _changes(log, plan)
    found = "to repair:" if changes else "nothing to repair"
    print(f"{path}: session {log.header.id}, {len(log.events)} events, {found}")
    for change in changes:
        print(f"  {change}")
    return log, plan, changes


def _changes(log: StoredLog, plan: RepairPlan) -> list[str]:
    torn = ["at the end: a record that was cut in the middle is left out"] if log.torn else []
    return [*_told(plan, len(log.events)), *torn]


def _told(plan: RepairPlan, length: int) -> Iterator[str]:
    for insertion in plan.insertions:
        event, data = insertion.event, insertion.event.data
        # The first event, seq 0, stands in line 2.
        where = f"before line {insertion.before_seq + 2}" if insertion.before_seq < length else "at the end"
        if event.type == "tool/result":
            known = "began, its outcome is not known" if event.source_event_seqs else "was not recorded as started"
            call = f"call {data['message']['toolCallId']} of turn {data['turn']}, step {data['step']}"
            yield f"{where}: {call} has no result and gets one; it {known}"
        elif event.type == "turn/end":
            yield f"{where}: turn {data['turn']} is open and is ended as interrupted"
        elif event.type == "step/end":
            yield f"{where}: step {data['step']} of turn {data['turn']} is open and is ended"
        else:
            yield f"{where}: the answer that was cut in turn {data['turn']} becomes a message"
