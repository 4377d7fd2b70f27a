"""The durable inbox: splices, edits, claims, and what is told of them."""

from __future__ import annotations

import math
from random import Random

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent import Runtime
from nbagent.agent.inbox import Inbox
from nbagent.errors import InputError, SessionError
from nbagent.session import Session
from nbagent.session.projection import ProjectionRegistry
from nbagent.session.projections import INBOX
from nbagent.testing import check_log, text
from nbagent.types.messages import user_message

pytestmark = pytest.mark.anyio

KINDS = ("inserted", "claimed", "discarded")


def message(name):
    return user_message(name, id=name)


def listen(w):
    heard = []
    for kind in KINDS:
        w.agent.on(f"agent/inbox/{kind}", lambda p, kind=kind: heard.append((kind, p.message.text, p.turn)))
    return heard


def splices(w):
    return [{**event.data, "inserted": [m.text for m in event.data["inserted"]]} for event in w.events]


@pytest.mark.parametrize(
    ("start", "count", "logged", "left"),
    [
        (math.nan, math.nan, {"start": 0}, "xabc"),
        (0, 0, {"start": 0}, "xabc"),
        (math.inf, 0, {"start": 3}, "abcx"),
        (-math.inf, 0, {"start": 0}, "xabc"),
        (99, 5, {"start": 3}, "abcx"),
        (1.9, 1.9, {"start": 1, "removedCount": 1}, "axc"),
        (-1, 1, {"start": 2, "removedCount": 1}, "abx"),
        (-1.9, 9, {"start": 2, "removedCount": 1}, "abx"),
        (-9, 2, {"start": 0, "removedCount": 2}, "xc"),
        (1, math.inf, {"start": 1, "removedCount": 2}, "ax"),
        (1, -3, {"start": 1}, "axbc"),
    ],
)
async def test_coordinates_are_normalised(world, start, count, logged, left):
    async with world() as w:
        w.agent.inbox.splice("next-turn", 0, 0, [message(name) for name in "abc"])
        w.agent.inbox.splice("next-turn", start, count, [message("x")])
        outcome = {"outcome": "canceled"} if "removedCount" in logged else {}
        assert splices(w)[-1] == {"target": "next-turn", "inserted": ["x"], **logged, **outcome}
        assert "".join(w.waiting("next-turn")) == left


async def test_a_removal_answers_and_tells_what_it_removed(world):
    async with world() as w:
        w.agent.inbox.splice("next-turn", math.nan, math.nan, [message("a"), message("b")])
        assert splices(w) == [{"target": "next-turn", "start": 0, "inserted": ["a", "b"]}]
        heard = listen(w)
        removed = w.agent.inbox.splice("next-turn", -1, 1, [])
        assert [m.text for m in removed] == ["b"]
        assert heard == [("discarded", "b", None)]
        assert splices(w)[1] == {
            "target": "next-turn",
            "start": 1,
            "removedCount": 1,
            "inserted": [],
            "outcome": "canceled",
        }


async def test_a_splice_that_changes_nothing_logs_nothing(world):
    async with world() as w:
        assert w.agent.inbox.splice("next-step", 0, 9, []) == []
        assert w.agent.inbox.splice("next-turn") == []
        assert w.events == []


async def test_prepending_puts_a_prompt_first(world):
    async with world(text("1"), text("2")) as w:
        w.agent.inbox.append("next-turn", message("second"))
        w.agent.inbox.prepend("next-turn", message("first"))
        assert w.waiting("next-turn") == ["first", "second"]
        w.agent.steer("go")
        await w.agent.when_idle()
        assert w.prompts == ["go", "first", "second"]


@pytest.mark.parametrize("target", ["next-turn", "next-step"])
async def test_an_id_is_pending_once_over_both_lists(world, target):
    async with world() as w:
        w.agent.inbox.append("next-step", message("a"))
        with pytest.raises(InputError, match='message "a" is already pending') as refused:
            w.agent.inbox.append(target, message("a"))
        assert refused.value.code == "ALREADY_PENDING"
        with pytest.raises(InputError):
            w.agent.inbox.splice("next-turn", 0, 0, [message("b"), message("b")])
        assert len(w.events) == 1


