"""What a repaired copy of a log would change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from nbagent.session import Session, check_log
from nbagent.session.repair import interrupted_turn_closers
from nbagent.session.repair_plan import plan_repair
from nbagent.testing import as_json

from .logs import (
    answer,
    call,
    calls,
    close_step,
    end_turn,
    header,
    legal_logs,
    open_step,
    result,
    say,
    session,
    tool_change,
)


@pytest.fixture
def left():
    """A closed step with one call that is answered, one that was recorded and one that was not."""
    log = session()
    say(log, "a")
    open_step(log)
    answer(log, *calls("c1", "c2", "c3"))
    call(log, "c1")
    result(log, "c1")
    call(log, "c2")
    close_step(log)
    return log


def test_a_log_that_is_whole_is_copied_as_it_is(left):
    log = session()
    say(log, "a")
    open_step(log)
    answer(log, "b")
    close_step(log)
    end_turn(log)
    plan = plan_repair(log.events)
    assert (plan.insertions, plan.events) == ([], list(log.events))
    assert plan_repair([]).events == []


def test_each_call_without_a_result_gets_one_before_the_end_of_its_step(left):
    end_turn(left)
    plan = plan_repair(left.events)
    assert [(each.before_seq, each.event.seq, each.event.type) for each in plan.insertions] == [
        (7, 7, "tool/result"),
        (7, 8, "tool/result"),
    ]
    recorded, unrecorded = (each.event for each in plan.insertions)
    assert (recorded.data["error"]["code"], recorded.source_event_seqs) == ("TOOL_OUTCOME_UNKNOWN", [6])
    assert (unrecorded.data["error"]["code"], unrecorded.source_event_seqs) == ("TOOL_NOT_STARTED", None)
    assert recorded.time == left.events[6].time
    check_log(plan.events)
    assert [event.type for event in plan.events[9:]] == ["step/end", "turn/end"]
    assert Session("s", plan.events).messages() == left.messages()


def test_a_turn_that_is_open_at_the_end_is_closed_too(left):
    plan = plan_repair(left.events)
    assert [(each.before_seq, each.event.type) for each in plan.insertions[2:]] == [(8, "turn/end")]
    assert plan.events[-1].data["reason"] == {"kind": "interrupted"}


def test_what_refers_to_later_events_is_moved_along(left):
    place = {"turn": 1, "step": 2}
    open_step(left, step=2)
    declared = header(left, "tool")
    tool_change(left, ["tool"], header_seq=declared.seq, place=place)
    kept = say(left, "kept")
    op = {"op": "replace", "startSeq": kept.seq, "endSeq": kept.seq}
    say(left, "other", surface_op=op, source_event_seqs=[kept.seq])
    close_step(left, step=2)
    end_turn(left)
    plan = plan_repair(left.events)
    check_log(plan.events)
    change, replacement = plan.events[12], plan.events[14]
    assert (change.type, change.data["headerSeq"]) == ("developer/message", declared.seq + 2)
    assert replacement.surface_op == {"op": "replace", "startSeq": 13, "endSeq": 13}
    assert replacement.source_event_seqs == [13]


def test_a_summary_of_the_step_shadows_its_new_results_as_well(left):
    later = say(left, "b")
    op = {"op": "replace", "startSeq": 0, "endSeq": 3}
    say(left, "summary of the answer", surface_op=op, source_event_seqs=[0, 3])
    assert plan_repair(left.events).insertions[0].event.type == "turn/end"

    log = session()
    for event in left.events[: later.seq + 1]:
        log.restore(as_json(event))
    op = {"op": "replace", "startSeq": 5, "endSeq": later.seq}
    say(log, "summary of what followed", surface_op=op, source_event_seqs=[5, later.seq])
    plan = plan_repair(log.events)
    check_log(plan.events)
    assert plan.events[-2].source_event_seqs == [5, 10, 7, 8]


def test_a_result_stands_before_what_a_user_said_in_its_step():
    log = session()
    open_step(log)
    answer(log, *calls("c1", "c2"))
    call(log, "c1")
    say(log, "meanwhile")
    call(log, "c2")
    close_step(log)
    end_turn(log)
    plan = plan_repair(log.events)
    check_log(plan.events)
    # A result cannot stand before its call.
    assert [each.before_seq for each in plan.insertions] == [4, 6]


def test_only_the_calls_of_the_step_itself_count(left):
    open_step(left, step=2)
    answer(left, *calls("c2"), place={"turn": 1, "step": 2})
    call(left, "c2", {"turn": 1, "step": 2})
    result(left, "c2", place={"turn": 1, "step": 2})
    close_step(left, step=2)
    end_turn(left)
    plan = plan_repair(left.events)
    assert [each.event.data["step"] for each in plan.insertions] == [1, 1]


def said(log):
    """What the model sees, apart from results."""
    return [(message.role, message.content) for message in log.messages() if message.role != "tool"]


@settings(max_examples=80, deadline=None)
@given(legal_logs())
def test_a_copy_of_any_log_is_whole_and_reads_as_the_log_does(events):
    log = session()
    for event in events:
        log.restore(event)
    plan = plan_repair(log.events)
    check_log(plan.events)
    assert plan_repair(plan.events).insertions == []
    inserted = {each.event.seq for each in plan.insertions}
    kept = [event for event in plan.events if event.seq not in inserted]
    assert [event.type for event in kept] == [event["type"] for event in events]
    assert [event.time for event in kept] == [event["time"] for event in events]
    closed = Session("s", [*log.events, *interrupted_turn_closers(log.events)])
    assert said(Session("s", plan.events)) == said(closed)
    types = [event.type for event in plan.events]
    assert types.count("turn/start") == types.count("turn/end")
