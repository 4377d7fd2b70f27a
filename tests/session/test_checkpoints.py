"""States of projections that are kept beside the log, and logs that are read without a session."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.errors import SessionError
from nbagent.session import ProjectionRegistry, ProjectionUnit, Session
from nbagent.session.projections import INBOX, TURN_BOUNDARY, TURNS
from nbagent.types.messages import user_message

from .logs import close_step, end_turn, legal_logs, open_step, say, session

COUNT = ProjectionUnit("count", 1, lambda _header, inherited: -inherited, lambda state, _event: state + 1)


def registry(*units):
    made = ProjectionRegistry()
    for unit in units or (INBOX, TURN_BOUNDARY, TURNS):
        made.register(unit)
    return made


@pytest.fixture
def log():
    made = session()
    say(made, "a")
    made.append("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [user_message("b", id="b")]})
    open_step(made)
    return made


def test_a_checkpoint_is_json_that_shares_nothing_with_the_states(log):
    projections = registry()
    checkpoint = projections.checkpoint(log)
    assert json.loads(json.dumps(checkpoint)) == checkpoint
    assert {key: (row["ver"], row["seq"]) for key, row in checkpoint.items()} == {
        "inbox": (1, 3),
        "turnBoundary": (2, 3),
        "turns": (1, 3),
    }
    checkpoint["inbox"]["val"]["next-turn"].clear()
    checkpoint["turns"]["val"][0]["usage"]["inputTokens"] = 1
    assert [message.id for message in projections.state(log, "inbox")["next-turn"]] == ["b"]
    assert projections.state(log, "turns")[0]["usage"] == {}


@settings(max_examples=60, deadline=None)
@given(legal_logs(), st.data())
def test_a_log_restored_from_a_checkpoint_at_any_seq_has_the_live_states(events, data):
    log, projections = Session("s"), registry()
    checkpoints = [json.loads(json.dumps(projections.checkpoint(log)))]
    for event in events:
        log.restore(event)
        checkpoints.append(json.loads(json.dumps(projections.checkpoint(log))))
    rows = {
        key: checkpoints[data.draw(st.integers(0, len(events)), label=key)][key]
        for key in ("inbox", "turnBoundary", "turns")
    }
    floor = projections.restore_floor(rows)
    assert floor == max(0, min(row["seq"] for row in rows.values()))
    base = data.draw(st.integers(0, floor), label="base")
    cold = projections.restore(rows, log.events[base:], base, log.header)
    assert cold.snapshot == projections.snapshot(log)
    assert cold.states == {key: projections.state(log, key) for key in rows}
    assert cold.checkpoint == checkpoints[-1]


def test_a_log_without_a_checkpoint_is_folded_from_its_start(log):
    cold = registry(COUNT).restore({}, list(log.events), 0, log.header, 1)
    assert cold.snapshot == {"asOfSeq": 3, "values": {"count": 3}}
    assert registry(COUNT).restore({}, [], 0, log.header).snapshot == {"asOfSeq": -1, "values": {"count": 0}}


UNUSABLE = [
    None,
    [],
    {"ver": 2, "seq": 3, "val": 4},
    {"ver": 1, "seq": 3},
    {"ver": 1, "seq": "3", "val": 4},
    {"ver": 1, "seq": -2, "val": 4},
    {"ver": 1, "seq": 3, "val": float("nan")},
    {"ver": 1, "seq": 3, "val": "four"},
]


def count_only(value):
    if type(value) is not int:
        raise ValueError("no count")
    return value


@pytest.mark.parametrize("row", UNUSABLE)
def test_a_row_that_cannot_be_used_makes_the_log_be_read_from_its_start(log, row):
    projections = registry(ProjectionUnit("count", 1, COUNT.init, COUNT.apply, state_schema=count_only))
    checkpoint = {"count": row}
    assert projections.restore_floor(checkpoint) == 0
    assert projections.view_checkpoint(checkpoint) == {}
    assert projections.restore(checkpoint, list(log.events), 0, log.header).states == {"count": 4}
    with pytest.raises(SessionError, match="re-read from seq 0") as failure:
        projections.restore(checkpoint, log.events[2:], 2, log.header)
    assert failure.value.code == "PROJECTION_REREAD"
    assert projections.hydrate(log, checkpoint) == frozenset()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("inbox", {"next-turn": []}),
        ("inbox", {"next-turn": [{"id": "a"}], "next-step": []}),
        ("inbox", {"next-turn": [user_message("a", id="a")], "next-step": [user_message("a", id="a")]}),
        ("turnBoundary", {"lastTurn": 1}),
        ("turnBoundary", []),
        ("turns", [{}]),
        ("turns", 1),
    ],
)
def test_a_damaged_state_of_a_known_projection_is_not_used(log, key, value):
    projections = registry()
    rows = projections.checkpoint(log)
    rows[key]["val"] = value
    assert projections.restore_floor(rows) == 0
    assert projections.restore(rows, list(log.events), 0, log.header).checkpoint == projections.checkpoint(log)


def test_a_log_that_has_become_shorter_than_its_checkpoint_is_noticed(log):
    projections = registry(COUNT)
    rows = projections.checkpoint(log)
    floor = projections.restore_floor(rows)
    assert floor == 3
    shorter = log.events[:3]
    with pytest.raises(SessionError, match="re-read from seq 0") as failure:
        projections.restore(rows, shorter[floor:], floor, log.header)
    assert failure.value.code == "PROJECTION_REREAD"
    assert projections.restore(rows, shorter, 0, log.header).states == {"count": 3}
    assert projections.hydrate(Session("s", shorter[:1]), rows) == frozenset()


def test_the_floor_is_that_of_the_unit_that_is_furthest_behind(log):
    projections = registry(COUNT, TURNS)
    rows = projections.checkpoint(log)
    assert projections.restore_floor({**rows, "count": {"ver": 1, "seq": 1, "val": 2}}) == 1
    assert projections.restore_floor({"count": rows["count"]}) == 0
    assert registry(COUNT).restore_floor({}) == 0
    assert ProjectionRegistry().restore_floor(rows) == 0


@pytest.mark.parametrize("drop", [slice(0, 1), slice(1, 2)])
def test_a_part_of_the_log_with_a_hole_is_refused(log, drop):
    events = list(log.events)
    first = events[drop][0].seq
    del events[drop]
    with pytest.raises(SessionError, match=f"cannot advance across missing seq {first}") as failure:
        registry(COUNT).restore({}, events, 0, log.header)
    assert failure.value.code == "PROJECTION_FAILED"


def test_the_views_of_a_checkpoint_are_read_without_a_log(log):
    units = [
        ProjectionUnit("double", 1, COUNT.init, COUNT.apply, lambda count: 2 * count),
        ProjectionUnit("broken", 1, COUNT.init, COUNT.apply, lambda count: count // 0),
    ]
    rows = {key: {"ver": 1, "seq": 3, "val": 4} for key in ("double", "broken", "unknown")}
    assert registry(*units).view_checkpoint(rows) == {"double": 8}


def test_a_session_goes_on_from_a_checkpoint_without_folding_its_start(log):
    applied = []

    def apply(state, event):
        applied.append(event.seq)
        return state + 1

    rows = registry(COUNT).checkpoint(log)
    close_step(log)
    projections = registry(ProjectionUnit("count", 1, COUNT.init, apply))
    heard = []
    projections.attach(log)
    assert projections.hydrate(log, rows) == {"count"}
    projections.subscribe(log, "count", heard.append)
    assert projections.state(log, "count") == 5
    assert applied == [4]
    assert projections.hydrate(log, rows) == frozenset()
    end_turn(log)
    assert (projections.state(log, "count"), applied, heard) == (6, [4, 5], [6])
