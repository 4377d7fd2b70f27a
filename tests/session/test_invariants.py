"""Turns and steps are opened, numbered and closed in order, and results follow their calls."""

from __future__ import annotations

import pytest

from nbagent.errors import InvariantError, SessionError
from nbagent.types.messages import text_block, tool_message, user_message

from .logs import answer, call, calls, close_step, end_turn, frame, header, open_step, prompt, result, say, session


def broken(log, call):
    before = len(log.events)
    with pytest.raises(InvariantError) as failure:
        call()
    assert failure.value.code == "INVARIANT_VIOLATED"
    assert len(log.events) == before
    return failure.value.message.removeprefix('invariant violated by "nbagent": ')


@pytest.fixture
def log():
    return session()


def start(log, turn):
    return lambda: log.append("turn/start", {"turn": turn})


def step(log, step, turn=1, kind="start"):
    return lambda: log.append(f"step/{kind}", {"turn": turn, "step": step})


def test_turns_count_from_one_and_follow_each_other(log):
    assert broken(log, start(log, 2)) == "turn/start 2 after turn 0"
    assert broken(log, start(log, 0)) == "turn/start 0 after turn 0"
    start(log, 1)()
    assert broken(log, start(log, 2)) == "turn/start 2 while turn 1 is still open"
    end_turn(log, 1)
    assert broken(log, start(log, 1)) == "turn/start 1 after turn 1"
    start(log, 2)()


def test_a_turn_ends_once_and_without_an_open_step(log):
    assert broken(log, lambda: end_turn(log, 1)) == "turn/end 1 without its open turn"
    open_step(log)
    assert broken(log, lambda: end_turn(log, 1)) == "turn/end 1 while step 1 is still open"
    close_step(log)
    assert broken(log, lambda: end_turn(log, 2)) == "turn/end 2 without its open turn"
    end_turn(log, 1)
    assert broken(log, lambda: end_turn(log, 1)) == "turn/end 1 without its open turn"


def test_steps_count_from_one_in_each_turn(log):
    assert broken(log, step(log, 1)) == "step/start 1 outside its turn 1"
    start(log, 1)()
    assert broken(log, step(log, 2)) == "step/start 2 after step 0"
    assert broken(log, step(log, 1, turn=2)) == "step/start 1 outside its turn 2"
    step(log, 1)()
    assert broken(log, step(log, 2)) == "step/start 2 while step 1 is still open"
    assert broken(log, step(log, 2, kind="end")) == "step/end 2 without its open step"
    step(log, 1, kind="end")()
    assert broken(log, step(log, 1, kind="end")) == "step/end 1 without its open step"
    assert broken(log, step(log, 1)) == "step/start 1 after step 1"
    step(log, 2)()
    step(log, 2, kind="end")()
    end_turn(log)
    start(log, 2)()
    step(log, 1, turn=2)()


def test_what_a_step_says_stands_in_it(log):
    outside = [
        lambda: prompt(log, "p"),
        lambda: answer(log, "a"),
        lambda: call(log, "c"),
        lambda: frame(log),
        lambda: result(log, "c"),
    ]
    for append in outside:
        assert broken(log, append).endswith("outside its step 1/1")
    start(log, 1)()
    for append in outside:
        broken(log, append)
    step(log, 1)()
    assert broken(log, lambda: prompt(log, "p", {"turn": 1, "step": 2})) == "system/message outside its step 1/2"
    close_step(log)
    for append in outside:
        broken(log, append)


def test_requests_stand_in_a_turn_and_users_and_inbox_anywhere(log):
    assert broken(log, lambda: header(log)) == "request/header outside a turn"
    context = {"provider": "p", "model": "m"}
    assert broken(log, lambda: log.append("request/context", context)) == "request/context outside a turn"
    splice = {"target": "next-turn", "start": 0, "inserted": [user_message("x")]}
    for _ in range(2):
        say(log, "between turns")
        log.append("agent/inbox/spliced", splice)
        if len(log.events) == 2:
            start(log, 1)()
    header(log)
    log.append("request/context", context)


def test_a_result_follows_its_call_in_the_same_step(log):
    open_step(log)
    answer(log, *calls("c", "d"))
    assert broken(log, lambda: result(log, "c")) == 'tool/result "c" without its tool/call in the step'
    call(log, "c")
    result(log, "c")
    call(log, "d")
    close_step(log)
    step(log, 2)()
    assert broken(log, lambda: result(log, "d", place={"turn": 1, "step": 2})).startswith('tool/result "d"')


