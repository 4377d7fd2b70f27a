"""Whatever users, tools, models and cancels do, the log stays whole."""

from __future__ import annotations

from collections import Counter
from random import Random

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent import Runtime, tool
from nbagent.agent.points import Enter, Reject
from nbagent.testing import (
    ScriptedAdapter,
    VirtualClock,
    as_json,
    check_log,
    fail,
    hang,
    sent_requests,
    text,
    tool_calls,
)
from nbagent.tools import current_call
from nbagent.types.messages import user_message
from nbagent.types.stream import finish, text_delta

ANSWERS = ("text", "tools", "tools", "hang", "fail", "fail late", "cut", "empty")
ACTIONS = (
    *("followup", "steer", "inject", "prepend", "edit", "remove", "clear"),
    *("cancel", "keep", "pause", "pause", "pause", "compact", "prompt", "context", "tool"),
)
DECISIONS = ("enter", "enter", "enter", "enter", "drop", "reject", "raise", "add", "series")


def answer(name):
    return {
        "text": text("ok"),
        "tools": tool_calls(("a", "work", {"n": 1}), ("b", "nope", {}), ("c", "work", {"n": 2}), ("d", "alone", {})),
        "hang": hang(),
        "fail": fail("x", code="AUTH"),
        "fail late": fail("x", code="SERVER", after=[text_delta(0, "half")]),
        "cut": [text_delta(0, "half"), finish("max-tokens")],
        "empty": [finish("stop")],
    }[name]


class Chance:
    """One run of an agent whose model, user and listeners do what a seed says."""

    def __init__(self, seed, length, *, able):
        self.random = Random(seed)
        self.length = length
        facts = {"system_prompt_update": "in-history", "tool_update": bool(seed % 2)} if able else {}
        script = [answer(self.random.choice(ANSWERS)) for _ in range(length)]
        self.model = ScriptedAdapter(script + [text("end")] * 200, **facts)
        self.told = {kind: [] for kind in ("inserted", "claimed", "discarded")}
        self.version = self.facts = self.extra = None
        self.agent = None

    def tools(self):
        @tool(parallel=True)
        async def work(n: int) -> str:
            """Work."""
            current_call().attach_context(user_message(f"context {n}"))
            await anyio.sleep(0.001 * self.random.randrange(2))
            return str(n)

        @tool
        async def alone() -> str:
            """Work alone."""
            if self.random.random() < 0.3:
                raise ValueError("no")
            await anyio.lowlevel.checkpoint()
            return "done"

        return [work, alone]

    async def decide(self, payload, next):
        decision = await next()
        kind = self.random.choice(DECISIONS)
        if kind == "reject":
            return Reject()
        if kind == "raise":
            raise ValueError("no entry")
        if kind == "drop":
            return Enter(decision.messages[1:])
        if kind == "add":
            return Enter([*decision.messages, user_message("added")])
        return Enter(decision.messages, starts_request_series=kind == "series")

    async def recover(self, payload, next):
        if self.random.random() < 0.3:
            self.compact()
        return {"kind": "retry"} if self.random.random() < 0.5 else await next()

    async def stop(self, payload):
        if self.random.random() < 0.2:
            payload.agent.steer("go on")

    def act(self, action, number):
        agent, inbox = self.agent, self.agent.inbox
        pending = [*inbox.next_turn, *inbox.next_step]
        if action in {"followup", "steer", "inject"}:
            getattr(agent, action)(f"{action} {number}")
        elif action == "prepend":
            inbox.prepend(self.random.choice(["next-turn", "next-step"]), user_message(f"prepend {number}"))
        elif action == "edit" and pending:
            inbox.replace(self.random.choice(pending).id, user_message(f"edit {number}"))
        elif action == "remove" and pending:
            inbox.remove(self.random.choice(pending).id)
        elif action == "clear":
            inbox.clear()
        elif action in {"cancel", "keep"}:
            agent.cancel(keep_inbox=action == "keep")
        elif action == "compact" and agent.status == "idle":
            self.compact()
        elif action == "prompt":
            self.version = self.random.choice([None, "a", "b"])
        elif action == "context":
            self.facts = self.random.choice([None, "a", "b"])
        elif action == "tool":
            self.extra = self.extra() if self.extra else agent.tools.register(tool(name="extra")(extra))

    def compact(self):
        session = self.agent.session
        nodes = [seq for seq in session.surface if session.events[seq].type == "user/message"]
        if nodes:
            seq = self.random.choice(nodes)
            place = {"op": "replace", "startSeq": seq, "endSeq": seq}
            session.append("user/message", user_message("summary"), surface_op=place, source_event_seqs=[seq])

    async def run(self, **options):
        async with Runtime(retry=None, **options) as runtime:
            runtime.llm.register(["scripted"], self.model)
            handle = await runtime.agents.create(
                session_id="s", provider="scripted", model="m", system=lambda: self.version, tools=self.tools()
            )
            agent = self.agent = handle.agent
            agent.context("facts", lambda: self.facts)
            for kind, told in self.told.items():
                agent.on(f"agent/inbox/{kind}", lambda p, told=told: told.append(p.message.id))
            agent.on("agent/pre-step", self.decide)
            agent.on("agent/request-error", self.recover)
            agent.on("agent/turn-stopping", self.stop)
            with anyio.fail_after(10):
                for number in range(self.length):
                    action = self.random.choice(ACTIONS)
                    if action == "pause":
                        await anyio.sleep(0.002)
                    else:
                        self.act(action, number)
                await anyio.sleep(0.005)
                agent.cancel(keep_inbox=True)
                await agent.when_idle()
            self.pending = [m.id for m in (*agent.inbox.next_turn, *agent.inbox.next_step)]
        self.events = list(agent.session.events)
        return self


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 25), able=st.booleans())
def test_the_log_stays_whole(backend, seed, length, able):
    run = anyio.run(Chance(seed, length, able=able).run, backend=backend)
    check_log(run.events)
    every_turn_ends(run)
    every_call_is_answered_in_its_step(run)
    every_message_has_one_fate(run)
    claimed_messages_are_logged_or_lost_with_their_turn(run)
    requests_are_what_the_log_says(run)


