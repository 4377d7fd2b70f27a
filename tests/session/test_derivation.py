"""Calls that older logs left without a result in closed steps: the history that is derived answers them."""

from __future__ import annotations

import pytest

from nbagent.session import Session
from nbagent.testing import as_json

from .logs import answer, call, calls, close_step, end_turn, open_step, result, say, session


@pytest.fixture
def left():
    """A closed turn with one call that is answered, one that was recorded and one that was not."""
    log = session()
    say(log, "a", id="u")
    open_step(log)
    answer(log, *calls("c1", "c2", "c3"))
    call(log, "c1")
    result(log, "c1")
    call(log, "c2")
    return log


def close(log):
    close_step(log)
    end_turn(log)


def told(log):
    return [message.text if message.role == "user" else message.id for message in log.messages()[2:]]


def recovered(step_end):
    return [f"interrupted-tool-result-{call_id}-{step_end}" for call_id in ("c2", "c3")]


def test_calls_of_a_closed_step_without_a_result_get_one_in_their_place(left):
    assert told(left) == ["r-c1"]
    close(left)
    say(left, "b")
    assert told(left) == ["r-c1", *recovered(7), "b"]
    recorded, unrecorded = left.messages()[3:5]
    assert recorded.is_error
    assert recorded.text.startswith("The tool call was interrupted after it was recorded")
    assert unrecorded.text.startswith("The tool call was interrupted before the Harness recorded it as started.")
    assert unrecorded.source == {"kind": "tool", "callId": "c3"}


def test_nothing_is_appended_for_that_and_no_generation_changes(left):
    before = [event.type for event in left.events], left.surface
    left.messages()
    assert ([event.type for event in left.events], left.surface) == before
    close(left)
    assert (left.surface, left.content_generation, left.replace_generation) == (before[1], 0, 0)


def test_a_list_that_was_handed_out_before_stays_as_it_was(left):
    held = left.messages()
    close(left)
    assert len(held) == 3
    assert len(left.messages()) == 5


def test_the_results_are_the_same_objects_every_time_and_the_same_from_the_file(left):
    close(left)
    first = left.messages()
    say(left, "b", surface_op={"op": "replace", "startSeq": 0, "endSeq": 0}, source_event_seqs=[0])
    assert all(one is other for one, other in zip(first[1:], left.messages()[1:], strict=True))
    copy = Session("s", [as_json(event) for event in left.events])
    assert copy.messages() == left.messages()


def test_what_a_user_said_in_between_comes_after_them(left):
    say(left, "meanwhile")
    close(left)
    assert told(left) == ["r-c1", *recovered(8), "meanwhile"]


def test_a_result_that_was_shadowed_is_missing_too(left):
    result(left, "c2")
    say(left, "cleared", surface_op={"op": "replace", "startSeq": 5, "endSeq": 5}, source_event_seqs=[5])
    assert told(left) == ["cleared", "r-c2"]
    call(left, "c3")
    result(left, "c3")
    close(left)
    assert told(left) == ["interrupted-tool-result-c1-11", "cleared", "r-c2", "r-c3"]


def test_a_call_that_was_shadowed_needs_none(left):
    close(left)
    say(left, "summary", surface_op={"op": "replace", "startSeq": 3, "endSeq": 5}, source_event_seqs=[3, 5])
    assert [message.text for message in left.messages()] == ["a", "summary"]


def test_the_same_call_id_in_a_later_step_answers_nothing_of_an_earlier_one(left):
    close_step(left)
    open_step(left, step=2)
    place = {"turn": 1, "step": 2}
    answer(left, *calls("c2"), place=place)
    call(left, "c2", place)
    result(left, "c2", place=place)
    close_step(left, step=2)
    assert told(left)[:3] == ["r-c1", *recovered(7)]
    assert told(left)[4:] == ["r-c2"]


def test_a_part_of_the_surface_makes_a_history_of_its_own(left):
    close(left)
    say(left, "b")
    assert left.messages([3, 5]) == left.messages()[1:5]
    assert left.messages([]) == []
    assert left.messages(left.surface) == left.messages()