def test_only_a_call_that_never_started_may_be_answered_without_it(log):
    open_step(log)
    message = tool_message("c", [text_block("x")], is_error=True)
    data = {"turn": 1, "step": 1, "message": message}

    def put(code):
        return log.append("tool/result", {**data, "error": {"name": "E", "code": code}}, surface_op="append")

    broken(log, lambda: put("TOOL_OUTCOME_UNKNOWN"))
    put("TOOL_NOT_STARTED")


SHAPES = [
    ("turn/start", {}),
    ("turn/start", {"turn": "1"}),
    ("turn/start", {"turn": True}),
    ("turn/end", {"turn": 1}),
    ("turn/end", {"turn": 1, "reason": {}}),
    ("turn/end", {"turn": 1, "reason": "completed"}),
    ("step/start", {"turn": 1}),
    ("tool/call", {"turn": 1, "step": 1, "callId": "", "name": "f", "arguments": "{}"}),
    ("tool/call", {"turn": 1, "step": 1, "callId": "c", "name": "f", "arguments": {}}),
    ("assistant/frame", {"turn": 1, "step": 1, "attempt": 1, "index": 0, "chunks": {}}),
    ("assistant/frame", {"turn": 1, "step": 1, "attempt": 1, "index": 0, "chunks": [{}]}),
    ("request/header", {"header": {"config": {"provider": "p"}}, "reason": "initial"}),
    ("request/header", {"header": {"config": {"provider": "p", "model": ""}}, "reason": "initial"}),
    ("request/header", {"header": {"config": {"provider": "p", "model": "m"}, "tools": []}, "reason": "initial"}),
    ("request/header", {"header": {"config": {"provider": "p", "model": "m"}, "system": "s"}, "reason": "initial"}),
    ("request/header", {"header": {"config": {"provider": "p", "model": "m"}}, "reason": "fallback"}),
    (
        "request/header",
        {
            "header": {"config": {"provider": "p", "model": "m"}, "adapterDefaults": {"maxTokens": True}},
            "reason": "initial",
        },
    ),
    (
        "request/header",
        {"header": {"config": {"provider": "p", "model": "m", "reasoningEffort": ""}}, "reason": "initial"},
    ),
    ("request/context", {"provider": "p"}),
    ("agent/inbox/spliced", {"target": "next-turn", "start": -1, "inserted": []}),
    ("agent/inbox/spliced", {"target": "next-turn", "start": 0}),
    ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [{"id": "m", "role": "system"}]}),
]


@pytest.mark.parametrize(("type", "data"), SHAPES)
def test_data_of_a_wrong_shape_is_refused(log, type, data):
    open_step(log)
    with pytest.raises(SessionError) as failure:
        log.append(type, data)
    assert failure.value.code == "INVALID_EVENT", failure.value
    assert failure.value.message.startswith(f'session event "{type}" ')


MESSAGE = {"id": "m", "role": "user", "content": [{"type": "text", "text": "x"}], "source": {"kind": "user"}}


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"id": 1},
        {"role": "assistant"},
        {"role": None},
        {"content": "x"},
        {"content": [{}]},
        {"content": ["x"]},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "tool-addition", "toolName": "f"}]},
        {"source": {}},
        {"source": {"kind": ""}},
        {"source": "user"},
    ],
)
def test_a_message_of_a_wrong_shape_is_refused(log, change):
    log.append("user/message", MESSAGE, surface_op="append")
    with pytest.raises(SessionError) as failure:
        log.append("user/message", {**MESSAGE, **change}, surface_op="append")
    assert failure.value.code == "INVALID_EVENT"


def test_an_answer_names_its_model_and_a_result_its_call(log):
    open_step(log)
    content = {"id": "m", "content": []}
    wrong = [
        ("assistant/message", {**content, "role": "assistant", "source": {"kind": "user"}}),
        ("assistant/message", {**content, "role": "assistant", "source": {"kind": "model", "provider": "p"}}),
        ("tool/result", {**content, "role": "tool", "source": {"kind": "tool", "callId": "c"}}),
        ("tool/result", {**content, "role": "tool", "source": {"kind": "tool", "callId": "c"}, "toolCallId": "d"}),
    ]
    call(log, "c")
    for type, message in wrong:
        with pytest.raises(SessionError) as failure:
            log.append(type, {"turn": 1, "step": 1, "message": message}, surface_op="append")
        assert failure.value.code == "INVALID_EVENT"


def test_an_error_of_a_result_has_name_and_code_and_an_error_message(log):
    open_step(log)
    call(log, "c")
    for is_error, error in ((False, {"name": "E", "code": "C"}), (True, {"name": "E"}), (True, "E")):
        data = {"turn": 1, "step": 1, "message": tool_message("c", [], is_error=is_error), "error": error}
        with pytest.raises(SessionError) as failure:
            log.append("tool/result", data, surface_op="append")
        assert failure.value.code == "INVALID_EVENT"
