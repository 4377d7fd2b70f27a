"""Stream notifications: a start, each durable chunk, exactly one end; and the frames behind them."""

from __future__ import annotations

import anyio
import pytest

from nbagent.testing import check_log, fail, hang, text, tool_calls
from nbagent.types.stream import text_delta

pytestmark = pytest.mark.anyio


def listen(w):
    return w.hear("agent/assistant-stream", lambda p: p)


def outcomes(notices):
    return [notice.outcome for notice in notices if notice.type == "end"]


async def test_a_success_is_a_start_its_chunks_and_a_committed_end(world):
    async with world(text("hello")) as w:
        durable = []

        def look(notice):
            frames = [chunk for event in w.of("assistant/frame") for chunk in event.data["chunks"]]
            durable.append((notice.type, len(frames), len(w.of("assistant/message"))))

        w.agent.on("agent/assistant-stream", look)
        notices = listen(w)
        await w.ask("hi")
        count = len(w.model.script[0].chunks)
        message = w.of("assistant/message")[0]
        assert [n.type for n in notices] == ["start", *["chunk"] * count, "end"]
        assert [n.index for n in notices] == [None, *range(count), count]
        assert [n.revision for n in notices] == list(range(1, count + 3))
        assert {(n.attempt_id, n.turn, n.step) for n in notices} == {("s1:1", 1, 1)}
        assert outcomes(notices) == [{"kind": "committed", "eventType": "assistant/message", "seq": message.seq}]
        assert all(frames > index for index, (kind, frames, _) in enumerate(durable[1:]) if kind == "chunk")
        assert [messages for _, _, messages in durable] == [*[0] * (count + 1), 1]


async def test_the_chunks_of_the_frames_are_those_of_the_model(world):
    script = text("hello")
    async with world(script) as w:
        notices = listen(w)
        await w.ask("hi")
        frames = w.of("assistant/frame")
        chunks = [chunk for event in frames for chunk in event.data["chunks"]]
        assert chunks == list(script.chunks)
        assert [n.chunk for n in notices if n.type == "chunk"] == chunks
        sizes = [len(event.data["chunks"]) for event in frames]
        assert [event.data["index"] for event in frames] == [sum(sizes[:n]) for n in range(len(sizes))]
        assert {event.data["attempt"] for event in frames} == {1}


async def test_attempts_and_revisions_count_over_steps_turns_and_retries(world):
    async with world(tool_calls(("c1", "nope", {})), fail("busy"), text("a"), text("b")) as w:

        @w.on("agent/request-error")
        async def again(payload, next):
            return {"kind": "retry"}

        notices = listen(w)
        await w.ask("1")
        await w.ask("2")
        starts = [(n.attempt_id, n.turn, n.step) for n in notices if n.type == "start"]
        assert starts == [("s1:1", 1, 1), ("s1:2", 1, 2), ("s1:3", 1, 2), ("s1:4", 2, 1)]
        assert [outcome["kind"] for outcome in outcomes(notices)] == ["committed", "aborted", "committed", "committed"]
        assert [n.revision for n in notices] == list(range(1, len(notices) + 1))
        attempts = [(e.data["turn"], e.data["step"], e.data["attempt"]) for e in w.of("assistant/frame")]
        assert sorted(set(attempts)) == [(1, 1, 1), (1, 2, 1), (1, 2, 2), (2, 1, 1)]


async def test_revisions_count_what_nobody_heard(world):
    async with world(text("a"), text("b")) as w:
        await w.ask("1")
        notices = listen(w)
        await w.ask("2")
        count = len(w.model.script[0].chunks)
        assert notices[0].revision == count + 3


@pytest.mark.parametrize(
    ("chunk", "kind"), [(text_delta(0, "partial"), "committed"), (text_delta(0, " \n"), "aborted")]
)
async def test_a_cancel_ends_committed_when_something_was_shown(world, chunk, kind):
    async with world(hang(chunk)) as w:
        notices = listen(w)
        await w.answering("hi")
        w.agent.cancel()
        await w.agent.when_idle()
        (outcome,) = outcomes(notices)
        assert outcome["kind"] == kind
        if kind == "committed":
            assert outcome["seq"] == w.of("assistant/message")[0].seq


