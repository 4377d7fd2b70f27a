"""Whatever users, tools and cancels do, the log stays whole."""

from __future__ import annotations

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent import Runtime, tool
from nbagent.testing import ScriptedAdapter, check_log, hang, text, tool_calls

answers = st.sampled_from(["text", "tools", "hang", "fail"])
actions = st.sampled_from(["followup", "steer", "inject", "cancel", "keep", "pause", "pause"])


@settings(max_examples=40, deadline=None)
@given(script=st.lists(answers, max_size=6), plan=st.lists(actions, max_size=12))
def test_every_turn_ends_every_call_is_answered_and_no_message_is_lost(script, plan):
    async def run():
        @tool(parallel=True)
        async def work(n: int) -> str:
            """Work."""
            await anyio.sleep(0.001)
            return str(n)

        items = {
            "text": text("ok"),
            "tools": tool_calls(("a", "work", {"n": 1}), ("b", "nope", {}), ("c", "work", {"n": 2})),
            "hang": hang(),
            "fail": [{"type": "finish", "reason": {"kind": "error", "error": {"message": "x", "code": "AUTH"}}}],
        }
        inserted, left = [], []
        async with Runtime(retry=None) as runtime:
            runtime.llm.register(["scripted"], ScriptedAdapter([items[name] for name in script] + [text("end")] * 40))
            handle = await runtime.agents.create(provider="scripted", model="m", tools=[work])
            agent = handle.agent
            agent.on("agent/inbox/inserted", lambda p: inserted.append(p.message.id))
            agent.on("agent/inbox/claimed", lambda p: left.append(p.message.id))
            agent.on("agent/inbox/discarded", lambda p: left.append(p.message.id))
            for number, action in enumerate(plan):
                if action == "pause":
                    await anyio.sleep(0.002)
                elif action in ("cancel", "keep"):
                    agent.cancel(keep_inbox=action == "keep")
                else:
                    getattr(agent, action)(f"{action} {number}")
            await anyio.sleep(0.005)
            agent.cancel(keep_inbox=True)
            with anyio.fail_after(5):
                await agent.when_idle()
            pending = [m.id for m in (*agent.inbox.next_turn, *agent.inbox.next_step)]
            return list(agent.session.events), inserted, left, pending

    events, inserted, left, pending = anyio.run(run)
    check_log(events)
    assert [e.data["turn"] for e in events if e.type == "turn/start"] == [
        e.data["turn"] for e in events if e.type == "turn/end"
    ]
    assert [e.data["callId"] for e in events if e.type == "tool/call"] == [
        e.data["message"].tool_call_id for e in sorted_by_call(events)
    ]
    assert sorted(inserted) == sorted(left + pending)


def sorted_by_call(events):
    calls = {e.seq: n for n, e in enumerate(events) if e.type == "tool/call"}
    results = [e for e in events if e.type == "tool/result"]
    return sorted(results, key=lambda e: calls[e.source_event_seqs[0]])
