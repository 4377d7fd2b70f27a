"""A log whose process died is made whole: what was shown stays, every call is answered, step and turn are closed."""

from __future__ import annotations

import pytest

from nbagent.session import Session, check_log
from nbagent.session.repair import PendingCalls, interrupted_turn_closers, recovery_result
from nbagent.testing import as_json
from nbagent.types.messages import text_block, tool_message
from nbagent.types.stream import finish, reasoning_delta, text_delta, tool_call_delta, usage_chunk

from .logs import answer, call, calls, close_step, end_turn, frame, header, open_step, result, say, session

UNKNOWN = (
    "The tool call was interrupted after it was recorded, but no result was durably recorded. Its outcome is unknown. "
    "Decide whether to retry from the tool semantics: retry only if the operation is read-only or idempotent; if it may "
    "have side effects, first verify external state or ask the user. Do not retry blindly."
)
NOT_STARTED = "The tool call was interrupted before the Harness recorded it as started. Retry it if it is still needed."
FORKED_STARTED = (
    "The history inherited by this branch records this tool call starting but does not include its result. The parent "
    "session may have completed it after the fork point. Decide whether to retry from the tool semantics: retry only if "
    "the operation is read-only or idempotent; if it may have side effects, first verify external state or ask the user. "
    "Do not retry blindly."
)
FORKED_NOT_STARTED = (
    "The history inherited by this branch has no record of this tool call starting. The parent session may have executed "
    "it after the fork point. Decide whether to retry from the tool semantics: retry only if the operation is read-only "
    "or idempotent; if it may have side effects, first verify external state or ask the user. Do not retry blindly."
)


def closed(log):
    """The closers, after checking that the log with them is whole."""
    closers = interrupted_turn_closers(log.events)
    check_log([as_json(event) for event in [*log.events, *closers]])
    assert [event.seq for event in closers] == list(range(len(log.events), len(log.events) + len(closers)))
    assert {event.time for event in closers} <= {log.events[-1].time if log.events else 0}
    return closers


def kinds(events):
    return [event.type for event in events]


@pytest.fixture
def log():
    return session()


def test_a_log_without_an_open_turn_needs_nothing(log):
    assert closed(log) == []
    say(log, "a")
    assert closed(log) == []
    open_step(log)
    close_step(log)
    end_turn(log)
    say(log, "between turns")
    assert closed(log) == []


def test_an_open_turn_is_ended_as_interrupted(log):
    log.append("turn/start", {"turn": 1})
    (end,) = closed(log)
    assert (end.type, end.data) == ("turn/end", {"turn": 1, "reason": {"kind": "interrupted"}})


def test_an_open_step_is_ended_first(log):
    open_step(log)
    assert kinds(closed(log)) == ["step/end", "turn/end"]


