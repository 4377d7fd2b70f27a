"""What a branch begins with."""

from __future__ import annotations

import pytest

from nbagent.errors import SessionError
from nbagent.session import Session
from nbagent.session.fork import fork_events
from nbagent.testing import LogBuilder, as_json


@pytest.fixture
def log():
    return LogBuilder().begin("How many?").calls(("c1", "count", {}), ("c2", "count", {})).result("c1", "12")


def test_a_branch_inherits_everything_unless_told_where_to_end(log):
    whole = log.result("c2", "13").answers("25").end()
    assert fork_events(whole.events) == list(whole.events)
    assert fork_events(whole.events, len(whole.events) - 1) == list(whole.events)


def test_a_turn_that_is_open_at_the_boundary_is_closed_as_forked(log):
    branch = fork_events(log.events)
    closers = branch[len(log.events) :]
    assert [event.type for event in closers] == ["tool/result", "step/end", "turn/end"]
    result = closers[0].data
    assert result["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
    assert result["message"]["id"] == f"forked-tool-result-c2-{len(log.events)}"
    assert "The parent session may have completed it after the fork point." in result["message"]["content"][0]["text"]
    assert closers[-1].data["reason"] == {"kind": "forked"}
    assert {event.time for event in closers} == {log.events[-1].time}


def test_a_call_that_the_branch_does_not_see_starting_says_so(log):
    place = next(event.seq for event in log.events if event.type == "assistant/message")
    results = [event for event in fork_events(log.events, place) if event.type == "tool/result"]
    assert [event.data["error"]["code"] for event in results] == ["TOOL_NOT_STARTED", "TOOL_NOT_STARTED"]
    assert all("no record of this tool call starting" in e.data["message"]["content"][0]["text"] for e in results)


@pytest.mark.parametrize("boundary", [-1, 99, True, 1.0, "3"])
def test_a_boundary_that_is_no_event_of_the_log_is_refused(log, boundary):
    with pytest.raises(SessionError) as failure:
        fork_events(log.events, boundary)
    assert failure.value.code == "INVALID_BOUNDARY"
    assert f"seqs 0 to {len(log.events) - 1}" in failure.value.message


def test_a_branch_of_nothing_is_empty_and_has_no_boundary():
    assert fork_events([]) == []
    with pytest.raises(SessionError, match="the session has no events"):
        fork_events([], 0)


def test_a_branch_cut_anywhere_is_a_valid_log_with_every_call_answered(log):
    whole = log.result("c2", "13").answers("25").end().begin("And now?").calls(("c3", "count", {}))
    for boundary in range(len(whole.events)):
        branch = Session("branch", fork_events(whole.events, boundary), inherited=True)
        messages = branch.messages()
        called = [block["id"] for each in messages if each.role == "assistant" for block in each.tool_calls]
        assert [each.tool_call_id for each in messages if each.role == "tool"] == called
        assert branch.events[-1].data == {"inherited": True}
        assert branch.inherited_event_count == len(branch.events) - 1


def test_a_branch_is_marked_even_when_its_parent_ended_in_a_mark():
    parent = Session("parent", list(LogBuilder().begin("Hi").answers("Hello.").end().events))
    assert parent.events[-1].type == "session/end-seed"
    branch = Session("branch", fork_events(parent.events), inherited=True)
    assert as_json([event.data for event in branch.events[-2:]]) == [{}, {"inherited": True}]
    reopened = Session(branch.header, list(branch.events))
    assert list(reopened.events) == list(branch.events)
    assert reopened.inherited_event_count == len(parent.events)
