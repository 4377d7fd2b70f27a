"""Which part of a history a summary may stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nbagent.session import Session
from nbagent.session.compaction import compactable, older_than_last_turn
from nbagent.testing import LogBuilder

from .logs import answer, calls, close_step, end_turn, open_step, say, session


def session_of(log: LogBuilder) -> Session:
    return Session("s1", log.events)


def types(session: Session, nodes: list[int]) -> list[str]:
    return [session.events[seq].type for seq in nodes]


def two_turns() -> LogBuilder:
    log = LogBuilder().begin("How many?", system="Be brief.").calls(("c1", "count", {}), ("c2", "count", {}))
    return log.result("c1", "12").result("c2", "13").answers("25").end().begin("And now?").answers("26").end()


def test_the_system_prompt_is_never_part_of_it():
    session = session_of(two_turns())
    whole = compactable(session, len(session.events) - 1)
    assert session.events[session.surface[0]].type == "system/message"
    assert whole == session.surface[1:]


def test_a_cut_between_a_call_and_its_result_moves_before_the_call():
    session = session_of(two_turns())
    first_result, second_result = (event.seq for event in session.events if event.type == "tool/result")
    assert types(session, compactable(session, first_result)) == ["user/message"]
    assert types(session, compactable(session, second_result)) == [
        "user/message",
        "assistant/message",
        "tool/result",
        "tool/result",
    ]


def test_a_call_that_never_got_a_result_in_a_closed_step_holds_nothing_back():
    log = session()
    open_step(log)
    say(log, "a")
    answer(log, *calls("c1"))
    assert compactable(log, len(log.events) - 1) == [2]
    close_step(log)
    end_turn(log)
    say(log, "b")
    assert compactable(log, len(log.events) - 1) == log.surface


def test_by_default_everything_before_the_latest_turn_is_covered():
    session = session_of(two_turns())
    nodes = compactable(session, older_than_last_turn(session))
    assert session.events[nodes[-1]].data["message"].text == "25"


def test_with_one_turn_all_of_it_is_covered():
    session = session_of(LogBuilder().begin("hi", system="Be brief.").answers("hello").end())
    assert compactable(session, older_than_last_turn(session)) == session.surface[1:]


def test_nothing_of_an_empty_log_is_covered():
    session = Session("s1")
    assert compactable(session, older_than_last_turn(session)) == []


@given(st.data())
def test_wherever_the_cut_is_asked_for_calls_and_results_stay_together(data):
    log = LogBuilder()
    for turn in range(data.draw(st.integers(1, 4))):
        log.begin(f"turn {turn}", system="Be brief." if turn == 0 else None)
        for step in range(data.draw(st.integers(0, 3))):
            ids = [f"{turn}-{step}-{call}" for call in range(data.draw(st.integers(1, 3)))]
            log.calls(*((call, "count", {}) for call in ids))
            for call in ids:
                log.result(call, "1")
        log.answers("done").end()
    session = session_of(log)
    upto = data.draw(st.integers(0, len(session.events) - 1))
    nodes = compactable(session, upto)
    rest = [seq for seq in session.surface if seq not in nodes]
    for part in (nodes, rest):
        events = [session.events[seq] for seq in part]
        messages = [event.data["message"] for event in events if event.type != "user/message"]
        asked = [call["id"] for message in messages for call in message.tool_calls]
        answered = [message.tool_call_id for message in messages if message.tool_call_id is not None]
        assert asked == answered
    assert nodes == session.surface[1 : len(nodes) + 1]
    assert all(seq <= upto for seq in nodes)