async def test_a_duplicate_followup_raises_and_starts_nothing(world):
    async with world() as w:
        w.agent.inbox.append("next-step", message("a"))
        with pytest.raises(InputError):
            w.agent.followup(message("a"))
        assert w.agent.status == "idle"
        assert w.types() == []


async def test_replacing_a_pending_message_is_one_event(world):
    async with world() as w:
        w.agent.inbox.append("next-turn", message("a"))
        heard = listen(w)
        assert w.agent.inbox.replace("a", message("b"))
        assert splices(w)[-1] == {
            "target": "next-turn",
            "start": 0,
            "removedCount": 1,
            "inserted": ["b"],
            "outcome": "canceled",
        }
        assert heard == [("discarded", "a", None), ("inserted", "b", None)]
        assert w.agent.inbox.replace("b", user_message("edited", id="b"))
        assert w.waiting("next-turn") == ["edited"]


async def test_unknown_ids_are_neither_replaced_nor_removed(world):
    async with world() as w:
        assert w.agent.inbox.replace("a", message("b")) is False
        assert w.agent.inbox.remove("a") is False
        assert w.events == []


async def test_a_replacement_that_is_pending_elsewhere_is_refused(world):
    async with world() as w:
        w.agent.inbox.append("next-turn", message("a"))
        w.agent.inbox.append("next-step", message("b"))
        with pytest.raises(InputError, match="already pending"):
            w.agent.inbox.replace("a", message("b"))
        assert w.waiting("next-turn") == ["a"]
        assert w.waiting("next-step") == ["b"]


async def test_clearing_cancels_steering_first_and_an_empty_inbox_logs_nothing(world):
    async with world() as w:
        w.agent.inbox.append("next-turn", message("prompt"))
        w.agent.inbox.append("next-step", message("steering"))
        heard, before = listen(w), len(w.events)
        w.agent.inbox.clear()
        w.agent.inbox.clear()
        assert [s["target"] for s in splices(w)[before:]] == ["next-step", "next-turn"]
        assert {s["outcome"] for s in splices(w)[before:]} == {"canceled"}
        assert heard == [("discarded", "steering", None), ("discarded", "prompt", None)]


async def test_a_claim_takes_all_steering_and_one_prompt(world):
    async with world(text("1"), text("2")) as w:
        for name in ("p1", "p2"):
            w.agent.inbox.append("next-turn", message(name))
        w.agent.inject(message("s1"))
        w.agent.inject(message("s2"))
        heard, before = listen(w), len(w.events)
        w.agent.followup(message("p3"))
        claims = [event.data for event in w.events[before:] if event.data.get("removedCount")]
        assert [(c["target"], c["removedCount"]) for c in claims] == [("next-step", 2), ("next-turn", 1)]
        assert all("outcome" not in claim for claim in claims)
        assert heard[1:] == [("claimed", "s1", 1), ("claimed", "s2", 1), ("claimed", "p1", 1)]
        w.agent.cancel()
        await w.agent.when_idle()


@pytest.mark.parametrize("verb", ["followup", "steer", "inject"])
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"id": "a", "role": "user", "content": [], "source": {"kind": "plugin", "plugin": object()}}, "NOT_JSON"),
        ("half a character: \ud83d", "NOT_JSON"),
        ({"role": "user", "content": [], "source": {"kind": "user"}}, "INVALID_EVENT"),
        ({"id": "", "role": "user", "content": [], "source": {"kind": "user"}}, "INVALID_EVENT"),
        ({"id": "a", "role": "user", "content": "text", "source": {"kind": "user"}}, "INVALID_EVENT"),
        ({"id": "a", "role": "user", "content": [], "source": {}}, "INVALID_EVENT"),
        ({"id": "a", "role": "assistant", "content": [], "source": {"kind": "user"}}, "INVALID_EVENT"),
    ],
)
async def test_what_is_no_message_is_refused_at_the_call(world, verb, given, code):
    async with world() as w:
        with pytest.raises(SessionError) as refused:
            getattr(w.agent, verb)(given)
        assert refused.value.code == code
        assert w.events == []
        assert w.agent.status == "idle"


