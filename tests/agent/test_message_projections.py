"""Events of others that rewrite messages, in the sessions of a runtime."""

from __future__ import annotations

import pytest

from nbagent import Runtime
from nbagent.errors import StorageError
from nbagent.storage import JsonlStore
from nbagent.testing import ScriptedAdapter, sent_requests, text
from nbagent.types.messages import text_block

pytestmark = pytest.mark.anyio
MODEL = {"provider": "scripted", "model": "m"}


def hide(event, messages):
    seq = event.data["seq"]
    return {seq: messages[seq].replace(content=[text_block("[hidden]")])}


async def test_the_model_is_sent_rewritten_messages_in_a_new_series(world):
    async with world(text("one"), text("two")) as w:
        w.runtime.message_projections.register("someone/hide", hide)
        await w.ask("a secret")
        (said,) = w.of("user/message")
        w.agent.session.append("someone/hide", {"seq": said.seq})
        await w.ask("go on")
        assert w.sent("user") == [["a secret"], ["[hidden]", "go on"]]
        assert w.header_reasons == ["initial", "series"]
        assert [request.messages for request in w.model.requests] == [
            request.messages
            for request in sent_requests(w.agent.session, message_projections=w.runtime.message_projections)
        ]


async def test_a_summary_is_written_from_rewritten_messages(world):
    async with world(text("one"), text("a summary")) as w:
        w.runtime.message_projections.register("someone/hide", hide)
        await w.ask("a secret")
        (said,) = w.of("user/message")
        w.agent.session.append("someone/hide", {"seq": said.seq})
        await w.agent.compact()
        asked = w.model.requests[-1].messages[-1].text
        assert "[hidden]" in asked
        assert "a secret" not in asked


async def hidden(folder):
    async with Runtime(store=JsonlStore(folder)) as runtime:
        runtime.message_projections.register("someone/hide", hide)
        runtime.llm.register(["scripted"], ScriptedAdapter([text("one")]))
        handle = await runtime.agents.create(session_id="t", **MODEL)
        handle.agent.followup("a secret")
        await handle.agent.when_idle()
        said = next(event for event in handle.agent.session.events if event.type == "user/message")
        handle.agent.session.append("someone/hide", {"seq": said.seq})


@pytest.mark.parametrize("verb", ["resume", "fork"])
async def test_a_stored_session_is_taken_up_only_with_the_interpreter(tmp_path, verb):
    await hidden(tmp_path)
    path = tmp_path / "t.jsonl"
    stored = path.read_bytes()
    line = next(n for n, each in enumerate(stored.splitlines(), start=1) if b"someone/hide" in each)
    async with Runtime(store=JsonlStore(tmp_path)) as runtime:
        with pytest.raises(StorageError) as failure:
            await getattr(runtime.agents, verb)("t", **MODEL)
        assert failure.value.code == "SESSION_FORMAT"
        assert f"{path} line {line} " in failure.value.message
        assert '"someone/hide"' in failure.value.message
        assert path.read_bytes() == stored
        runtime.message_projections.register("someone/hide", hide)
        handle = await getattr(runtime.agents, verb)("t", **MODEL)
        assert handle.agent.session.messages()[0].text == "[hidden]"
