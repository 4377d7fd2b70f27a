"""The folds that every runtime keeps: the inbox, where the log stands in turns, and the turns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.agent.inbox import Inbox
from nbagent.errors import SessionError
from nbagent.session import ProjectionRegistry, Session
from nbagent.session.projections import INBOX, TURN_BOUNDARY, TURNS
from nbagent.types.messages import assistant_message, text_block, user_message

from .logs import close_step, end_turn, open_step, say, session


@pytest.fixture
def projections():
    return ProjectionRegistry()


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
