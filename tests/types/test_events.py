"""The envelope of an event and the header of a session."""

from __future__ import annotations

import pytest

from nbagent.errors import StorageError
from nbagent.types.events import CORE_TYPES, LOG_ONLY_TYPES, SURFACE_TYPES, Event, SessionHeader
from nbagent.types.frozen import freeze

HEADER = {"version": 1, "id": "s", "createdAt": 5}


def test_a_line_holds_only_the_keys_that_say_something():
    assert Event("turn/start", 0, 1, freeze({"turn": 1})).to_json() == {
        "type": "turn/start",
        "seq": 0,
        "time": 1,
        "data": {"turn": 1},
    }
    full = Event("user/message", 3, 1, freeze({}), "append", freeze([1]), ignorable=True).to_json()
    assert (full["surfaceOp"], full["sourceEventSeqs"], full["ignorable"]) == ("append", [1], True)


def test_an_event_is_a_value_that_cannot_change():
    event = Event("x", 0, 1, freeze({}))
    with pytest.raises(TypeError):
        event.seq = 1
    with pytest.raises(TypeError):
        del event.data
    same = Event("x", 0, 1, freeze({}))
    assert event == same
    assert len({event, same}) == 1
    assert event != Event("x", 0, 2, freeze({}))


def test_five_types_reach_the_model_and_the_rest_only_the_log():
    assert len(SURFACE_TYPES) == 5
    assert not SURFACE_TYPES & LOG_ONLY_TYPES
    assert CORE_TYPES == SURFACE_TYPES | LOG_ONLY_TYPES


def test_a_new_header_leaves_out_what_is_not_known():
    header = SessionHeader.new("s", 5, cwd=None, delegationDepth=0)
    assert header == {**HEADER, "delegationDepth": 0}
    assert (header.id, header.version, header.created_at, header.cwd) == ("s", 1, 5, None)


@pytest.mark.parametrize("cwd", ["/home/x", "C:\\x", "c:/x", "\\\\host\\share"])
def test_a_working_directory_is_absolute_on_any_system(cwd):
    assert SessionHeader.checked({**HEADER, "cwd": cwd}).cwd == cwd


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cwd": "notes"}, "cwd"),
        ({"createdAt": -1}, "createdAt"),
        ({"createdAt": 1.5}, "createdAt"),
        ({"createdAt": True}, "createdAt"),
        ({"id": ""}, "id"),
        ({"origin": "someone"}, "origin"),
        ({"delegationDepth": -1}, "delegationDepth"),
        ({"isSeeded": 1}, "isSeeded"),
        ({"surprise": 1}, "surprise"),
        ({"version": 2}, "update jupyter-nbagent"),
        ({"version": 0}, "version must be 1, got 0"),
        ({"version": None}, "version must be 1"),
        ({"version": True}, "version"),
    ],
)
def test_a_header_that_is_wrong_says_where(change, said):
    with pytest.raises(StorageError, match=said) as refused:
        SessionHeader.checked({**HEADER, **change})
    assert refused.value.code == "SESSION_FORMAT"


@pytest.mark.parametrize("missing", ["id", "createdAt"])
def test_a_header_needs_an_id_and_a_time(missing):
    with pytest.raises(StorageError, match=f"lacks {missing}"):
        SessionHeader.checked({key: value for key, value in HEADER.items() if key != missing})
