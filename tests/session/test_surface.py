"""Which messages the model sees, and what a replacement may do to them."""

from __future__ import annotations

import pytest

from nbagent.errors import SessionError
from nbagent.types.messages import text_block, tool_message

from .logs import PLACE, answer, call, calls, close_step, end_turn, open_step, prompt, result, say, session


def texts(log):
    return [message.text for message in log.messages()]


def replace(start, end=None):
    return {"op": "replace", "startSeq": start, "endSeq": start if end is None else end}


def refused(log, call):
    before = (len(log.events), log.surface, log.replace_generation, log.messages())
    with pytest.raises(SessionError) as failure:
        call()
    assert (len(log.events), log.surface, log.replace_generation, log.messages()) == before
    assert failure.value.code == "SURFACE_REFUSED", failure.value
    return failure.value.message


@pytest.fixture
def three():
    log = session()
    for text in "abc":
        say(log, text)
    return log


def test_messages_stand_in_the_order_of_the_surface(three):
    assert three.surface == [0, 1, 2]
    say(three, "x", surface_op=replace(0, 1), source_event_seqs=[0, 1])
    assert three.surface == [3, 2]
    assert texts(three) == ["x", "c"]
    say(three, "y", surface_op=replace(3), source_event_seqs=[3])
    assert texts(three) == ["y", "c"]
    assert (three.replace_generation, three.content_generation) == (2, 2)


def test_an_append_changes_no_generation(three):
    assert (three.replace_generation, three.content_generation) == (0, 0)


def test_empty_messages_are_nodes_that_the_model_does_not_see():
    log = session()
    open_step(log)
    prompt(log, "")
    answer(log)
    say(log, "")
    assert log.surface == [2, 3, 4]
    assert [message.role for message in log.messages()] == ["user"]


def test_a_message_event_needs_a_surface_operation_and_others_must_not_have_one():
    log = session()
    assert refused(log, lambda: say(log, "a", surface_op=None)) == (
        'session event "user/message" is surface-eligible and requires a surfaceOp marker'
    )
    for options in ({"surface_op": "append"}, {"source_event_seqs": [0]}):
        assert refused(log, lambda options=options: log.append("turn/start", {"turn": 1}, **options)) == (
            'session event "turn/start" is not surface-eligible and cannot carry surfaceOp'
        )


@pytest.mark.parametrize(
    ("operation", "sources", "message"),
    [
        (replace(9, 1), [1], "surface replace: start seq 9 not found in surface"),
        (replace(1, 9), [1], "surface replace: end seq 9 not found in surface"),
        (replace(2, 0), [0, 1, 2], "surface replace: start seq 2 (index 2) is after end seq 0 (index 0)"),
        (replace(0, 2), [0, 2], "surface replace: sourceEventSeqs must include every shadowed surface node; missing 1"),
        (replace(0), None, "surface replace: sourceEventSeqs must include every shadowed surface node; missing 0"),
        (replace(0), [0, 0], "sourceEventSeqs must not contain duplicates"),
        (replace(0), [0, 3], "sourceEventSeqs must reference earlier events: 3 >= current seq 3"),
        ("append", [], "sourceEventSeqs must not be empty"),
        ("append", [-1], "sourceEventSeqs must hold non-negative integers"),
        (replace(True), [0], "surface replace: start seq True not found in surface"),
    ],
)
def test_a_replacement_that_does_not_fit_is_refused_and_changes_nothing(three, operation, sources, message):
    assert refused(three, lambda: say(three, "x", surface_op=operation, source_event_seqs=sources)) == message


@pytest.mark.parametrize("operation", ["prepend", {}, {"op": "delete"}, {"op": "replace"}, []])
def test_an_unknown_operation_is_refused(three, operation):
    refused(three, lambda: say(three, "x", surface_op=operation))


