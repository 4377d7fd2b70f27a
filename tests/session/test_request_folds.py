"""The latest header and context, and how the tools of a series grew."""

from __future__ import annotations

import pytest

from nbagent.errors import SessionError

from .logs import header, open_step, session, tool_change


@pytest.fixture
def log():
    made = session()
    open_step(made)
    return made


def history(log):
    folded = log.tool_history()
    names = [tool["name"] for tool in folded["tools"]]
    return names, [(each["messageId"], [tool["name"] for tool in each["additions"]]) for each in folded["updates"]]


def test_a_session_without_requests_has_no_header_and_no_tools():
    log = session()
    assert (log.request_header(), log.request_context(), history(log)) == (None, None, ([], []))


def test_the_latest_header_and_context_count(log):
    header(log, "a")
    assert [tool["name"] for tool in log.request_header()["tools"]] == ["a"]
    event = header(log, reason="change")
    assert log.request_header() is event.data["header"]
    for model in "ab":
        log.append("request/context", {"provider": "p", "model": model})
    assert log.request_context() == {"provider": "p", "model": "b"}


def test_tools_that_come_and_go_are_updates_of_the_first_header(log):
    header(log, "search")
    second = header(log, "fetch", "search", reason="change")
    tool_change(log, ["fetch"], header_seq=second.seq, id="d1")
    assert history(log) == (["search"], [("d1", ["fetch"])])
    header(log, "fetch", reason="change")
    tool_change(log, remove=["search"], id="d2")
    assert history(log) == (["search"], [("d1", ["fetch"]), ("d2", [])])


def test_the_history_is_one_frozen_value_until_something_changes(log):
    header(log, "a")
    held = log.tool_history()
    assert log.tool_history() is held
    second = header(log, "a", "b", reason="change")
    tool_change(log, ["b"], header_seq=second.seq)
    assert held["updates"] == []
    with pytest.raises(TypeError, match="frozen"):
        held["updates"].append(1)


@pytest.mark.parametrize("start", [{"reason": "series"}, {"reason": "resume", "startsSeries": True}])
def test_a_new_series_starts_with_the_tools_it_has(log, start):
    header(log, "a")
    second = header(log, "a", "b", reason="change")
    tool_change(log, ["b"], header_seq=second.seq)
    header(log, "a", "b", **start)
    assert history(log) == (["a", "b"], [])


def test_a_new_definition_of_a_name_starts_anew_even_when_the_tool_was_removed(log):
    header(log, ("a", "one"), "b")
    header(log, "b", reason="change")
    tool_change(log, remove=["a"])
    again = header(log, ("a", "one"), "b", reason="change")
    tool_change(log, ["a"], header_seq=again.seq, id="d2")
    assert history(log) == (["a", "b"], [("d", []), ("d2", ["a"])])
    header(log, "b", reason="change")
    tool_change(log, remove=["a"], id="d3")
    header(log, ("a", "two"), "b", reason="change")
    assert history(log)[1] == []
    assert log.tool_history()["tools"][0]["description"] == "two"


def test_a_log_that_never_told_of_changes_shows_the_tools_of_its_header(log):
    header(log, "a")
    header(log, "b", reason="change")
    assert history(log) == (["b"], [])


def test_an_addition_points_to_the_header_that_defines_it(log):
    event = header(log, "a")
    wrong = [
        {"add": ["a"]},
        {"add": ["a"], "header_seq": 0},
        {"add": ["a"], "header_seq": 99},
        {"add": ["b"], "header_seq": event.seq},
        {"remove": ["a"], "header_seq": event.seq},
        {"add": [""], "header_seq": event.seq},
    ]
    for change in wrong:
        with pytest.raises(SessionError) as failure:
            tool_change(log, **change)
        assert failure.value.code == "INVALID_EVENT"
    tool_change(log, ["a"], ["b"], event.seq)
