"""Values of key-like environment variables are masked wherever text goes."""

from __future__ import annotations

import json
import os
from time import perf_counter
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.hooks import Hooks
from nbagent.secrets import StreamMask, mask, mask_json
from nbagent.session import Session
from nbagent.types.frozen import FrozenDict, FrozenList, freeze
from nbagent.types.messages import Message, assistant_message, tool_call_block, user_message

SECRET = "sk-0123456789abcdef"


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    return SECRET


@pytest.mark.parametrize("name", ["X_KEY", "X_TOKEN", "X_SECRET", "X_PASSWORD", "x_api_key"])
def test_a_value_is_replaced_by_the_name_of_its_variable(monkeypatch, name):
    monkeypatch.setenv(name, SECRET)
    assert mask(f"Bearer {SECRET}, again {SECRET}.") == f"Bearer [masked {name}], again [masked {name}]."


@pytest.mark.parametrize(("name", "value"), [("X_KEY", "short"), ("KEYS", SECRET), ("X_KEY_FILE", SECRET)])
def test_short_values_and_other_variables_stay(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert mask(f"it is {value}") == f"it is {value}"


def test_a_blank_value_masks_nothing(monkeypatch):
    monkeypatch.setenv("X_KEY", " " * 12)
    assert mask(" " * 40) == " " * 40


def test_a_value_with_a_line_end_around_it_is_found_without_it(monkeypatch):
    monkeypatch.setenv("X_KEY", f"{SECRET}\n")
    assert mask(f"<{SECRET}>") == "<[masked X_KEY]>"


def test_the_environment_is_looked_at_again(monkeypatch):
    assert mask(SECRET) == SECRET
    monkeypatch.setenv("LATE_TOKEN", SECRET)
    assert mask(SECRET) == "[masked LATE_TOKEN]"
    monkeypatch.setenv("LATE_TOKEN", "another-secret")
    assert mask(f"{SECRET} another-secret") == f"{SECRET} [masked LATE_TOKEN]"
    monkeypatch.delenv("LATE_TOKEN")
    assert mask("another-secret") == "another-secret"


def test_of_two_values_that_begin_alike_the_longer_one_counts(monkeypatch):
    monkeypatch.setenv("A_KEY", "abcdefgh")
    monkeypatch.setenv("B_KEY", "abcdefghij")
    assert mask("abcdefghij abcdefghi") == "[masked B_KEY] [masked A_KEY]i"


def test_a_value_inside_json_text_is_found_as_it_is_written_there(monkeypatch):
    value = 'pass"wörd\\1'
    monkeypatch.setenv("DB_PASSWORD", value)
    for written in (json.dumps({"p": value}), json.dumps({"p": value}, ensure_ascii=False)):
        assert mask(written) == '{"p": "[masked DB_PASSWORD]"}'


def test_json_is_masked_in_texts_and_keys_at_any_depth(key):
    value = freeze({"a": [f"x{key}", {"b": {key: 1}}], "n": 1, "z": None})
    masked = mask_json(value)
    assert masked == {"a": ["x[masked SOME_API_KEY]", {"b": {"[masked SOME_API_KEY]": 1}}], "n": 1, "z": None}
    assert type(masked) is FrozenDict
    assert type(masked["a"]) is FrozenList


def test_what_holds_no_secret_stays_the_same_object(key):
    message = user_message("hello")
    assert mask_json(message) is message
    value = freeze({"message": message, "note": key})
    masked = mask_json(value)
    assert masked["note"] == "[masked SOME_API_KEY]"
    assert masked["message"] is message


def test_a_masked_message_is_still_a_message(key):
    assert type(mask_json(user_message(key))) is Message


def test_nothing_secret_enters_a_session(key):
    session = Session("s")
    session.append("user/message", user_message(f"use {key}"), surface_op="append")
    session.append("turn/start", {"turn": 1})
    place = {"turn": 1, "step": 1}
    session.append("step/start", place)
    arguments = json.dumps({"header": f"Bearer {key}"})
    message = assistant_message([tool_call_block("c", "fetch", arguments)], provider="p", model="m")
    session.append("assistant/message", {**place, "message": message}, surface_op="append")
    session.append("tool/call", {**place, "callId": "c", "name": "fetch", "arguments": arguments})
    session.append("someone/else", {"deep": [{"er": key}]}, ignorable=True)
    seen = []
    session.subscribe(seen.append)
    session.storage = seen.append
    session.append("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [user_message(key)]})
    assert key not in json.dumps([event.to_json() for event in [*session.events, *seen]])
    assert session.messages()[0].text == "use [masked SOME_API_KEY]"


def test_a_message_without_a_secret_keeps_its_identity_through_the_session(key):
    session = Session("s")
    message = user_message("hello")
    event = session.append("user/message", message, surface_op="append")
    assert event.data is message
    assert session.messages()[0] is session.messages()[0] is message


alphabet = 'ab"\\é\n'
values = st.text(alphabet, min_size=8, max_size=12)
pieces = st.lists(st.text(alphabet, max_size=5) | st.integers(0, 2), max_size=12)


@settings(max_examples=300, deadline=None)
@given(secrets=st.lists(values, min_size=1, max_size=3), pieces=pieces, cuts=st.lists(st.integers(0, 80), max_size=12))
def test_a_text_that_comes_in_pieces_is_masked_like_the_whole_text(secrets, pieces, cuts):
    with mock.patch.dict(os.environ, {f"S{number}_KEY": secret for number, secret in enumerate(secrets)}):
        text = "".join(piece if isinstance(piece, str) else secrets[piece % len(secrets)] for piece in pieces)
        stream, shown, last = StreamMask(), "", 0
        for cut in [*sorted(cuts), len(text)]:
            shown += stream.feed(text[last:cut])
            last = max(last, cut)
        assert shown + stream.flush() == mask(text)
        assert not any(secret in shown for secret in secrets if not secret.isspace())


def test_a_text_is_held_back_only_while_it_may_become_a_secret(key):
    stream = StreamMask()
    assert stream.feed("hello ") == "hello "
    assert stream.feed("s") == ""
    assert stream.feed("o") == "so"
    assert stream.feed(key[:5]) == ""
    assert stream.feed(key[5:]) == "[masked SOME_API_KEY]"
    assert stream.feed(key[:5]) == ""
    assert stream.flush() == key[:5]
    assert stream.flush() == ""


def test_a_stream_without_secrets_passes_at_once(monkeypatch):
    for name in os.environ:
        if name.upper().endswith(("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")):
            monkeypatch.delenv(name)
    assert StreamMask().feed("sk-") == "sk-"


def test_looking_for_secrets_costs_next_to_nothing(key):
    chunk = freeze({"turn": 1, "step": 1, "chunks": [{"type": "text-delta", "index": 0, "text": "Hello "}]})
    best = min(_seconds(lambda: mask_json(chunk)) for _ in range(20))
    assert best < 50e-6  # a few microseconds; the rest is for slow machines


def _seconds(work):
    start = perf_counter()
    for _ in range(100):
        work()
    return (perf_counter() - start) / 100


def test_logs_of_the_package_hold_no_secret(monkeypatch, caplog) -> None:
    monkeypatch.setenv("LOGGED_API_KEY", "sk-logged-0123456789")
    caplog.set_level("DEBUG")

    def listener(_payload) -> None:
        raise ValueError("refused sk-logged-0123456789")

    hooks = Hooks()
    hooks.on("agent/status", listener)
    hooks.notify("agent/status", None)
    assert "[masked LOGGED_API_KEY]" in caplog.text
    assert "ValueError" in caplog.text
    assert "sk-logged" not in caplog.text
