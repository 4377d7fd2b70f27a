"""Events of others that rewrite messages in their place."""

from __future__ import annotations

import pytest

from nbagent.errors import InputError, SessionError
from nbagent.session import MessageProjections, Session, check_log
from nbagent.testing import as_json, sent_requests
from nbagent.types.messages import text_block

from .logs import answer, call, calls, close_step, header, open_step, prompt, result, say

TYPE = "someone/shorten"


def shorten(event, messages):
    """Cuts the texts of the named nodes."""
    cut = {}
    for seq in event.data["seqs"]:
        cut[seq] = messages[seq].replace(content=[text_block(messages[seq].text[: event.data["length"]])])
    return cut


@pytest.fixture
def projections():
    return MessageProjections()


@pytest.fixture
def log(projections):
    projections.register(TYPE, shorten)
    made = Session("s", message_projections=projections)
    say(made, "first words")
    open_step(made)
    prompt(made, "Be brief.")
    header(made)
    answer(made, "an answer", *calls("c1"))
    call(made, "c1")
    result(made, "c1", "a long result")
    return made


def cut(log, *seqs, length=3, **options):
    return log.append(TYPE, {"seqs": list(seqs), "length": length}, **options)


def texts(log):
    return [message.text for message in log.messages()]


def test_a_rewritten_message_stands_where_it_stood_with_the_same_id(log):
    held, surface = log.messages(), log.surface
    cut(log, 0, 7)
    assert texts(log) == ["fir", "Be brief.", "an answer", "a l"]
    assert [message.id for message in log.messages()] == [message.id for message in held]
    assert log.surface == surface
    assert held[0].text == "first words"
    assert log.events[0].data.text == "first words"


def test_it_raises_the_content_generation_alone(log):
    cut(log, 0)
    assert (log.content_generation, log.replace_generation) == (1, 0)
    say(log, "x", surface_op={"op": "replace", "startSeq": 0, "endSeq": 0}, source_event_seqs=[0])
    assert (log.content_generation, log.replace_generation) == (2, 1)
    say(log, "appended")
    assert log.content_generation == 2


def test_rewrites_build_on_each_other_and_a_replacement_ends_them(log):
    cut(log, 0, length=5)
    cut(log, 0, length=2)
    assert texts(log)[0] == "fi"
    say(log, "summary", surface_op={"op": "replace", "startSeq": 0, "endSeq": 0}, source_event_seqs=[0])
    assert texts(log)[0] == "summary"


def test_messages_that_come_later_are_not_touched(log):
    cut(log, 0)
    close_step(log)
    say(log, "later words")
    assert texts(log)[-1] == "later words"


def test_a_log_that_is_read_again_has_the_rewritten_messages(log, projections):
    cut(log, 0)
    stored = [as_json(event) for event in log.events]
    copy = Session("s", stored, message_projections=projections)
    assert copy.messages() == log.messages()
    assert copy.content_generation == 1
    check_log(stored, message_projections=projections)
    close_step(log)
    open_step(log, step=2)
    answer(log, "more", place={"turn": 1, "step": 2})
    sent = sent_requests(log, message_projections=projections)[-1]
    assert sent.messages[0].text == "fir"


def refused(action, code):
    with pytest.raises(SessionError) as failure:
        action()
    assert failure.value.code == code
    return failure.value


def test_without_its_interpreter_an_event_is_neither_appended_nor_read(log):
    cut(log, 0)
    stored = [as_json(event) for event in log.events]
    bare = Session("s")
    say(bare, "first words")
    assert "no interpreter of it" in refused(lambda: cut(bare, 0), "UNKNOWN_EVENT").message
    assert len(bare.events) == 1
    assert refused(lambda: Session("s", stored), "UNKNOWN_EVENT").seq == 8
    refused(lambda: check_log(stored), "UNKNOWN_EVENT")


def test_an_event_that_readers_may_skip_rewrites_nothing(log):
    cut(log, 0, ignorable=True)
    assert texts(log)[0] == "first words"
    assert log.content_generation == 0


@pytest.mark.parametrize("again", [None, shorten, lambda _event, _messages: {}])
def test_a_session_cannot_be_read_when_an_interpreter_that_it_used_was_taken_away(again):
    projections = MessageProjections()
    unregister = projections.register(TYPE, lambda event, messages: shorten(event, messages))
    log = Session("s", message_projections=projections)
    say(log, "first words")
    cut(log, 0)
    held = log.messages()
    unregister()
    unregister()
    if again is not None:
        projections.register(TYPE, again)
    assert "register it and open the session again" in refused(log.messages, "INTERPRETER_MISSING").message
    assert [message.text for message in held] == ["fir"]
    if again is not None:
        refused(lambda: cut(log, 0), "INTERPRETER_MISSING")
    say(log, "the log itself goes on")


def test_an_interpreter_that_nobody_needed_may_go(log, projections):
    projections.register("someone/other", shorten)()
    assert texts(log)[0] == "first words"


def renamed(_event, messages):
    return {0: messages[0].replace(id="other")}


def fails(_event, _messages):
    raise RuntimeError("cannot read this")


WRONG = [
    renamed,
    fails,
    lambda _event, messages: {0: messages[0].replace(content="text")},
    lambda _event, messages: {0: messages[0].replace(content=[{"type": "text"}])},
    lambda _event, messages: {1: messages[0]},
    lambda _event, messages: {3: messages[3].replace(content=[text_block("Be long.")])},
    lambda _event, _messages: {0: 1},
    lambda _event, _messages: 1,
]


@pytest.mark.parametrize("interpreter", WRONG)
def test_an_answer_that_is_no_rewrite_refuses_the_event(log, projections, interpreter):
    projections.register("someone/wrong", interpreter)
    length, before = len(log.events), texts(log)
    refused(lambda: log.append("someone/wrong", {}), "INVALID_EVENT")
    assert (len(log.events), texts(log), log.content_generation) == (length, before, 0)


def test_a_rewrite_that_a_validator_refuses_leaves_nothing(log):
    def veto(_event):
        raise RuntimeError("no")

    log.storage = veto
    with pytest.raises(RuntimeError):
        cut(log, 0)
    log.storage = None
    assert (texts(log)[0], log.content_generation) == ("first words", 0)


@pytest.mark.parametrize(("type", "code"), [("user/message", "INVALID_NAME"), (TYPE, "DUPLICATE_NAME")])
def test_a_type_has_one_interpreter_and_known_types_have_none(projections, type, code):
    projections.register(TYPE, shorten)
    with pytest.raises(InputError) as failure:
        projections.register(type, shorten)
    assert failure.value.code == code