def test_a_call_that_was_recorded_and_one_that_was_not_get_results_that_say_so(log):
    open_step(log)
    answer(log, *calls("c1", "c2"))
    recorded = call(log, "c1")
    first, second, *ends = closed(log)
    assert kinds(ends) == ["step/end", "turn/end"]
    assert first.data["message"] == tool_message(
        "c1", [text_block(UNKNOWN)], is_error=True, id=f"interrupted-tool-result-c1-{first.seq}"
    )
    assert first.data["error"] == {"name": "ToolOutcomeUnknownError", "code": "TOOL_OUTCOME_UNKNOWN"}
    assert (first.surface_op, first.source_event_seqs) == ("append", [recorded.seq])
    assert second.data["message"].text == NOT_STARTED
    assert second.data["message"].id == f"interrupted-tool-result-c2-{second.seq}"
    assert second.data["error"] == {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    assert second.source_event_seqs is None


def test_an_answered_call_gets_no_second_result(log):
    open_step(log)
    answer(log, *calls("c1", "c2"))
    for call_id in ("c1", "c2"):
        call(log, call_id)
    result(log, "c2")
    assert [event.data["message"].tool_call_id for event in closed(log)[:-2]] == ["c1"]


def test_closed_steps_and_earlier_turns_are_not_touched(log):
    open_step(log)
    answer(log, *calls("old"))
    close_step(log)
    end_turn(log)
    open_step(log, 2)
    answer(log, *calls("older"), place={"turn": 2, "step": 1})
    close_step(log, 2)
    assert kinds(closed(log)) == ["turn/end"]
    open_step(log, 2, 2)
    assert kinds(closed(log)) == ["step/end", "turn/end"]


def test_a_call_that_no_answer_asked_for_is_ignored(log):
    open_step(log)
    call(log, "stray")
    assert kinds(closed(log)) == ["step/end", "turn/end"]


def test_a_rewrite_of_an_older_result_does_not_settle_a_call(log):
    open_step(log)
    answer(log, *calls("c"))
    call(log, "c")
    old = result(log, "c")
    close_step(log)
    open_step(log, 1, 2)
    place = {"turn": 1, "step": 2}
    answer(log, *calls("c"), place=place)
    call(log, "c", place)
    data = {**old.data, "message": old.data["message"].replace(content=[text_block("short")])}
    operation = {"op": "replace", "startSeq": old.seq, "endSeq": old.seq}
    log.append("tool/result", data, surface_op=operation, source_event_seqs=[old.seq])
    assert kinds(closed(log)) == ["tool/result", "step/end", "turn/end"]


# -- what a cut stream had shown ---------------------------------------------------------------------------------------


@pytest.fixture
def asked(log):
    open_step(log)
    header(log)
    return log


def shown(log):
    first = closed(log)[0]
    return first.data if first.type == "assistant/message" else None


def test_text_and_reasoning_that_were_shown_become_the_interrupted_answer(asked):
    first = frame(asked, reasoning_delta(0, "hm"), text_delta(1, "Hel"))
    frame(asked, text_delta(1, "lo"), tool_call_delta(2, '{"a"', id="c", name="f"), index=2)
    frame(asked, usage_chunk({"inputTokens": 3, "outputTokens": 2}), index=4)
    answered = shown(asked)
    assert [block["text"] for block in answered["message"].content] == ["hm", "Hello"]
    assert answered["message"].source == {"kind": "model", "provider": "p", "model": "m"}
    assert answered["message"].id == f"interrupted-answer-{first.seq}"
    assert answered["interrupted"] is True
    assert answered["usage"] == {"inputTokens": 3, "outputTokens": 2}
    assert kinds(closed(asked)) == ["assistant/message", "step/end", "turn/end"]


@pytest.mark.parametrize("chunk", [text_delta(0, " \n"), tool_call_delta(0, "{}", id="c", name="f"), usage_chunk({})])
def test_nothing_that_can_be_seen_gives_no_answer(asked, chunk):
    frame(asked, chunk)
    assert shown(asked) is None


def test_only_the_last_attempt_counts(asked):
    frame(asked, text_delta(0, "first try"), attempt=1)
    frame(asked, text_delta(0, "second try"), attempt=2)
    assert shown(asked)["message"].text == "second try"


def test_an_attempt_that_is_being_retried_was_withdrawn(asked):
    frame(asked, text_delta(0, "first try"), finish("error", error={"message": "x", "code": "SERVER"}))
    asked.append("llm/retry", {"retryId": "r"})
    assert shown(asked) is None
    asked.append("llm/retry-started", {"retryId": "r"})
    assert shown(asked) is None
    frame(asked, text_delta(0, "second try"), attempt=2)
    assert shown(asked)["message"].text == "second try"


def test_frames_of_an_answer_that_was_stored_are_not_told_twice(asked):
    frame(asked, text_delta(0, "Hello"))
    answer(asked, "Hello", *calls("c"))
    assert kinds(closed(asked)) == ["tool/result", "step/end", "turn/end"]


def test_frames_of_an_earlier_step_do_not_count(asked):
    frame(asked, text_delta(0, "Hello"))
    close_step(asked)
    assert shown(asked) is None
    open_step(asked, 1, 2)
    assert shown(asked) is None


def test_a_repaired_log_is_resumed_with_what_was_shown_and_the_next_turn(asked):
    frame(asked, text_delta(0, "Hel"))
    again = Session("s", [*asked.events, *interrupted_turn_closers(asked.events)])
    assert [message.text for message in again.messages()] == ["Hel"]
    again.append("turn/start", {"turn": 2})


# -- parts that the loop uses, too -------------------------------------------------------------------------------------


def test_pending_calls_are_listed_in_the_order_of_the_answer(log):
    pending = PendingCalls(1, 1)
    log.subscribe(pending.observe)
    open_step(log)
    answer(log, *calls("c1", "c2", "c3"))
    second = call(log, "c2")
    call(log, "c1")
    result(log, "c1")
    assert pending.unsettled() == [("c2", "f", second.seq), ("c3", "f", None)]
    result(log, "c2")
    close_step(log)
    open_step(log, 1, 2)
    answer(log, *calls("c4"), place={"turn": 1, "step": 2})
    assert pending.unsettled() == [("c3", "f", None)]


@pytest.mark.parametrize(("call_seq", "text"), [(4, FORKED_STARTED), (None, FORKED_NOT_STARTED)])
def test_results_of_a_fork_say_that_the_parent_may_have_gone_on(call_seq, text):
    data, sources = recovery_result("c", call_seq, 9, 1, 2, variant="forked")
    assert data["message"].text == text
    assert data["message"].id == "forked-tool-result-c-9"
    assert (data["turn"], data["step"], sources) == (1, 2, [4] if call_seq else None)
