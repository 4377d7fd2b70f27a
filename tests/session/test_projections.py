"""States that are folded from the log, and when they are told."""

from __future__ import annotations

import gc
import logging
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.agent.inbox import Inbox
from nbagent.errors import SessionError
from nbagent.session import ProjectionRegistry, ProjectionUnit, Session
from nbagent.session.projections import INBOX, TURN_BOUNDARY, TURNS
from nbagent.types.messages import assistant_message, text_block, user_message

from .logs import close_step, end_turn, open_step, say, session

COUNT = ProjectionUnit("count", 1, lambda _header: 0, lambda state, _event: state + 1)
USERS = ProjectionUnit(
    "users",
    1,
    lambda header: (header.id,),
    lambda state, event: (*state, event.data.text) if event.type == "user/message" else state,
    lambda state: list(state),
)


@pytest.fixture
def projections():
    return ProjectionRegistry()


def test_a_unit_that_comes_late_folds_what_is_there_and_keeps_up(projections):
    log = session()
    say(log, "a")
    projections.register(COUNT)
    assert projections.state(log, "count") == 1
    say(log, "b")
    assert projections.state(log, "count") == 2


def test_an_attached_session_is_followed_and_a_detached_one_catches_up_when_it_is_read(projections):
    log = session()
    projections.register(USERS)
    heard = []
    projections.attach(log)
    projections.attach(log)
    projections.subscribe(log, "users", heard.append)
    say(log, "a")
    assert heard == [("s", "a")]
    projections.detach(log)
    projections.detach(log)
    say(log, "b")
    assert heard == [("s", "a")]
    assert projections.state(log, "users") == ("s", "a", "b")


def test_an_event_of_no_interest_is_not_told(projections):
    log = session()
    projections.register(USERS)
    projections.attach(log)
    heard = []
    stop = projections.subscribe(log, "users", heard.append)
    log.append("turn/start", {"turn": 1})
    assert heard == []
    say(log, "a")
    stop()
    stop()
    say(log, "b")
    assert heard == [("s", "a")]


def test_an_observer_of_the_session_reads_the_state_after_its_event(projections):
    log, seen = session(), []
    projections.register(COUNT)
    log.subscribe(lambda event: seen.append((event.seq, projections.state(log, "count"))))
    projections.attach(log)
    say(log, "a")
    say(log, "b")
    assert seen == [(0, 1), (1, 2)]


def test_a_snapshot_is_one_cut_with_the_views(projections):
    log = session()
    projections.register(COUNT)
    projections.register(USERS)
    assert projections.snapshot(log) == {"asOfSeq": -1, "values": {"count": 0, "users": ["s"]}}
    say(log, "a")
    assert projections.snapshot(log, ["users", "unknown"]) == {"asOfSeq": 0, "values": {"users": ["s", "a"]}}


def test_a_key_that_is_not_registered_cannot_be_read(projections):
    with pytest.raises(SessionError) as failure:
        projections.state(session(), "inbox")
    assert failure.value.code == "PROJECTION_NOT_REGISTERED"
    assert failure.value.message == 'agent "s" cannot read inbox state: its projection registration is not active'


def test_a_unit_stays_until_everybody_who_registered_it_is_done(projections):
    log = session()
    first, second = projections.register(COUNT), projections.register(COUNT)
    first()
    first()
    assert projections.state(log, "count") == 0
    second()
    with pytest.raises(SessionError):
        projections.state(log, "count")


def test_an_old_registration_does_not_end_a_new_one(projections):
    old = projections.register(COUNT)
    old()
    projections.register(COUNT)
    old()
    assert projections.state(session(), "count") == 0


def test_another_version_of_a_state_is_refused(projections):
    projections.register(COUNT)
    with pytest.raises(SessionError) as failure:
        projections.register(ProjectionUnit("count", 2, COUNT.init, COUNT.apply))
    assert failure.value.code == "PROJECTION_VERSION"


def test_states_of_sessions_are_apart_and_go_with_them(projections):
    one, other = session(), session()
    projections.register(COUNT)
    say(one, "a")
    assert (projections.state(one, "count"), projections.state(other, "count")) == (1, 0)
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None


def test_a_fold_that_fails_is_told_to_the_reader_and_not_to_who_appends(projections, caplog):
    def fail(_state, _event):
        raise RuntimeError("cannot fold")

    log = session()
    projections.register(ProjectionUnit("broken", 1, lambda _: None, fail))
    projections.register(COUNT)
    projections.attach(log)
    with caplog.at_level(logging.ERROR):
        say(log, "a")
    assert "broken" in caplog.text
    assert projections.state(log, "count") == 1
    with pytest.raises(SessionError) as failure:
        projections.state(log, "broken")
    assert failure.value.code == "PROJECTION_FAILED"
    assert str(failure.value.__cause__) == "cannot fold"


# -- the inbox ---------------------------------------------------------------------------------------------------------


