"""Creation, resume and teardown: complete, or nothing."""

from __future__ import annotations

import anyio
import pytest

from nbagent import CancelSignal, Runtime
from nbagent.errors import InputError, LifecycleError, StorageError
from nbagent.storage import JsonlStore, MemoryStore
from nbagent.testing import ScriptedAdapter, check_log, hang, text, tool_calls

pytestmark = pytest.mark.anyio


async def test_a_session_goes_on_in_another_runtime(world, tmp_path):
    async with world(text("one"), store=JsonlStore(tmp_path)) as w:
        await w.ask("first")
    async with Runtime(store=JsonlStore(tmp_path)) as runtime:
        model = ScriptedAdapter([text("two")])
        runtime.llm.register(["scripted"], model)
        handle = await runtime.agents.resume("s1")
        assert handle.agent.options.model == "m"
        handle.agent.followup("second")
        await handle.agent.when_idle()
        events = list(handle.agent.session.events)
        check_log(events)
        assert [e.data["turn"] for e in events if e.type == "turn/start"] == [1, 2]
        assert [e.data["reason"] for e in events if e.type == "request/header"] == ["initial", "resume"]
        assert [m.text for m in model.requests[0].messages if m.role != "system"] == ["first", "one", "second"]


async def test_pending_input_survives_and_does_not_wake(world, tmp_path):
    async with world(hang(), store=JsonlStore(tmp_path)) as w:
        w.agent.followup("running")
        w.agent.followup("waiting")
        await anyio.sleep(0.05)
    async with Runtime(store=JsonlStore(tmp_path)) as runtime:
        handle = await runtime.agents.resume("s1")
        assert handle.agent.status == "idle"
        assert [m.text for m in handle.agent.inbox.next_turn] == ["waiting"]


async def test_a_log_cut_anywhere_resumes_with_every_call_answered(world, tmp_path):
    async with world(
        tool_calls(("c1", "nope", {}), ("c2", "nope", {})), text("done"), store=JsonlStore(tmp_path / "whole")
    ) as w:
        await w.ask("go")
    lines = (tmp_path / "whole" / "s1.jsonl").read_bytes().splitlines(keepends=True)
    for cut in range(2, len(lines) + 1):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        (folder / "s1.jsonl").write_bytes(b"".join(lines[:cut]))
        async with Runtime(store=JsonlStore(folder)) as runtime:
            model = ScriptedAdapter([text("on")])
            runtime.llm.register(["scripted"], model)
            handle = await runtime.agents.resume("s1", provider="scripted", model="m")
            handle.agent.followup("next")
            await handle.agent.when_idle()
            check_log(list(handle.agent.session.events))
            messages = model.requests[0].messages
            called = [b["id"] for m in messages if m.role == "assistant" for b in m.tool_calls]
            assert [m.tool_call_id for m in messages if m.role == "tool"] == called


