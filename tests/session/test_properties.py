"""What holds for any legal log."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.errors import SessionError
from nbagent.session import ProjectionRegistry, Session, check_log
from nbagent.session.projections import INBOX, TURN_BOUNDARY, TURNS
from nbagent.session.repair import interrupted_turn_closers
from nbagent.testing import as_json
from nbagent.types.events import CORE_TYPES

from .logs import legal_logs, session

UNITS = (INBOX, TURN_BOUNDARY, TURNS)


def registry(*units):
    made = ProjectionRegistry()
    for unit in units or UNITS:
        made.register(unit)
    return made


def folds(log, projections):
    return (
        log.surface,
        log.system_nodes,
        log.replace_generation,
        [as_json(message) for message in log.messages()],
        as_json(log.request_header()),
        as_json(log.tool_history()),
        projections.snapshot(log),
    )


def expected_messages(log):
    """The derivation by its definition."""
    for seq in log.surface:
        event = log.events[seq]
        message = event.data if event.type == "user/message" else event.data["message"]
        if message["content"] or event.type in {"user/message", "tool/result"}:
            yield message


def made_up(message):
    """Whether it is the result of a call that has none in the log."""
    return message.id.startswith("interrupted-tool-result-")


@settings(max_examples=60, deadline=None)
@given(legal_logs())
def test_a_fold_that_grew_with_the_log_equals_one_from_scratch_at_every_prefix(events):
    grown, projections = Session("s"), registry()
    projections.attach(grown)
    for length, event in enumerate(events, start=1):
        held = grown.messages()
        before = list(held)
        grown.restore(event)
        assert held == before
        assert [message for message in grown.messages() if not made_up(message)] == list(expected_messages(grown))
        fresh = Session("s")
        for each in events[:length]:
            fresh.restore(each)
        assert folds(fresh, registry()) == folds(grown, projections)


@settings(max_examples=60, deadline=None)
@given(legal_logs())
def test_the_surface_at_every_prefix_is_that_of_a_plain_list(events):
    log, nodes, replacements = Session("s"), [], 0
    for event in events:
        log.restore(event)
        operation = event.get("surfaceOp")
        if operation == "append":
            nodes.append(event["seq"])
        elif operation is not None:
            start, end = nodes.index(operation["startSeq"]), nodes.index(operation["endSeq"])
            nodes = [*nodes[:start], event["seq"], *nodes[end + 1 :]]
            replacements += 1
        assert (log.surface, log.replace_generation, log.content_generation) == (nodes, replacements, replacements)
        assert log.system_nodes == [seq for seq in nodes if events[seq]["type"] == "system/message"]


@settings(max_examples=60, deadline=None)
@given(legal_logs())
def test_closers_make_every_prefix_whole_and_are_always_the_same(events):
    log = Session("s")
    for event in [None, *events]:
        if event is not None:
            log.restore(event)
        closers = interrupted_turn_closers(log.events)
        assert closers == interrupted_turn_closers(list(log.events))
        repaired = [*log.events, *closers]
        check_log(repaired)
        assert interrupted_turn_closers(repaired) == []
        types = [each.type for each in repaired]
        assert types.count("turn/start") == types.count("turn/end")
        assert types.count("step/start") == types.count("step/end")
        assert bool(closers) == bool(
            types[: len(log.events)].count("turn/start") > types[: len(log.events)].count("turn/end")
        )
        assert not unanswered_in_the_last_step(repaired, len(log.events)) or not closers
        assert unpaired(Session("s", repaired).messages()) == []


def unpaired(messages):
    """Ids of calls that no result follows before the next answer."""
    waiting, left = [], []
    for message in messages:
        if message.role == "assistant":
            left += waiting
            waiting = [block["id"] for block in message.tool_calls]
        elif message.role == "tool":
            waiting = [call_id for call_id in waiting if call_id != message.tool_call_id]
    return left + waiting


def unanswered_in_the_last_step(events, end):
    start = max((n for n, event in enumerate(events[:end]) if event.type == "step/start"), default=None)
    if start is None or any(event.type == "step/end" for event in events[start:end]):
        return set()
    step = events[start:]
    asked = {c["id"] for e in step if e.type == "assistant/message" for c in e.data["message"].tool_calls}
    return asked - {e.data["message"].tool_call_id for e in step if e.type == "tool/result"}


json = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["", "user", "a", "p", "append", "initial"]),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(["id", "name", "kind", "type"]), each),
    max_leaves=5,
)


@st.composite
def bent(draw, event):
    """An event with something in it replaced or taken away."""
    event = as_json(event)
    inside, key = None, None
    at = event
    while isinstance(at, dict | list) and at and (inside is None or draw(st.booleans())):
        inside, key = at, draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        at = inside[key]
    if draw(st.booleans()) and isinstance(inside, dict):
        del inside[key]
    else:
        inside[key] = draw(json)
    return event


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_an_event_with_a_fault_is_refused_and_changes_nothing_or_every_fold_can_take_it(data):
    events = data.draw(legal_logs().filter(len))
    at = data.draw(st.integers(0, len(events) - 1))
    log, projections = Session("s"), registry(TURN_BOUNDARY, TURNS)
    for event in events[:at]:
        log.restore(event)
    before = folds(log, projections)
    try:
        log.restore(data.draw(bent(events[at])))
    except SessionError:
        assert folds(log, projections) == before
        log.restore(events[at])
    folds(log, projections)
    interrupted_turn_closers(log.events)
    assert len(log.events) == at + 1


@settings(max_examples=100, deadline=None)
@given(type=st.sampled_from(sorted(CORE_TYPES)), data=json)
def test_nonsense_as_data_is_refused_with_a_code(type, data):
    log = session()
    log.append("turn/start", {"turn": 1})
    log.append("step/start", {"turn": 1, "step": 1})
    try:
        log.append(type, data, surface_op="append" if type.endswith(("message", "result")) else None)
    except SessionError as refused:
        assert refused.code
        assert len(log.events) == 2
