"""States that are folded from the log, and when they are told."""

from __future__ import annotations

import gc
import logging
import weakref

import pytest

from nbagent.errors import SessionError
from nbagent.session import ProjectionRegistry, ProjectionUnit, Session
from nbagent.session.projection_unit import Fold

from .logs import say, session

COUNT = ProjectionUnit("count", 1, lambda _header, _inherited: 0, lambda state, _event: state + 1)
USERS = ProjectionUnit(
    "users",
    1,
    lambda header, _inherited: (header.id,),
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
    assert heard == [["s", "a"]]
    projections.detach(log)
    projections.detach(log)
    say(log, "b")
    assert heard == [["s", "a"]]
    assert projections.state(log, "users") == ("s", "a", "b")
    assert heard == [["s", "a"], ["s", "a", "b"]]


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
    assert heard == [["s", "a"]]


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


def test_a_key_that_is_not_registered_is_absent(projections):
    log = session()
    assert projections.state(log, "inbox") is None
    assert projections.snapshot(log, ["inbox"]) == {"asOfSeq": -1, "values": {}}
    with pytest.raises(SessionError) as failure:
        projections.subscribe(log, "inbox", print)
    assert failure.value.code == "PROJECTION_NOT_REGISTERED"


def test_a_unit_stays_until_everybody_who_registered_it_is_done(projections):
    log = session()
    first, second = projections.register(COUNT), projections.register(COUNT)
    first()
    first()
    assert projections.state(log, "count") == 0
    second()
    assert projections.state(log, "count") is None


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
    projections.register(ProjectionUnit("broken", 1, lambda *_: None, fail))
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


def test_a_fold_starts_with_the_header_and_the_count_of_inherited_events(projections):
    parent = session()
    say(parent, "a")
    branch = Session("branch", list(parent.events), inherited=True)
    projections.register(ProjectionUnit("start", 1, lambda header, count: [header.id, count], lambda state, _: state))
    assert projections.state(branch, "start") == ["branch", 1]
    assert projections.state(parent, "start") == ["s", 0]


def test_an_event_is_never_applied_twice_and_none_is_left_out():
    log = session()
    events = [say(log, text) for text in "abc"]
    fold = Fold(COUNT, 0)
    fold.advance(events[0])
    fold.advance(events[0])
    assert (fold.state, fold.next_seq) == (1, 1)
    with pytest.raises(SessionError, match="cannot advance across missing seq 1") as failure:
        fold.advance(events[2])
    assert failure.value.code == "PROJECTION_FAILED"
    assert (fold.state, fold.next_seq) == (1, 1)


# -- views -------------------------------------------------------------------------------------------------------------

PARITY = ("even", "odd")
ODD = ProjectionUnit("odd", 1, COUNT.init, COUNT.apply, lambda count: PARITY[count // 2 % 2])


def test_a_view_that_stays_the_same_object_is_not_told_although_the_state_changed(projections):
    log = session()
    projections.register(ODD)
    projections.attach(log)
    heard = []
    projections.subscribe(log, "odd", heard.append)
    for text in "abcdefg":
        say(log, text)
    assert heard == ["odd", "even", "odd"]


def test_every_event_is_told_by_itself_when_several_are_caught_up_with(projections):
    log = session()
    projections.register(COUNT)
    heard = []
    projections.subscribe(log, "count", heard.append)
    for text in "abc":
        say(log, text)
    assert heard == []
    assert projections.state(log, "count") == 3
    assert heard == [1, 2, 3]


def test_an_observer_that_fails_is_logged_and_the_others_hear(projections, caplog):
    def fail(_view):
        raise RuntimeError("cannot show")

    log, heard = session(), []
    projections.register(COUNT)
    projections.attach(log)
    projections.subscribe(log, "count", fail)
    projections.subscribe(log, "count", heard.append)
    with caplog.at_level(logging.ERROR):
        say(log, "a")
    assert "cannot show" in caplog.text
    assert heard == [1]


def refuse_two(view):
    if view == 2:
        raise ValueError("two is no count")


STRICT = ProjectionUnit("strict", 1, COUNT.init, COUNT.apply, view_schema=refuse_two)


def test_a_snapshot_is_checked_by_the_schema_of_the_view(projections, caplog):
    log, heard = session(), []
    projections.register(STRICT)
    projections.attach(log)
    projections.subscribe(log, "strict", heard.append)
    say(log, "a")
    assert projections.snapshot(log)["values"] == {"strict": 1}
    with caplog.at_level(logging.ERROR):
        say(log, "b")
    assert "two is no count" in caplog.text
    for read in (projections.snapshot, projections.cached_snapshot):
        with pytest.raises(SessionError, match='projection "strict" has an invalid view at session seq 1') as failure:
            read(log)
        assert failure.value.code == "PROJECTION_FAILED"
    say(log, "c")
    assert projections.snapshot(log)["values"] == {"strict": 3}
    assert heard == [1, 3]


def test_a_view_that_cannot_be_made_is_told_to_the_reader(projections, caplog):
    log = session()
    projections.register(ProjectionUnit("broken", 1, COUNT.init, COUNT.apply, lambda count: 1 // count))
    projections.attach(log)
    with pytest.raises(SessionError) as failure:
        projections.snapshot(log)
    assert isinstance(failure.value.__cause__, ZeroDivisionError)
    heard = []
    projections.subscribe(log, "broken", heard.append)
    with caplog.at_level(logging.ERROR):
        say(log, "a")
    assert heard == [1]


def test_a_cached_snapshot_folds_nothing_and_is_one_cut(projections):
    log = session()
    projections.register(COUNT)
    projections.register(USERS)
    assert projections.cached_snapshot(log) == {"asOfSeq": -1, "values": {}}
    say(log, "a")
    projections.snapshot(log)
    say(log, "b")
    assert projections.cached_snapshot(log) == {"asOfSeq": 0, "values": {"count": 1, "users": ["s", "a"]}}
    assert projections.state(log, "count") == 2
    assert projections.cached_snapshot(log) == {"asOfSeq": 1, "values": {"count": 2}}
    assert projections.snapshot(log) == {"asOfSeq": 1, "values": {"count": 2, "users": ["s", "a", "b"]}}