async def test_an_unused_agent_leaves_no_file(world, tmp_path):
    async with world(store=JsonlStore(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []


async def test_resuming_an_unknown_session_leaves_nothing(tmp_path):
    async with Runtime(store=JsonlStore(tmp_path)) as runtime:
        with pytest.raises(StorageError) as failure:
            await runtime.agents.resume("nope")
        assert failure.value.code == "SESSION_NOT_FOUND"
        assert runtime.agents.list() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stage", ["setup", "commit", "created"])
async def test_a_failed_creation_leaves_nothing_and_the_id_is_free(stage):
    async with Runtime() as runtime:
        edges = []
        runtime.on("agent/disposed", lambda p: edges.append("disposed"))
        broken = [True]

        async def created(payload):
            edges.append("created")
            if stage == "created" and broken:
                raise ValueError("veto")

        runtime.on("agent/created", created)

        async def setup(scope, agent):
            if stage == "setup" and broken:
                raise ValueError("veto")

            def commit():
                if stage == "commit" and broken:
                    raise ValueError("veto")

            return commit

        with pytest.raises(ValueError, match="veto"):
            await runtime.agents.create(session_id="a", setup=setup)
        assert runtime.agents.get("a") is None
        assert runtime.sessions.get("a") is None
        assert edges == (["created", "disposed"] if stage == "created" else [])
        broken.clear()
        handle = await runtime.agents.create(session_id="a", setup=setup)
        assert runtime.agents.get("a") is handle.agent


async def test_input_sent_during_setup_runs_after_creation():
    async with Runtime() as runtime:
        runtime.llm.register(["scripted"], ScriptedAdapter([text("ok")]))

        async def setup(scope, agent):
            agent.followup("early")
            assert agent.status == "idle"

        handle = await runtime.agents.create(provider="scripted", model="m", setup=setup)
        await handle.agent.when_idle()
        assert handle.agent.session.messages()[-1].text == "ok"


async def test_a_creation_is_abandoned_by_its_signal():
    async with Runtime() as runtime:
        signal = CancelSignal()

        async def setup(scope, agent):
            signal.cancel("changed my mind")
            await anyio.sleep(10)

        with anyio.fail_after(2), pytest.raises(LifecycleError, match="changed my mind"):
            await runtime.agents.create(session_id="a", setup=setup, signal=signal)
        assert runtime.agents.get("a") is None


async def test_the_same_id_twice_is_refused():
    async with Runtime() as runtime:
        await runtime.agents.create(session_id="a")
        with pytest.raises(LifecycleError, match="already exists"):
            await runtime.agents.create(session_id="a")


@pytest.mark.parametrize(
    "options", [{"max_tokens": 0}, {"max_steps": -1}, {"max_tokens": 1.5}, {"reasoning_effort": ""}]
)
async def test_bad_options_are_refused_before_anything_exists(options):
    async with Runtime() as runtime:
        with pytest.raises(InputError):
            await runtime.agents.create(session_id="a", **options)
        assert runtime.sessions.list() == []


@pytest.mark.parametrize("session_id", ["", "../up", ".hidden", "a/b", "x" * 129])
async def test_an_id_that_cannot_name_a_file_is_refused_everywhere(session_id):
    async with Runtime() as runtime:
        await runtime.agents.create("a")
        for make in (
            lambda: runtime.agents.create(session_id),
            lambda: runtime.agents.resume(session_id),
            lambda: runtime.agents.fork("a", session_id=session_id),
        ):
            with pytest.raises(InputError) as failure:
                await make()
            assert failure.value.code == "INVALID_SESSION_ID"


async def test_a_disposed_agent_says_how_to_go_on(world):
    async with world(text("ok"), store=MemoryStore()) as w:
        await w.ask("hi")
        await w.handle.dispose()
        await w.handle.dispose()
        with pytest.raises(LifecycleError, match="resume"):
            w.agent.followup("x")
        assert w.runtime.agents.get("s1") is None
        handle = await w.runtime.agents.resume("s1")
        assert len(handle.agent.session.messages()) == 3


async def test_maintenance_holds_back_turns(world):
    async with world(text("ok")) as w:
        release = anyio.Event()

        async def job(signal):
            await release.wait()

        w.agent.run_maintenance(job)
        with pytest.raises(LifecycleError, match="already has active work"):
            w.agent.run_maintenance(job)
        w.agent.followup("hi")
        assert w.of("turn/start") == []
        release.set()
        await w.agent.when_idle()
        assert w.reasons == [{"kind": "completed"}]


async def test_an_agent_is_refused_on_another_thread(world):
    async with world() as w:

        def elsewhere():
            with pytest.raises(LifecycleError) as failure:
                w.agent.followup("hi")
            return failure.value.code

        assert await anyio.to_thread.run_sync(elsewhere) == "WRONG_THREAD"


async def test_a_stored_log_that_breaks_a_rule_is_named_by_its_line_and_left_as_it_is(world, tmp_path):
    async with world(text("one"), store=JsonlStore(tmp_path)) as w:
        await w.ask("first")
    path = tmp_path / "s1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if b'"turn/start"' in line)
    lines[place] = lines[place].replace(b'"turn":1', b'"turn":7')
    path.write_bytes(b"".join(lines))
    async with Runtime(store=JsonlStore(tmp_path)) as runtime:
        with pytest.raises(StorageError) as failure:
            await runtime.agents.resume("s1")
        assert failure.value.code == "SESSION_DAMAGED"
        assert f"s1.jsonl is damaged in line {place + 1} (" in failure.value.message
    assert path.read_bytes() == b"".join(lines)


async def test_an_agent_of_a_failed_creation_takes_no_input():
    async with Runtime() as runtime:
        kept = []

        async def setup(scope, agent):
            kept.append(agent)
            raise ValueError("veto")

        with pytest.raises(ValueError, match="veto"):
            await runtime.agents.create(session_id="a", setup=setup)
        with pytest.raises(LifecycleError):
            kept[0].followup("hi")


async def test_the_routes_of_an_agent_are_closed_with_it(world):
    class Closing(ScriptedAdapter):
        closed = False

        async def aclose(self):
            Closing.closed = True

    async with world() as w:
        w.agent.llm.register(["own"], Closing([]))
        await w.handle.dispose()
        assert Closing.closed
