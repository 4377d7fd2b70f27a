"""What an append takes, in which order it asks and tells, and what it leaves when it is refused."""

from __future__ import annotations

import logging

import pytest

from nbagent.errors import InvariantError, SessionError
from nbagent.hooks import Hooks
from nbagent.session import Session, SessionEvent, check_log
from nbagent.types.events import SessionHeader
from nbagent.types.messages import Message, user_message

from .logs import say, session


def refusal(call, code):
    with pytest.raises(SessionError) as refused:
        call()
    assert refused.value.code == code, refused.value
    return refused.value.message


def other(log, **data):
    return log.append("someone/else", data, ignorable=True)


def test_an_event_has_the_next_seq_the_time_of_the_clock_and_a_frozen_snapshot():
    log, mine = session(), {"list": [1]}
    event = log.append("someone/else", mine, ignorable=True)
    assert (event.seq, event.time, event.data) == (0, 1001, {"list": [1]})
    mine["list"].append(2)
    assert event.data == {"list": [1]}
    with pytest.raises(TypeError, match="frozen"):
        event.data["list"].append(3)
    with pytest.raises(TypeError, match="frozen"):
        event.seq = 5
    assert other(log).seq == 1
    assert log.events[0] is event


def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


def endless():
    value = []
    value.append(value)
    return value


BAD = [float("nan"), float("inf"), -0.0, {1}, object(), 2**64, "\ud800", (1,), {1: 1}, nested(200), endless()]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: type(bad).__name__)
def test_data_that_is_no_json_is_refused(bad):
    log = session()
    message = refusal(lambda: other(log, value=bad), "NOT_JSON")
    assert message.startswith('session event "someone/else" carries non-JSON-serializable data')
    assert len(log.events) == 0


def test_data_may_have_200_levels():
    log = session()
    assert other(log, value=nested(199)).data["value"] == nested(199)


@pytest.mark.parametrize("data", [None, [], "text", 1])
def test_data_is_an_object(data):
    refusal(lambda: session().append("someone/else", data, ignorable=True), "NOT_JSON")


def test_an_unknown_type_must_be_ignorable():
    log = session()
    refusal(lambda: log.append("someone/else", {}), "UNKNOWN_EVENT")
    assert other(log).to_json()["ignorable"] is True


def test_messages_are_the_same_object_from_the_caller_to_the_derivation():
    log, message = session(), user_message("hi")
    event = log.append("user/message", message, surface_op="append")
    assert event.data is message
    assert log.messages()[0] is message


def test_a_plain_mapping_becomes_one_message_that_is_shared():
    log = session()
    plain = {"id": "m", "role": "user", "content": [], "source": {"kind": "user"}}
    event = log.append("user/message", plain, surface_op="append")
    assert type(event.data) is Message
    assert log.messages()[0] is event.data


def test_a_derived_list_is_fresh_and_never_grows():
    log = session()
    say(log, "a")
    held = log.messages()
    say(log, "b")
    assert len(held) == 1
    held.clear()
    assert [message.text for message in log.messages()] == ["a", "b"]


def test_the_order_is_validate_store_commit_observe_notify():
    hooks, order = Hooks(), []
    log = session(hooks=hooks)
    hooks.on("session/validate", lambda p: order.append(("validate", len(p.session.events))))
    log.storage = lambda _: order.append(("store", len(log.events)))
    log.subscribe(lambda _: order.append(("observe", len(log.events))))
    hooks.on("session/event", lambda p: order.append(("notify", len(p.session.events))))
    event = other(log)
    assert order == [("validate", 0), ("store", 0), ("observe", 1), ("notify", 1)]
    assert SessionEvent(log, event).event is event


def test_what_a_validator_or_the_storage_raises_refuses_the_append_and_takes_no_seq():
    hooks = Hooks()
    log = session(hooks=hooks)
    told = []
    log.subscribe(told.append)

    def full(_event):
        raise OSError("disk full")

    log.storage = full
    with pytest.raises(OSError, match="disk full"):
        say(log, "a")
    log.storage = None

    def veto(_payload):
        raise ValueError("no")

    remove = hooks.on("session/validate", veto)
    with pytest.raises(ValueError, match="no"):
        say(log, "a")
    remove()
    assert (len(log.events), log.surface, log.messages(), told) == (0, [], [], [])
    assert say(log, "b").seq == 0


def test_an_observer_that_fails_is_logged_and_the_others_still_hear(caplog):
    hooks, heard = Hooks(), []
    log = session(hooks=hooks)

    def broken(_):
        raise RuntimeError("observer is broken")

    log.subscribe(broken)
    log.subscribe(lambda event: heard.append(event.seq))
    hooks.on("session/event", broken)
    hooks.on("session/event", lambda p: heard.append(p.event.seq))
    with caplog.at_level(logging.ERROR):
        other(log)
    assert heard == [0, 0]
    assert len([record for record in caplog.records if "failed" in record.getMessage()]) == 2


def test_who_unsubscribed_hears_no_more():
    log, heard = session(), []
    unsubscribe = log.subscribe(heard.append)
    other(log)
    unsubscribe()
    unsubscribe()
    other(log)
    assert len(heard) == 1


