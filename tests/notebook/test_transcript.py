from __future__ import annotations

import pytest

from nbagent.notebook.transcript import TurnTranscript
from nbagent.notebook.turn_items import Call, LateMessage, Prose, RetryNotice
from nbagent.types.messages import image_block, reasoning_block, text_block, tool_call_block
from nbagent.types.stream import (
    block_end,
    block_start,
    finish,
    reasoning_delta,
    text_delta,
    tool_call_delta,
    usage_chunk,
)
from tests.notebook.turns import TurnLog


def test_a_transcript_waits_until_its_turn_starts() -> None:
    transcript = TurnTranscript()
    assert (transcript.status, transcript.items, transcript.prompts, transcript.reason) == ("waiting", (), (), None)


def test_text_grows_with_each_frame_before_the_message_is_logged() -> None:
    log = TurnLog()
    log.begin("hi")
    log.frame(block_start(0, "text"), text_delta(0, "Hel"))
    log.frame(text_delta(0, "lo"), index=2)
    assert log.transcript.prompts == ("hi",)
    assert log.transcript.items == (Prose("text", "Hello", open=True),)
    assert log.transcript.status == "running"


def test_the_message_settles_what_the_frames_showed() -> None:
    transcript = TurnTranscript()
    log = TurnLog(transcript.apply)
    log.begin()
    log.frame(block_start(0, "reasoning"), reasoning_delta(0, "think"), block_end(0, reasoning_block("think")))
    log.frame(block_start(1, "text"), text_delta(1, "Hello"), index=3)
    reasoning = transcript.items[0]
    log.answer(reasoning_block("think"), text_block("Hello"))
    assert transcript.items == (Prose("reasoning", "think"), Prose("text", "Hello"))
    assert transcript.items[0] is reasoning


def test_a_log_without_frames_gives_the_same_items() -> None:
    streamed, plain = TurnLog(), TurnLog()
    for log in (streamed, plain):
        log.begin()
        if log is streamed:
            log.frame(block_start(0, "text"), text_delta(0, "Look"), block_end(0, text_block("Look")))
            log.frame(
                block_start(1, "tool-call"), tool_call_delta(1, '{"x"', id="c1", name="echo"), tool_call_delta(1, ":1}")
            )
            log.frame(block_end(1, tool_call_block("c1", "echo", '{"x":1}')), finish("tool-calls"))
        log.answer(text_block("Look"), tool_call_block("c1", "echo", '{"x":1}'))
        log.call("c1", "echo", '{"x":1}')
        log.result("c1", "1")
        log.next_step()
        log.answer(text_block("done"))
        log.end()
    first, second = streamed.transcript, plain.transcript
    assert [type(item) for item in first.items] == [type(item) for item in second.items]
    assert first.text == second.text == "done"
    call = first.items[1]
    assert isinstance(call, Call)
    assert (call.name, call.arguments, call.result, call.state) == ("echo", '{"x":1}', "1", "done")


def test_a_tool_call_is_queued_while_its_arguments_stream_and_running_once_logged() -> None:
    transcript = TurnTranscript()
    log = TurnLog(transcript.apply)
    log.begin()
    log.frame(tool_call_delta(0, '{"x":', id="c1", name="echo"))
    assert transcript.items == (Call("c1", "echo", '{"x":'),)
    log.answer(tool_call_block("c1", "echo", '{"x":1}'))
    log.call("c1", "echo", '{"x":1}')
    assert [item.state for item in transcript.items if isinstance(item, Call)] == ["running"]


@pytest.mark.parametrize(
    ("code", "is_error", "state"),
    [(None, False, "done"), (None, True, "error"), ("UNKNOWN_TOOL", True, "error"), ("ABORTED", True, "aborted")],
)
def test_a_result_says_how_the_call_ended(code: str | None, is_error: bool, state: str) -> None:
    log = TurnLog()
    log.begin()
    log.answer(tool_call_block("c1", "echo", "{}"))
    log.call("c1", "echo")
    log.result("c1", "text", code=code, is_error=is_error)
    call = log.transcript.items[0]
    assert isinstance(call, Call)
    assert (call.state, call.code, call.result) == (state, code, "text")
    assert call.ended is not None and call.started is not None and call.ended > call.started