def test_a_node_that_was_replaced_cannot_be_replaced_again(three):
    say(three, "x", surface_op=replace(1), source_event_seqs=[1])
    assert "start seq 1 not found" in refused(
        three, lambda: say(three, "y", surface_op=replace(1), source_event_seqs=[1])
    )


def test_a_replacement_may_cite_more_than_it_shadows(three):
    say(three, "x", surface_op=replace(2), source_event_seqs=[0, 2])
    assert texts(three) == ["a", "b", "x"]


# -- the prompt at the head --------------------------------------------------------------------------------------------

HEAD = "surface replace: node 0 holds the system prompt and may be rewritten only by a system/message over exactly that node"


@pytest.fixture
def prompted():
    log = session()
    open_step(log)
    prompt(log, "one")
    say(log, "a")
    return log


def test_the_prompt_at_the_head_is_rewritten_only_by_a_prompt(prompted):
    assert refused(prompted, lambda: say(prompted, "x", surface_op=replace(2, 3), source_event_seqs=[2, 3])) == HEAD
    assert refused(prompted, lambda: say(prompted, "x", surface_op=replace(2), source_event_seqs=[2])) == HEAD
    both = {"surface_op": replace(2, 3), "source_event_seqs": [2, 3]}
    assert refused(prompted, lambda: prompt(prompted, "two", **both)) == HEAD
    prompt(prompted, "two", surface_op=replace(2), source_event_seqs=[2])
    assert texts(prompted) == ["two", "a"]
    assert prompted.system_nodes == [4]


def test_later_prompts_may_be_shadowed(prompted):
    prompt(prompted, "two")
    assert prompted.system_nodes == [2, 4]
    say(prompted, "x", surface_op=replace(3, 4), source_event_seqs=[3, 4])
    assert prompted.system_nodes == [2]
    assert texts(prompted) == ["one", "x"]


def test_a_head_that_is_no_prompt_is_not_protected(three):
    say(three, "x", surface_op=replace(0, 2), source_event_seqs=[0, 1, 2])
    assert texts(three) == ["x"]


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def answered():
    log = session()
    open_step(log)
    answer(log, *calls("c", "d"))
    for call_id in "cd":
        call(log, call_id)
        result(log, call_id, "a long result")
    close_step(log)
    return log


def rewrite(log, seq, to=None, **changes):
    data = {**log.events[seq].data, **changes}
    data["message"] = data["message"].replace(content=[text_block("short")], **data.pop("fields", {}))
    return log.append(
        "tool/result", data, surface_op=replace(seq, to), source_event_seqs=list(range(seq, (to or seq) + 1))
    )


def test_the_content_of_a_result_may_be_rewritten_after_its_step(answered):
    event = rewrite(answered, 4)
    assert texts(answered) == ["", "short", "a long result"]
    assert event.data["message"].tool_call_id == "c"


@pytest.mark.parametrize("change", [{"meta": 1}, {"turn": 2}, {"fields": {"id": "x"}}, {"fields": {"isError": True}}])
def test_nothing_but_the_content_of_a_result_may_be_rewritten(answered, change):
    message = refused(answered, lambda: rewrite(answered, 4, **change))
    assert message == "tool/result surface replacement may change only content"


def test_a_result_replaces_exactly_one_result(answered):
    log = answered
    say(log, "between")
    data = {**PLACE, "message": tool_message("c", [], is_error=False, id="r-c")}

    def put(*seqs):
        log.append("tool/result", data, surface_op=replace(seqs[0], seqs[-1]), source_event_seqs=list(seqs))

    assert refused(log, lambda: put(4, 6)) == "tool/result surface replacement must rewrite exactly one current node"
    assert refused(log, lambda: put(2)) == "tool/result surface replacement must target a current tool/result"
    assert refused(log, lambda: put(8)) == "tool/result surface replacement must target a current tool/result"


def test_a_rewrite_of_a_result_needs_an_open_turn(answered):
    end_turn(answered)
    with pytest.raises(SessionError, match="outside a turn"):
        rewrite(answered, 4)