def splice(log, **data):
    return log.append("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [], **data})


def inbox_of(log):
    made = ProjectionRegistry()
    made.register(INBOX)
    return made.state(log, "inbox")


def test_the_inbox_is_empty_at_first_and_keeps_the_messages_of_the_log():
    log = session()
    assert {target: list(waiting) for target, waiting in inbox_of(log).items()} == {"next-turn": [], "next-step": []}
    event = splice(log, inserted=[user_message("a", id="a"), user_message("b", id="b")])
    assert inbox_of(log)["next-turn"][1] is event.data["inserted"][1]
    splice(log, target="next-step", inserted=[user_message("c", id="c")])
    splice(log, start=1, removedCount=1, inserted=[user_message("d", id="d")])
    assert {key: [m.id for m in waiting] for key, waiting in inbox_of(log).items()} == {
        "next-turn": ["a", "d"],
        "next-step": ["c"],
    }


BAD_SPLICES = [{"removedCount": 1}, {"start": 1}, {"removedCount": -1}, {"removedCount": "1"}, {"target": "later"}]


@pytest.mark.parametrize("bad", BAD_SPLICES)
def test_a_stored_splice_that_does_not_fit_is_named_by_its_seq(bad):
    log = session()
    splice(log, **bad)
    with pytest.raises(SessionError) as failure:
        inbox_of(log)
    assert failure.value.message == "invalid persisted inbox splice at session seq 0"
    assert str(failure.value.__cause__) == "invalid inbox splice"


def test_a_stored_message_twice_is_named_by_its_seq():
    log = session()
    splice(log, inserted=[user_message("a", id="a")])
    splice(log, target="next-step", inserted=[user_message("a", id="a")])
    with pytest.raises(SessionError) as failure:
        inbox_of(log)
    assert failure.value.message == "invalid persisted inbox splice at session seq 1"
    assert str(failure.value.__cause__) == 'message "a" is already pending'


targets = st.sampled_from(["next-turn", "next-step"])
places = st.integers(-4, 6) | st.sampled_from([float("inf"), float("-inf"), float("nan"), 1.9, -0.5])
moves = st.lists(st.tuples(targets, places, places, st.integers(0, 2)), max_size=15)


@settings(deadline=None)
@given(moves)
def test_random_splices_replayed_from_the_log_give_the_live_lists_at_every_prefix(moves):
    log, projections = session(), ProjectionRegistry()
    projections.register(INBOX)
    projections.attach(log)
    inbox = Inbox(log, lambda: projections.state(log, "inbox"), lambda *_: None)
    states, expected = [], {"next-turn": [], "next-step": []}
    log.subscribe(lambda _: states.append(projections.state(log, "inbox")))
    for number, (target, start, count, size) in enumerate(moves):
        inserted = [user_message("x", id=f"{number}-{n}") for n in range(size)]
        before = len(log.events)
        removed = inbox.splice(target, start, count, inserted)
        if len(log.events) > before:
            data = log.events[-1].data
            at, length = data["start"], data.get("removedCount", 0)
            assert removed == expected[target][at : at + length]
            expected[target][at : at + length] = inserted
        else:
            assert removed == inserted == []
        assert {"next-turn": inbox.next_turn, "next-step": inbox.next_step} == expected
    replayed = Session("s")
    for event, state in zip(log.events, states, strict=True):
        replayed.restore(event.to_json())
        assert inbox_of(replayed) == state


# -- turns -------------------------------------------------------------------------------------------------------------


def test_the_turn_boundary_says_where_the_log_stands(projections):
    projections.register(TURN_BOUNDARY)
    log = session()

    def now():
        return tuple(projections.state(log, "turnBoundary").values())

    assert list(projections.state(log, "turnBoundary")) == [
        "openTurnStartSeq",
        "lastStepStartSeq",
        "lastStepBoundary",
        "lastTurn",
    ]
    assert now() == (None, None, None, 0)
    say(log, "a")
    open_step(log)
    assert now() == (1, 2, 2, 1)
    close_step(log)
    assert now() == (1, 2, 3, 1)
    end_turn(log)
    assert now() == (None, 2, 3, 1)


def test_turns_are_listed_with_their_prompts_how_they_ended_and_what_they_used(projections):
    projections.register(TURNS)
    log = session()
    say(log, "between", id="m0")
    log.append("turn/start", {"turn": 1})
    log.append("step/start", {"turn": 1, "step": 1})
    say(log, "a", id="m1")
    for usage in ({"inputTokens": 3, "outputTokens": 1}, {"inputTokens": 4, "reasoningTokens": 2}):
        message = assistant_message([text_block("x")], provider="p", model="m")
        data = {"turn": 1, "step": 1, "message": message, "usage": usage}
        log.append("assistant/message", data, surface_op="append")
    close_step(log)
    (turn,) = projections.state(log, "turns")
    assert (turn["turn"], turn["startSeq"], turn["endSeq"], turn["reason"]) == (1, 1, None, None)
    assert list(turn["prompts"]) == ["m1"]
    assert turn["usage"] == {"inputTokens": 7, "outputTokens": 1, "reasoningTokens": 2}
    end_turn(log)
    say(log, "after", id="m2")
    (turn,) = projections.state(log, "turns")
    assert (turn["endSeq"], turn["reason"], list(turn["prompts"])) == (7, {"kind": "completed"}, ["m1"])