def test_pictures_of_a_result_are_kept_beside_its_text() -> None:
    log = TurnLog()
    log.begin()
    log.answer(tool_call_block("c1", "plot", "{}"))
    log.call("c1", "plot")
    log.result("c1", [text_block("a figure"), image_block("image/png", "AAAA")])
    call = log.transcript.items[0]
    assert isinstance(call, Call)
    assert (call.result, [picture.media_type for picture in call.pictures]) == ("a figure", ["image/png"])


def test_an_id_that_comes_again_in_a_later_step_means_the_later_call() -> None:
    log = TurnLog()
    log.begin()
    for result in ("first", "second"):
        log.answer(tool_call_block("c1", "echo", "{}"))
        log.call("c1", "echo")
        log.result("c1", result)
        log.next_step()
    assert [item.result for item in log.transcript.items if isinstance(item, Call)] == ["first", "second"]


def test_a_retry_withdraws_the_text_of_the_failed_attempt_and_says_so() -> None:
    transcript = TurnTranscript()
    log = TurnLog(transcript.apply)
    log.begin()
    log.frame(block_start(0, "text"), text_delta(0, "Half an ans"))
    log.retry()
    assert transcript.items == (RetryNotice(1, "OVERLOADED", "busy", 500, waiting=True),)
    log.retry_started()
    assert transcript.items == (RetryNotice(1, "OVERLOADED", "busy", 500),)
    log.frame(block_start(0, "text"), text_delta(0, "A whole answer"), attempt=2)
    log.answer(text_block("A whole answer"))
    assert transcript.items[1:] == (Prose("text", "A whole answer"),)


def test_an_attempt_that_a_listener_retries_is_withdrawn_when_the_next_one_speaks() -> None:
    log = TurnLog()
    log.begin()
    log.frame(block_start(0, "text"), text_delta(0, "old"))
    log.frame(block_start(0, "text"), text_delta(0, "new"), attempt=2)
    assert log.transcript.items == (RetryNotice(1, "", ""), Prose("text", "new", open=True))


def test_items_of_earlier_steps_survive_a_retry() -> None:
    log = TurnLog()
    log.begin()
    log.answer(text_block("first step"), tool_call_block("c1", "echo", "{}"))
    log.call("c1", "echo")
    log.result("c1", "ok")
    log.next_step()
    log.frame(block_start(0, "text"), text_delta(0, "gone"))
    log.retry()
    assert [type(item) for item in log.transcript.items] == [Prose, Call, RetryNotice]


def test_a_failure_without_a_retry_keeps_what_was_shown_and_marks_it_as_cut() -> None:
    log = TurnLog()
    log.begin()
    log.frame(block_start(0, "text"), text_delta(0, "Half"))
    log.end("error", error={"message": "no key", "code": "AUTH"})
    transcript = log.transcript
    assert transcript.items == (Prose("text", "Half", interrupted=True),)
    assert transcript.partial and transcript.status == "finished"


def test_an_interrupted_message_is_marked_as_cut() -> None:
    log = TurnLog()
    log.begin()
    log.frame(block_start(0, "text"), text_delta(0, "Half"))
    log.answer(text_block("Half"), interrupted=True)
    log.end("aborted", reason={"kind": "user"})
    assert log.transcript.items == (Prose("text", "Half", interrupted=True),)
    assert log.transcript.partial


def test_a_cancel_shows_which_tools_are_waited_for() -> None:
    transcript = TurnTranscript()
    log = TurnLog(transcript.apply)
    log.begin()
    log.answer(tool_call_block("c1", "slow", "{}"), tool_call_block("c2", "next", "{}"))
    log.call("c1", "slow")
    assert transcript.waiting_for == ()
    transcript.stop_asked()
    assert (transcript.status, transcript.waiting_for) == ("stopping", ("slow",))
    log.result("c1", "late", code="ABORTED")
    assert transcript.waiting_for == ()


def test_a_cancel_before_the_turn_starts_is_remembered() -> None:
    transcript = TurnTranscript()
    transcript.stop_asked()
    TurnLog(transcript.apply).begin()
    assert transcript.status == "stopping"