async def test_an_observer_of_the_splice_reads_the_lists_after_it(world):
    async with world() as w:
        seen = []
        w.agent.on("session/event", lambda p: seen.append(w.waiting("next-step")))
        w.agent.inject("a")
        w.agent.inject("b")
        w.agent.inbox.clear()
        assert seen == [["a"], ["a", "b"], []]


async def test_a_send_while_its_insertion_is_published_is_refused_and_contained(world):
    async with world(text("ok")) as w:
        refused = []

        def send_too(payload):
            if payload.event.type == "agent/inbox/spliced":
                try:
                    w.agent.inject("inner")
                except SessionError as error:
                    refused.append(error.code)
                    raise

        w.agent.on("session/event", send_too)
        await w.ask("outer")
        assert set(refused) == {"REENTRANT_APPEND"}
        assert w.prompts == ["outer"]


async def test_an_observer_of_the_insertion_may_send(world):
    async with world(text("1"), text("2")) as w:
        once = []

        def send_too(payload):
            if not once:
                once.append(True)
                w.agent.followup("second")

        w.agent.on("agent/inbox/inserted", send_too)
        await w.ask("first")
        assert w.prompts == ["first", "second"]


async def test_a_refused_insertion_leaves_everything_as_it_was(world):
    async with world(text("ok")) as w:

        def veto(payload):
            raise ValueError("disk full")

        heard = listen(w)
        stop = w.agent.on("session/validate", veto)
        with pytest.raises(ValueError, match="disk full"):
            w.agent.followup("hi")
        assert (w.events, heard, w.agent.status, w.agent.inbox.pending) == ([], [], "idle", False)
        stop()
        await w.ask("hi")
        assert w.prompts == ["hi"]


async def test_a_fork_inherits_what_waits_and_the_parent_is_not_touched(world):
    async with world() as w:
        w.agent.inbox.append("next-turn", message("prompt"))
        w.agent.inject(message("steering"))
        child = (await w.runtime.agents.fork(w.agent.id, session_id="child")).agent
        child.inject(message("more"))
        assert [m.text for m in child.inbox.next_turn] == ["prompt"]
        assert [m.text for m in child.inbox.next_step] == ["steering", "more"]
        assert w.waiting("next-step") == ["steering"]


def test_two_inboxes_of_one_session_show_the_same_until_nobody_folds_them():
    log, projections = Session("s"), ProjectionRegistry()
    unregister = projections.register(INBOX)
    first, second = (Inbox(log, lambda: projections.state(log, "inbox"), lambda *_: None) for _ in range(2))
    first.append("next-turn", message("a"))
    second.append("next-step", message("b"))
    assert [m.text for m in second.next_turn] == ["a"]
    assert [m.text for m in first.next_step] == ["b"]
    unregister()
    with pytest.raises(SessionError, match='agent "s" cannot read inbox state: its projection registration is not'):
        first.pending  # noqa: B018


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(0, 25))
def test_the_lists_folded_from_the_log_equal_the_live_ones_at_every_prefix(seed, length):
    async def run():
        random, live = Random(seed), []
        async with Runtime() as runtime:
            agent = (await runtime.agents.create(session_id="s")).agent
            agent.on("session/event", lambda p: live.append((agent.inbox.next_turn, agent.inbox.next_step)))
            for number in range(length):
                target = random.choice(["next-turn", "next-step"])
                new = [message(f"{number}-{n}") for n in range(random.randrange(3))]
                agent.inbox.splice(target, random.randrange(-4, 5), random.randrange(-1, 4), new)
            return list(agent.session.events), live

    events, live = anyio.run(run)
    check_log(events)
    log, state = Session("copy"), None
    state = INBOX.init(log.header, 0)
    for event, (next_turn, next_step) in zip(events, live, strict=True):
        state = INBOX.apply(state, event)
        assert (list(state["next-turn"]), list(state["next-step"])) == (next_turn, next_step)