@pytest.mark.parametrize("moment", ["validate", "store", "observe", "notify"])
def test_nobody_appends_while_an_append_is_under_way(moment):
    hooks = Hooks()
    log = session(hooks=hooks)
    messages = []

    def intrude(_):
        messages.append(refusal(lambda: other(log), "REENTRANT_APPEND"))

    if moment == "store":
        log.storage = intrude
    elif moment == "observe":
        log.subscribe(intrude)
    else:
        hooks.on("session/validate" if moment == "validate" else "session/event", intrude)
    other(log)
    assert messages == ["session append cannot reenter while another append is being published"]
    assert len(log.events) == 1
    assert not log.publishing


def test_work_that_waits_for_a_publication_runs_when_it_has_unwound_and_may_append():
    log, ran = session(), []
    log.after_publication(lambda: ran.append("at once"))

    def observe(event):
        if event.seq == 0:
            log.after_publication(lambda: ran.append((log.publishing, len(log.events))))
            log.after_publication(lambda: ran.append(other(log).seq))
            assert ran == ["at once"]

    log.subscribe(observe)
    other(log)
    assert ran == ["at once", (False, 1), 1]


def test_a_refused_append_runs_what_waited_for_it_too():
    hooks, ran = Hooks(), []
    log = session(hooks=hooks)

    def veto(_payload):
        log.after_publication(lambda: ran.append(len(log.events)))
        raise ValueError("no")

    hooks.on("session/validate", veto)
    with pytest.raises(ValueError, match="no"):
        other(log)
    assert ran == [0]


# -- seeds -------------------------------------------------------------------------------------------------------------


def end_seeds(log):
    return [event.seq for event in log.events if event.type == "session/end-seed"]


def test_a_seed_is_marked_once_and_a_fresh_session_is_not():
    fresh = Session("s")
    assert end_seeds(fresh) == []
    say(fresh, "a")
    seeded = Session("s", fresh.events)
    assert (end_seeds(seeded), seeded.first_live_seq) == ([1], 1)
    again = Session("s", [event.to_json() for event in seeded.events])
    assert (end_seeds(again), again.first_live_seq) == ([1], 2)
    say(again, "b")
    assert end_seeds(Session("s", again.events)) == [1, 3]
    assert end_seeds(Session("s", [])) == [0]


def test_a_seed_is_contiguous():
    first, second = other(session()).to_json(), {**other(session()).to_json(), "seq": 5}
    assert refusal(lambda: Session("s", [first, second]), "INVALID_SEED") == (
        "seed event at index 1 has seq 5 (expected 1); seed must be contiguous from 0"
    )


def test_an_unknown_type_in_a_seed_is_refused_unless_it_may_be_skipped():
    unknown = {"type": "someone/else", "seq": 0, "time": 1, "data": {}}
    assert '"someone/else"' in refusal(lambda: Session("s", [unknown]), "UNKNOWN_EVENT")
    log = Session("s", [{**unknown, "ignorable": True}])
    assert (log.surface, log.messages(), log.content_generation) == ([], [], 0)


@pytest.mark.parametrize(
    "change",
    [
        {"seq": -1},
        {"seq": 0.0},
        {"seq": True},
        {"time": "now"},
        {"time": None},
        {"type": 1},
        {"data": None},
        {"extra": 1},
        {"ignorable": False},
        {"ignorable": 1},
        {"surfaceOp": "append"},
        {"sourceEventSeqs": [0]},
    ],
)
def test_a_seed_event_has_nothing_wrong_and_nothing_more(change):
    event = {"type": "someone/else", "seq": 0, "time": 1, "data": {}, "ignorable": True}
    Session("s", [event])
    with pytest.raises(SessionError):
        Session("s", [{**event, **change}])


def test_a_seed_is_told_to_nobody_and_what_it_inherits_is_counted():
    log = Session("s")
    say(log, "a")
    inherited = {"type": "session/end-seed", "seq": 1, "time": 1, "data": {"inherited": True}}
    branch = Session("s", [*log.events, inherited])
    assert branch.inherited_event_count == 1
    assert end_seeds(branch) == [1]


def test_the_log_can_only_be_read():
    log = session()
    say(log, "a")
    say(log, "b")
    assert [event.seq for event in log.events[1:]] == [1]
    assert [event.seq for event in reversed(log.events)] == [1, 0]
    assert not hasattr(log.events, "append")
    with pytest.raises(TypeError):
        log.events[0] = None


def test_the_id_is_that_of_the_header():
    header = SessionHeader.new("abc", 1, cwd="/home")
    log = Session(header)
    assert (log.id, log.header) == ("abc", header)


def test_checking_a_log_says_what_is_wrong_with_it():
    log = session()
    log.append("turn/start", {"turn": 1})
    check_log(log.events)
    wrong = {"type": "turn/start", "seq": 1, "time": 1, "data": {"turn": 2}}
    with pytest.raises(
        InvariantError, match='invariant violated by "nbagent": turn/start 2 while turn 1 is still open'
    ):
        check_log([*log.events, wrong])


def test_the_end_of_a_seed_is_marked_by_the_constructor_alone():
    session = Session("s1")
    with pytest.raises(SessionError, match="only a session's constructor"):
        session.append("session/end-seed", {})
    assert len(session.events) == 0
