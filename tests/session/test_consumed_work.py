"""Which turn accounts for the work that was asked for, and whether some of it was dropped."""

from __future__ import annotations

import pytest

from nbagent.session.consumed_work import ConsumedWork, fold_consumed_work
from nbagent.types.messages import user_message

from .logs import close_step, end_turn, open_step, session


@pytest.fixture
def log():
    return session()


def put(log, id="a", **more):
    return log.append("agent/inbox/spliced", {**SPLICE, "inserted": [user_message("x", id=id)], **more})


def claim(log):
    return log.append("agent/inbox/spliced", {**SPLICE, "removedCount": 1})


def cancel(log):
    return log.append("agent/inbox/spliced", {**SPLICE, "removedCount": 1, "outcome": "canceled"})


SPLICE = {"target": "next-turn", "start": 0, "inserted": []}


def worked(log, turn=1):
    open_step(log, turn)
    close_step(log, turn)
    end_turn(log, turn)
    return log.events[-1]


def claimed(log, kind, turn=1):
    log.append("turn/start", {"turn": turn})
    claim(log)
    end_turn(log, turn, kind)
    return log.events[-1]


def folded(log):
    return fold_consumed_work(log.events)


def test_an_empty_log_has_no_end_and_dropped_nothing(log):
    assert folded(log) == ConsumedWork(None, dropped_unrun=False)


def test_the_latest_turn_that_entered_a_step_accounts_for_work(log):
    first = worked(log)
    assert folded(log).end is first
    second = worked(log, 2)
    assert folded(log).end is second


def test_a_turn_that_is_open_accounts_for_nothing_yet(log):
    first = worked(log)
    open_step(log, 2)
    assert folded(log).end is first


@pytest.mark.parametrize("kind", ["error", "aborted", "blocked", "interrupted"])
def test_a_turn_that_claimed_input_and_failed_accounts_for_it_without_a_step(log, kind):
    put(log)
    assert folded(log).end is None
    end = claimed(log, kind)
    assert folded(log).end is end


def test_a_turn_that_claimed_input_and_completed_without_a_step_does_not(log):
    first = worked(log)
    put(log)
    claimed(log, "completed", 2)
    assert folded(log).end is first


def test_a_turn_that_claimed_nothing_and_failed_does_not(log):
    log.append("turn/start", {"turn": 1})
    end_turn(log, kind="aborted")
    assert folded(log) == ConsumedWork(None, dropped_unrun=False)


def test_a_claim_of_an_earlier_turn_is_not_one_of_the_next(log):
    put(log)
    claimed(log, "completed")
    log.append("turn/start", {"turn": 2})
    end_turn(log, 2, "error")
    assert folded(log).end is None


def test_input_that_was_cancelled_with_nothing_put_in_after_it_was_dropped(log):
    put(log)
    assert not folded(log).dropped_unrun
    cancel(log)
    assert folded(log).dropped_unrun
    put(log, "b")
    assert not folded(log).dropped_unrun


def test_a_replacement_drops_nothing(log):
    put(log)
    put(log, "b", removedCount=1, outcome="canceled")
    assert not folded(log).dropped_unrun


def test_a_later_turn_with_work_settles_what_was_dropped_before(log):
    put(log)
    cancel(log)
    log.append("turn/start", {"turn": 1})
    end_turn(log)
    assert folded(log).dropped_unrun
    worked(log, 2)
    assert not folded(log).dropped_unrun


def test_what_was_cancelled_while_a_turn_ran_is_not_settled_by_its_end(log):
    put(log)
    put(log, "b")
    log.append("turn/start", {"turn": 1})
    claim(log)
    cancel(log)
    end_turn(log, kind="aborted")
    assert folded(log) == ConsumedWork(log.events[-1], dropped_unrun=True)
