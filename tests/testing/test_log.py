"""Logs written by hand, checked, and looked at as JSON."""

from __future__ import annotations

import json

import pytest

import nbagent.testing
from nbagent import tool, user_message
from nbagent.errors import InvariantError, SessionError
from nbagent.session import Session
from nbagent.testing import LogBuilder, VirtualClock, as_json, check_log, text, tool_calls


@tool
def count(name: str) -> int:
    """Count."""
    return len(name)


def whole() -> LogBuilder:
    return (
        LogBuilder()
        .begin("How many rows?", system="Be brief.", tools=[count])
        .calls(("c1", "count", {"name": "df"}), ("c2", "count", "{}"))
        .result("c1", "12")
        .result("c2", "Error: no", error={"name": "ToolError", "code": "NO"})
        .next_step()
        .answers(text("Twelve."))
        .end()
        .begin("Sure?")
        .frame({"type": "text-delta", "index": 0, "text": "Y"})
        .answers("Y", interrupted=True)
        .end("aborted", reason={"kind": "user"})
    )


def test_every_verb_keeps_the_log_whole():
    log = whole()
    check_log(log.events)
    assert [message.role for message in log.session.messages()] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert [event.data["turn"] for event in log.events if event.type == "turn/end"] == [1, 2]
    assert log.session.request_header()["tools"][0]["name"] == "count"


def test_the_same_calls_give_the_same_bytes():
    assert whole().lines() == whole().lines()


def test_a_scripted_answer_brings_its_frame_and_usage():
    log = LogBuilder().begin("go").answers(tool_calls(("c1", "count", {"name": "x"})))
    frame, answer = list(log.events)[-2:]
    assert frame.data["chunks"][0]["type"] == "block-start"
    assert answer.data["usage"]["inputTokens"] == 10
    assert answer.data["message"].tool_calls[0]["id"] == "c1"


def test_a_file_holds_the_header_and_one_event_a_line(tmp_path):
    log = whole()
    path = log.write(tmp_path)
    header, *events = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert (path.name, header["type"], header["id"]) == ("log.jsonl", "session", "log")
    assert events == [as_json(event) for event in log.events]
    check_log(events)


def test_a_broken_log_is_named():
    events = list(whole().events)
    with pytest.raises(SessionError):
        check_log(events[1:])
    lines = [as_json(event) for event in events]
    lines[0]["data"]["turn"] = 2
    with pytest.raises(InvariantError):
        check_log(lines)


def test_as_json_is_plain_and_detached():
    log = whole()
    for value in (
        log.events[0],
        log.session.messages()[0],
        log.session.request_header(),
        [log.events[0]],
        user_message("x"),
    ):
        plain = as_json(value)
        assert type(plain) in {dict, list}
        assert json.loads(json.dumps(plain)) == plain
    as_json(log.events[0])["data"]["turn"] = 9
    assert log.events[0].data["turn"] == 1


def test_a_clock_moves_when_told():
    clock = VirtualClock(100)
    session = Session("s1", clock=clock)
    clock.advance(50)
    assert (session.header.created_at, session.append("turn/start", {"turn": 1}).time) == (100, 150)
    ticking = VirtualClock(tick=10)
    assert ticking() + 10 == ticking()


def test_every_promised_name_is_there():
    for name in nbagent.testing.__all__:
        assert getattr(nbagent.testing, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = nbagent.testing.nothing
