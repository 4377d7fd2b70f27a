"""The runtime context: told when it changed, superseded by the next snapshot, restored when compaction took it away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbagent.agent.context import is_context
from nbagent.testing import as_json, fail, sent_requests, text, tool_calls
from nbagent.types.messages import text_block, user_message

pytestmark = pytest.mark.anyio

FIRST = "Current runtime context. This snapshot supersedes earlier runtime-context snapshots.\n\n"
CLEARED = "Current runtime context: none. Earlier runtime-context snapshots no longer apply."


def snapshots(w):
    return [event for event in w.of("user/message") if is_context(event.data)]


def told(w):
    return [event.data.text.removeprefix(FIRST) for event in snapshots(w)]


def in_request(w, number):
    return [m.text.removeprefix(FIRST) for m in w.model.requests[number].messages if is_context(m)]


class Mode:
    """A context section that a test changes, and says how often it was read."""

    def __init__(self, w, text):
        self.text = text
        self.reads = 0
        self.remove = w.agent.context("mode", self.read)

    def read(self):
        self.reads += 1
        return self.text


async def test_it_is_told_after_the_prompt_when_it_changed_and_when_it_ended(world):
    async with world(*[text("x")] * 5) as w:
        mode = Mode(w, "Mode: read-only.")
        await w.ask("1")
        await w.ask("2")
        mode.text = "Mode: write."
        await w.ask("3")
        mode.remove()
        await w.ask("4")
        await w.ask("5")
        assert w.prompts == ["1", FIRST + "Mode: read-only.", "2", "3", FIRST + "Mode: write.", "4", CLEARED, "5"]
        assert w.header_reasons == ["initial"]
        assert [as_json(r) for r in sent_requests(w.agent.session)] == [as_json(r) for r in w.model.requests]


async def test_sections_are_joined_in_order_and_named_in_the_source(world):
    async with world(text("x"), text("y")) as w:
        removers = [w.agent.context("second", "B", order=2), w.runtime.prompt.context("first", lambda: "A", order=1)]
        removers.append(w.agent.context("empty", ""))
        await w.ask("1")
        for remove in removers:
            remove()
        await w.ask("2")
        snapshot, cleared = snapshots(w)
        assert snapshot.data.text == FIRST + "A\n\nB"
        assert snapshot.data.source["form"] == "snapshot"
        assert snapshot.data.source["sections"] == ["first", "second"]
        assert cleared.data.source == {k: v for k, v in snapshot.data.source.items() if k != "sections"}


async def test_an_agent_that_never_had_context_is_never_told_of_none(world):
    async with world(text("x"), text("y")) as w:
        w.agent.context("empty", lambda: None)
        await w.ask("1")
        w.shadow(w.of("user/message")[0].seq)
        await w.ask("2")
        assert snapshots(w) == []


async def test_a_snapshot_alone_opens_a_step(world):
    async with world(text("x")) as w:
        Mode(w, "on")
        # A wake whose message is taken out before it is claimed still opens its turn.
        w.agent.on("agent/inbox/inserted", lambda p: w.agent.inbox.remove(p.message.id))
        await w.ask("gone")
        assert told(w) == ["on"]
        assert w.prompts == [FIRST + "on"]
        assert w.reasons[-1] == {"kind": "completed"}
        assert len(w.model.requests) == 1


async def test_facts_are_read_again_when_the_request_is_admitted(world):
    async with world(text("x")) as w:
        mode = Mode(w, "early")

        @w.on("agent/request")
        async def later(payload, next):
            mode.text = "late"
            return await next()

        await w.ask("hi")
        assert w.prompts == ["hi", FIRST + "late"]
        assert in_request(w, 0) == ["late"]


async def test_facts_that_ended_before_admission_are_not_told(world):
    async with world(text("x")) as w:
        mode = Mode(w, "early")

        @w.on("agent/request")
        async def later(payload, next):
            mode.remove()
            return await next()

        await w.ask("hi")
        assert w.prompts == ["hi"]


async def test_facts_that_appear_before_admission_come_after_the_batch(world):
    async with world(text("x")) as w:

        @w.on("agent/request")
        async def later(payload, next):
            Mode(w, "late")
            return await next()

        await w.ask("hi")
        assert w.prompts == ["hi", FIRST + "late"]


async def test_the_refreshed_snapshot_stands_where_the_decision_put_it(world):
    async with world(text("x")) as w:
        mode = Mode(w, "early")

        @w.on("agent/pre-step")
        async def first(payload, next):
            decision = await next()
            prompt, snapshot = decision.messages
            return replace(decision, messages=[snapshot, prompt])

        @w.on("agent/request")
        async def later(payload, next):
            mode.text = "late"
            return await next()

        await w.ask("hi")
        assert w.prompts == [FIRST + "late", "hi"]


async def test_a_listener_of_the_assembly_may_fix_the_context_of_the_step(world):
    async with world(text("x")) as w:
        mode = Mode(w, "early")

        @w.on("system-prompt/assemble")
        async def fix(payload, next):
            assembly = await next()
            return replace(assembly, context=[replace(each, text="fixed") for each in assembly.context])

        @w.on("agent/request")
        async def later(payload, next):
            mode.text = "late"
            return await next()

        await w.ask("hi")
        assert told(w) == ["fixed"]


async def test_an_unchanged_snapshot_that_compaction_removed_is_told_again(world):
    async with world(*[text("x")] * 3) as w:
        Mode(w, "on")
        await w.ask("1")
        w.shadow(snapshots(w)[0].seq)
        await w.ask("2")
        await w.ask("3")
        assert told(w) == ["on", "on"]
        assert in_request(w, 2) == ["on"]


async def test_an_unrelated_replacement_does_not_repeat_it(world):
    async with world(*[text("x")] * 2) as w:
        Mode(w, "on")
        await w.ask("1")
        w.shadow(w.of("user/message")[0].seq)
        await w.ask("2")
        assert told(w) == ["on"]


async def test_a_snapshot_that_is_removed_in_pre_step_is_restored_at_admission(world):
    async with world(*[text("x")] * 2) as w:
        Mode(w, "on")
        await w.ask("1")

        @w.on("agent/pre-step")
        async def compact(payload, next):
            decision = await next()
            w.shadow(snapshots(w)[0].seq)
            return decision

        await w.ask("2")
        assert w.prompts[-3:] == ["summary", "2", FIRST + "on"]
        assert in_request(w, 1) == ["on"]


async def test_a_snapshot_that_is_removed_in_request_error_is_restored_on_the_retry(world):
    async with world(text("x"), fail("full", code="CONTEXT_WINDOW_EXCEEDED"), text("y")) as w:
        Mode(w, "on")
        await w.ask("1")

        @w.on("agent/request-error")
        async def compact(payload, next):
            w.shadow(*[event.seq for event in w.of("user/message")][:1], snapshots(w)[0].seq)
            return {"kind": "retry"}

        await w.ask("2")
        assert w.prompts == ["1", FIRST + "on", "2", "summary", FIRST + "on"]
        assert in_request(w, 2) == ["on"]
        assert [m.text for m in w.model.requests[2].messages if m.role == "user"] == ["summary", "2", FIRST + "on"]


async def test_every_retry_is_told_what_is_so_now(world):
    async with world(fail("a"), fail("b"), text("y")) as w:
        mode = Mode(w, "0")

        @w.on("agent/request-error")
        async def again(payload, next):
            mode.text = str(payload.attempt)
            return {"kind": "retry"}

        await w.ask("hi")
        assert w.prompts == ["hi", FIRST + "0", FIRST + "1", FIRST + "2"]
        assert in_request(w, 2) == ["0", "1", "2"]


async def test_it_is_read_at_every_step(world):
    async with world(tool_calls(("c1", "nope", {})), text("y")) as w:
        mode = Mode(w, "0")
        w.agent.on("tools/result", lambda p: setattr(mode, "text", "1"))
        await w.ask("hi")
        assert told(w) == ["0", "1"]
        assert in_request(w, 1) == ["0", "1"]


async def test_a_retained_message_of_another_shape_is_superseded(world):
    async with world(*[text("x")] * 3) as w:
        Mode(w, "on")
        await w.ask("1")
        own = snapshots(w)[0].data
        two_blocks = user_message("").replace(content=[text_block(own.text), text_block("more")], source=own.source)
        w.agent.session.append("user/message", two_blocks, surface_op="append")
        await w.ask("2")
        await w.ask("3")
        assert len(snapshots(w)) == 3
        assert told(w)[2] == "on"


async def test_a_resume_remembers_the_newest_snapshot_that_is_still_there(world):
    async with world(*[text("x")] * 5) as w:
        mode = Mode(w, "old")
        await w.ask("1")
        mode.text = "new"
        await w.ask("2")
        await w.resume()
        Mode(w, "new")
        await w.ask("3")
        assert told(w) == ["old", "new"]
        w.shadow(snapshots(w)[1].seq)
        await w.resume()
        Mode(w, "old")
        await w.ask("4")
        assert told(w) == ["old", "new"]


async def test_after_a_resume_ended_facts_are_cleared(world):
    async with world(*[text("x")] * 2) as w:
        Mode(w, "on")
        await w.ask("1")
        await w.resume()
        await w.ask("2")
        assert w.prompts[-1] == CLEARED