def test_calls_without_a_result_are_stopped_when_the_turn_ends() -> None:
    transcript = TurnTranscript()
    log = TurnLog(transcript.apply)
    log.begin()
    log.frame(tool_call_delta(0, "{}", id="c1", name="slow"))
    log.end("interrupted")
    assert [item.state for item in transcript.items if isinstance(item, Call)] == ["aborted"]


def test_messages_that_enter_later_stand_where_they_entered() -> None:
    log = TurnLog()
    log.begin("one")
    log.say("two")
    log.answer(text_block("answer"))
    log.next_step()
    log.say("steered")
    assert log.transcript.prompts == ("one", "two")
    assert log.transcript.items[-1] == LateMessage("steered")


def test_a_later_message_stays_when_its_step_answers_or_is_retried() -> None:
    log = TurnLog()
    log.begin("one")
    log.answer(text_block("first"))
    log.next_step()
    log.say("steered")
    log.frame(block_start(0, "text"), text_delta(0, "gone"))
    log.retry()
    log.answer(text_block("second"))
    kinds = [type(item) for item in log.transcript.items]
    assert kinds == [Prose, LateMessage, RetryNotice, Prose]


def test_a_message_that_arrives_in_the_middle_of_an_answer_stands_before_it() -> None:
    log = TurnLog()
    log.begin("one")
    log.frame(block_start(0, "text"), text_delta(0, "ans"))
    log.say("from elsewhere")
    log.frame(text_delta(0, "wer"), index=2)
    assert log.transcript.items == (LateMessage("from elsewhere"), Prose("text", "answer", open=True))


def test_messages_of_plugins_are_not_prompts() -> None:
    log = TurnLog()
    log.begin("one")
    log.say("Current runtime context …", source={"kind": "plugin", "plugin": "nbagent/context"})
    assert log.transcript.prompts == ("one",)


def test_only_the_first_turn_is_told() -> None:
    log = TurnLog()
    log.begin("one")
    log.answer(text_block("first"))
    log.end()
    log.begin("two")
    log.answer(text_block("second"))
    log.end()
    assert (log.transcript.turn, log.transcript.prompts, log.transcript.text) == (1, ("one",), "first")


def test_usage_adds_up_over_steps_and_counts_the_running_attempt() -> None:
    transcript = TurnTranscript()
    log = TurnLog(transcript.apply)
    log.begin()
    log.frame(usage_chunk({"inputTokens": 5, "outputTokens": 1}))
    assert transcript.usage == {"inputTokens": 5, "outputTokens": 1}
    log.answer(text_block("a"), usage={"inputTokens": 5, "outputTokens": 2})
    log.next_step()
    log.answer(text_block("b"), usage={"inputTokens": 7, "outputTokens": 3, "cacheReadTokens": 4})
    assert transcript.usage == {"inputTokens": 12, "outputTokens": 5, "cacheReadTokens": 4}


def test_the_model_is_that_of_the_last_header() -> None:
    log = TurnLog()
    log.begin()
    log.header("deepseek", "deepseek-flash")
    assert log.transcript.model == "deepseek/deepseek-flash"


def test_every_prefix_of_a_turn_can_be_shown() -> None:
    log = TurnLog()
    log.begin()
    log.header()
    log.frame(block_start(0, "text"), text_delta(0, "x"), tool_call_delta(1, "{", id="c1", name="t"))
    log.retry()
    log.retry_started()
    log.answer(text_block("x"), tool_call_block("c1", "t", "{}"))
    log.call("c1", "t")
    log.result("c1", "r")
    log.next_step()
    log.answer(text_block("y"))
    log.end()
    events = list(log.session.events)
    for length in range(len(events) + 1):
        state = TurnTranscript.of(events[:length]).state()
        assert (state.status == "finished") == (length == len(events))


def test_a_state_does_not_change_when_the_transcript_goes_on() -> None:
    transcript = TurnTranscript()
    log = TurnLog(transcript.apply)
    log.begin()
    log.frame(block_start(0, "text"), text_delta(0, "a"))
    before = transcript.state()
    log.frame(text_delta(0, "b"), index=2)
    assert before.items == (Prose("text", "a", open=True),)