async def test_a_failed_attempt_ends_aborted_before_recovery_is_asked(world):
    async with world(fail("busy", after=[text_delta(0, "half")])) as w:
        notices, then = listen(w), []

        @w.on("agent/request-error")
        async def look(payload, next):
            then.append([n.type for n in notices])
            return await next()

        await w.ask("hi")
        assert then == [["start", "chunk", "chunk", "end"]]
        assert outcomes(notices) == [{"kind": "aborted"}]


async def test_a_refused_message_ends_aborted_once_and_fails_the_turn(world):
    async with world(text("hello"), text("next")) as w:
        refused = []

        def veto(payload):
            if payload.event.type == "assistant/message" and not refused:
                refused.append(payload.event)
                raise ValueError("disk full")

        offered = []

        @w.on("agent/request-error")
        async def offer(payload, next):
            offered.append(payload)

        w.agent.on("session/validate", veto)
        notices = listen(w)
        await w.ask("hi")
        assert outcomes(notices) == [{"kind": "aborted"}]
        assert w.reasons == [{"kind": "error", "error": {"message": "disk full", "code": "UNKNOWN"}}]
        assert offered == []
        await w.ask("again")
        assert w.reasons[1] == {"kind": "completed"}
        check_log(w.events)


async def test_a_listener_that_breaks_the_stream_keeps_the_chunks_that_came(world):
    async with world(text("hello")) as w:

        @w.on("llm/stream")
        async def cut(payload, next):
            return broken(await next())

        notices = listen(w)
        await w.ask("hi")
        assert [n.type for n in notices] == ["start", "chunk", "chunk", "end"]
        assert outcomes(notices) == [{"kind": "aborted"}]
        assert w.reasons[0]["error"] == {"message": "cut", "code": "UNKNOWN"}
        assert w.of("assistant/message") == []


async def broken(stream):
    count = 0
    async for chunk in stream:
        yield chunk
        count += 1
        if count == 2:
            raise ValueError("cut")


async def test_a_stream_that_cannot_be_made_has_no_notifications(world):
    async with world(text("hello")) as w:

        @w.on("llm/stream")
        async def refuse(payload, next):
            raise ValueError("no stream")

        notices = listen(w)
        await w.ask("hi")
        assert notices == []
        assert w.reasons[0]["error"]["message"] == "no stream"


async def test_a_cancel_while_the_stream_is_made_has_no_notifications(world):
    async with world(text("hello")) as w:
        closed = []

        class Made:
            def __aiter__(self):
                return self

            async def __anext__(self):
                raise AssertionError

            async def aclose(self):
                closed.append(True)

        @w.on("llm/stream")
        async def stop(payload, next):
            w.agent.cancel()
            return Made()

        notices = listen(w)
        await w.ask("hi")
        assert (notices, closed) == ([], [True])
        assert w.reasons == [{"kind": "aborted", "reason": {"kind": "user"}}]


async def test_a_cancel_closes_a_stream_that_a_listener_made(world):
    async with world() as w:
        closed = []

        class Endless:
            def __aiter__(self):
                return self

            async def __anext__(self):
                if w.of("assistant/frame"):
                    await anyio.sleep(30)
                return text_delta(0, "partial")

            async def aclose(self):
                await anyio.sleep(0.01)
                closed.append(True)

        @w.on("llm/stream")
        async def serve(payload, next):
            return Endless()

        await w.answering("hi")
        w.agent.cancel()
        with anyio.fail_after(2):
            await w.agent.when_idle()
        assert closed == [True]
        assert w.of("assistant/message")[0].data["interrupted"] is True


async def test_a_listener_of_the_stream_may_send(world):
    async with world(text("a"), text("b")) as w:
        once = []

        def send(notice):
            if notice.type == "chunk" and not once:
                once.append(True)
                w.agent.steer("more")

        w.agent.on("agent/assistant-stream", send)
        await w.ask("hi")
        assert w.prompts == ["hi", "more"]
        assert len(w.of("turn/start")) == 1


async def test_a_listener_that_fails_disturbs_nothing(world):
    async with world(text("hello")) as w:

        def fails(notice):
            raise ValueError("listener")

        w.agent.on("agent/assistant-stream", fails)
        notices = listen(w)
        await w.ask("hi")
        assert w.reasons == [{"kind": "completed"}]
        assert notices[-1].outcome["kind"] == "committed"