def of(run, *types):
    return [event for event in run.events if event.type in types]


def every_turn_ends(run):
    edges = [(event.type, event.data["turn"]) for event in of(run, "turn/start", "turn/end")]
    turns = range(1, len(edges) // 2 + 1)
    assert edges == [(kind, turn) for turn in turns for kind in ("turn/start", "turn/end")]


def every_call_is_answered_in_its_step(run):
    asked, called, answered = [], [], []
    for event in run.events:
        if event.type == "assistant/message" and not event.data.get("interrupted"):
            asked = [call["id"] for call in event.data["message"].tool_calls]
        elif event.type == "tool/call":
            called.append(event.data["callId"])
        elif event.type == "tool/result":
            answered.append(event.data["message"].tool_call_id)
        elif event.type == "step/end":
            assert answered == asked
            assert called == asked[: len(called)]
            asked, called, answered = [], [], []


def every_message_has_one_fate(run):
    fates = Counter([*run.told["claimed"], *run.told["discarded"], *run.pending])
    assert fates == Counter(run.told["inserted"])
    assert set(fates.values()) <= {1}


def claimed_messages_are_logged_or_lost_with_their_turn(run):
    logged = Counter(event.data.id for event in of(run, "user/message"))
    assert set(logged.values()) <= {1}
    for event in of(run, "user/message"):
        assert event.data.id not in run.told["discarded"]
        assert event.data.id not in run.pending


def requests_are_what_the_log_says(run):
    sent, rebuilt = as_json(run.model.requests), as_json(sent_requests(run.events, "s"))
    attempts = {(e.data["turn"], e.data["step"], e.data["attempt"]) for e in of(run, "assistant/frame")}
    assert len(rebuilt) == len(attempts)
    # A call that was cancelled before anything arrived left no trace.
    remaining = iter(sent)
    assert all(any(request == each for each in remaining) for request in rebuilt)


def extra() -> str:
    """Be there."""
    return ""


# -- the same again ----------------------------------------------------------------------------------------------------


async def played():
    """A scripted scenario with tools, steering, a failure that is tried again, and a changed prompt."""
    version = ["a"]

    @tool(parallel=True)
    async def work(n: int) -> str:
        """Work."""
        await anyio.sleep(0.001 * (3 - n))
        return str(n)

    script = [
        tool_calls(*[(f"c{n}", "work", {"n": n}) for n in range(3)]),
        fail("busy", after=[text_delta(0, "ha")]),
        text("done"),
        text("more"),
    ]
    async with Runtime(retry=None, clock=VirtualClock(tick=1)) as runtime:
        runtime.llm.register(["scripted"], ScriptedAdapter(script))
        handle = await runtime.agents.create(
            "s", provider="scripted", model="m", tools=[work], system=lambda: version[0]
        )

        async def again(payload, next):
            payload.agent.steer("and more")
            version[0] = "b"
            return {"kind": "retry"}

        handle.agent.on("agent/request-error", again)
        handle.agent.followup("go")
        await handle.agent.when_idle()
        return as_json(handle.agent.session.events)


def comparable(events):
    """Events without times, with ids by order of appearance, and consecutive frames as one."""
    merged = []
    for event in events:
        if event["type"] == "assistant/frame" and merged and merged[-1]["type"] == "assistant/frame":
            if merged[-1]["data"]["attempt"] == event["data"]["attempt"]:
                merged[-1]["data"]["chunks"] += event["data"]["chunks"]
                continue
        merged.append(event)
    names: dict[str, str] = {}
    seqs = {event["seq"]: place for place, event in enumerate(merged)}

    def plain(value, key=None):
        if isinstance(value, dict):
            return {k: plain(v, k) for k, v in value.items() if k != "time"}
        if key in {"seq", "headerSeq", "startSeq", "endSeq"}:
            return seqs[value]
        if key == "sourceEventSeqs":
            return [seqs[each] for each in value]
        if isinstance(value, list):
            return [plain(each) for each in value]
        if key == "id" and len(str(value)) == 32:
            return names.setdefault(value, f"message {len(names)}")
        return value

    return [plain(event) for event in merged]


def test_two_runs_of_one_scenario_give_the_same_log():
    first, *others = [comparable(anyio.run(played, backend=backend)) for backend in ("asyncio", "asyncio", "trio")]
    assert first[-1]["data"]["reason"] == {"kind": "completed"}
    for other in others:
        assert other == first
