"""Which calls overlap, and that everything else about them keeps the model's order."""

from __future__ import annotations

import anyio
import pytest

from nbagent import tool
from nbagent.testing import text, tool_calls
from nbagent.tools import current_call
from tests.agent.floor import Floor, calls

pytestmark = pytest.mark.anyio


class Files(Floor):
    """Tools that touch one file each, and one that vouches for nothing."""

    def __init__(self):
        super().__init__()

        @tool(reads=lambda arguments: arguments["name"].split("-")[0])
        async def load(name: str) -> str:
            """Read the file before the dash."""
            return await self.body(name)

        @tool(writes=lambda arguments: arguments["name"].split("-")[0])
        async def store(name: str) -> str:
            """Write the file before the dash."""
            return await self.body(name)

        self.tools = [*self.tools, load, store]

    async def settle(self, *names):
        """Let bodies go one after another."""
        for name in names:
            self.release(name)
            with anyio.fail_after(5):
                while f"-{name}" not in self.order:
                    await anyio.sleep(0.002)


def asked(*pairs):
    return tool_calls(*[(name, kind, {"name": name}) for kind, name in pairs])


def results(w):
    return [event.data["message"].tool_call_id for event in w.of("tool/result")]


class TestResources:
    async def test_calls_of_different_files_overlap(self, world):
        files = Files()
        async with world(
            asked(("store", "a-1"), ("store", "b-1"), ("load", "c-1")), text("ok"), tools=files.tools
        ) as w:
            w.agent.followup("go")
            await files.until("+a-1", "+b-1", "+c-1", in_order=False)
            await files.settle("c-1", "b-1", "a-1")
            await w.agent.when_idle()
            assert results(w) == ["a-1", "b-1", "c-1"]

    async def test_readers_of_one_file_overlap_and_its_writer_waits_for_them(self, world):
        files = Files()
        script = asked(("load", "a-1"), ("load", "a-2"), ("store", "a-3"), ("load", "a-4"))
        async with world(script, text("ok"), tools=files.tools) as w:
            w.agent.followup("go")
            await files.until("+a-1", "+a-2", in_order=False)
            await files.settle("a-2")
            assert "+a-3" not in files.order
            await files.settle("a-1", "a-3")
            assert files.order[4:6] == ["+a-3", "-a-3"]
            await files.settle("a-4")
            await w.agent.when_idle()
            assert files.order[-2:] == ["+a-4", "-a-4"]

    async def test_a_call_that_waits_holds_back_those_behind_it(self, world):
        files = Files()
        async with world(asked(("store", "a-1"), ("load", "a-2"), ("load", "b-3")), text("ok"), tools=files.tools) as w:
            w.agent.followup("go")
            await files.until("+a-1")
            assert [event.data["callId"] for event in w.of("tool/call")] == ["a-1"]
            files.release("a-1")
            await files.until("+a-1", "-a-1", "+a-2", "+b-3", in_order=False)
            await files.settle("a-2", "b-3")
            await w.agent.when_idle()

    async def test_calls_with_resources_overlap_with_parallel_ones_and_not_with_exclusive_ones(self, world):
        files = Files()
        script = asked(("store", "a-1"), ("read", "r"), ("write", "w"), ("store", "b-1"))
        async with world(script, text("ok"), tools=files.tools) as w:
            w.agent.followup("go")
            await files.until("+a-1", "+r", in_order=False)
            await files.settle("r", "a-1", "w", "b-1")
            await w.agent.when_idle()
            assert files.order[2:] == ["-r", "-a-1", "+w", "-w", "+b-1", "-b-1"]

    async def test_they_share_the_pool(self, world):
        files = Files()
        script = asked(("store", "a-1"), ("store", "b-1"), ("store", "c-1"))
        async with world(script, text("ok"), tools=files.tools, max_parallel_tool_calls=2) as w:
            w.agent.followup("go")
            await files.until("+a-1", "+b-1", in_order=False)
            await files.settle("b-1")
            await files.settle("c-1", "a-1")
            await w.agent.when_idle()
            assert files.order[2] == "-b-1"

    async def test_resources_are_read_again_right_before_a_start(self, world):
        files, shared = Files(), [True]

        @tool(writes="one")
        async def late(name: str) -> str:
            """Write one thing."""
            return await files.body(name)

        @tool(writes=lambda arguments: ["one"] if shared[0] else [])
        async def other(name: str) -> str:
            """Write the same thing, for now."""
            return await files.body(name)

        script = asked(("late", "l"), ("load", "b-1"), ("other", "o"))
        async with world(script, text("ok"), tools=[*files.tools, late, other]) as w:
            w.agent.followup("go")
            await files.until("+l", "+b-1", in_order=False)
            shared[0] = False
            await files.settle("b-1")
            await files.settle("o")
            assert "-l" not in files.order
            await files.settle("l")
            await w.agent.when_idle()
            assert results(w) == ["l", "b-1", "o"]

    async def test_resources_that_cannot_be_told_make_the_call_exclusive(self, world):
        files = Files()
        script = tool_calls(("c1", "store", {"name": "a-1"}), ("c2", "load", {}), ("c3", "store", {"name": "b-1"}))
        async with world(script, text("ok"), tools=files.tools) as w:
            w.agent.followup("go")
            await files.until("+a-1")
            await files.settle("a-1", "b-1")
            await w.agent.when_idle()
            codes = [event.data.get("error", {}).get("code") for event in w.of("tool/result")]
            assert codes == [None, "INVALID_ARGUMENTS", None]


class TestClassification:
    @pytest.mark.parametrize("rule", [lambda arguments: 1, lambda arguments: "yes", lambda arguments: 1 / 0, False])
    async def test_a_classifier_that_does_not_answer_true_means_one_by_one(self, world, rule):
        floor = Floor()

        @tool(parallel=rule)
        async def unsure(name: str) -> str:
            """Do it."""
            return await floor.body(name)

        async with world(asked(("unsure", "a"), ("unsure", "b")), text("ok"), tools=[unsure]) as w:
            floor.release("a")
            floor.release("b")
            await w.ask("go")
            assert floor.order == ["+a", "-a", "+b", "-b"]

    async def test_an_unknown_tool_is_a_barrier(self, world):
        floor = Floor()
        async with world(asked(("read", "a"), ("nope", "b"), ("read", "c")), text("ok"), tools=floor.tools) as w:
            w.agent.followup("go")
            await floor.until("+a")
            floor.release("a")
            await floor.until("+a", "-a", "+c")
            floor.release("c")
            await w.agent.when_idle()
            assert results(w) == ["a", "b", "c"]

    async def test_a_tool_that_another_replaces_meanwhile_is_classified_anew(self, world):
        floor = Floor()
        exclusive = tool(name="read")(floor.tools[1].function)
        async with world(calls("r1", "r2", "r3"), text("ok")) as w:
            remove = w.agent.tools.register(floor.tools[0])

            def replace(payload):
                if not floor.order[1:]:
                    remove()
                    w.agent.tools.register(exclusive)

            w.agent.on("tools/pre-execute", passing(replace))
            for name in ("r1", "r2", "r3"):
                floor.release(name)
            await w.ask("go")
            assert floor.order == ["+r1", "-r1", "+r2", "-r2", "+r3", "-r3"]

    async def test_an_observer_of_results_that_makes_the_next_call_exclusive_lets_the_pool_drain_first(self, world):
        floor, alone = Floor(), set()

        @tool(parallel=lambda arguments: arguments["name"] not in alone)
        async def work(name: str) -> str:
            """Work."""
            return await floor.body(name)

        script = asked(*[("work", name) for name in ("c1", "c2", "c3", "c4")])
        async with world(script, text("ok"), tools=[work], max_parallel_tool_calls=2) as w:
            w.agent.on("tools/result", lambda payload: alone.add("c3"))
            w.agent.followup("go")
            await floor.until("+c1", "+c2", in_order=False)
            floor.release("c1")
            with anyio.fail_after(5):
                while results(w) != ["c1"]:
                    await anyio.sleep(0.002)
            assert "+c3" not in floor.order
            for name in ("c2", "c3", "c4"):
                floor.release(name)
            await w.agent.when_idle()
            assert floor.order[2:] == ["-c1", "-c2", "+c3", "-c3", "+c4", "-c4"]

    async def test_the_limit_is_that_of_the_moment_at_which_the_group_begins(self, world):
        floor = Floor()
        async with world(calls("r1", "r2", "w", "r3", "r4"), text("ok"), tools=floor.tools) as w:
            w.runtime.max_parallel_tool_calls = 1
            w.agent.followup("go")
            await floor.until("+r1")
            w.runtime.max_parallel_tool_calls = 2
            floor.release("r1")
            await floor.until("+r1", "-r1", "+r2")
            floor.release("r2")
            floor.release("w")
            await floor.until("+r1", "-r1", "+r2", "-r2", "+w", "-w", "+r3", "+r4", in_order=False)
            floor.release("r3")
            floor.release("r4")
            await w.agent.when_idle()


class TestOrder:
    async def test_no_result_is_logged_before_those_of_the_calls_ahead(self, world):
        floor = Floor()
        async with world(calls("r1", "r2"), text("ok"), tools=floor.tools) as w:
            w.agent.followup("go")
            await floor.until("+r1", "+r2", in_order=False)
            floor.release("r2")
            await floor.until("+r1", "+r2", "-r2", in_order=False)
            await anyio.sleep(0.01)
            assert results(w) == []
            floor.release("r1")
            await w.agent.when_idle()
            assert results(w) == ["r1", "r2"]
            seqs = [event.seq for event in w.of("tool/call")]
            assert [event.source_event_seqs for event in w.of("tool/result")] == [[seq] for seq in seqs]

    async def test_policy_and_judgement_see_the_calls_in_the_models_order(self, world):
        floor, seen = Floor(), []
        async with world(calls("r1", "r2", "r3"), text("ok"), tools=floor.tools) as w:
            w.agent.on("tools/pre-execute", passing(lambda payload: seen.append(f"pre {payload.call.call_id}")))
            w.agent.on("tools/post-execute", passing(lambda payload: seen.append(f"post {payload.call.call_id}")))
            w.agent.followup("go")
            await floor.until("+r1", "+r2", "+r3", in_order=False)
            for name in ("r3", "r2", "r1"):
                floor.release(name)
            await w.agent.when_idle()
            assert seen == ["pre r1", "pre r2", "pre r3", "post r1", "post r2", "post r3"]

    async def test_denied_and_failed_policies_take_their_place_among_the_results(self, world):
        floor, judged = Floor(), []
        async with world(calls("r1", "r2", "r3"), text("ok"), tools=floor.tools) as w:

            @w.on("tools/pre-execute")
            async def policy(payload, next):
                if payload.call.call_id == "r2":
                    return {"kind": "deny", "reason": "blocked by policy"}
                if payload.call.call_id == "r3":
                    raise RuntimeError("pre exploded")
                return await next()

            w.agent.on("tools/post-execute", passing(lambda payload: judged.append(payload.call.call_id)))
            floor.release("r1")
            await w.ask("go")
            assert floor.order == ["+r1", "-r1"]
            assert judged == ["r1", "r2"]
            texts = [event.data["message"].text for event in w.of("tool/result")]
            assert texts == ["r1", "Error: blocked by policy", "Error: pre exploded"]

    async def test_every_call_runs_even_when_an_earlier_one_concludes_the_turn(self, world):
        ran = []

        @tool
        async def work(n: int) -> str:
            """Work."""
            ran.append(n)
            current_call().conclude_turn()
            return str(n)

        script = tool_calls(("c1", "work", {"n": 1}), ("c2", "work", {"n": 2}))
        async with world(script, tools=[work]) as w:
            await w.ask("go")
            assert ran == [1, 2]
            assert results(w) == ["c1", "c2"]
            assert w.reasons == [{"kind": "completed"}]
            assert len(w.model.requests) == 1


@pytest.mark.parametrize(("raw", "shown"), [("not json", "not json"), ("", {}), ('{"name": "r"}', {"name": "r"})])
async def test_every_stage_sees_the_arguments_the_model_wrote(world, raw, shown):
    floor, seen = Floor(), []
    floor.release("r")
    async with world(tool_calls(("c1", "read", raw)), text("ok"), tools=floor.tools) as w:
        for point in ("tools/pre-execute", "tools/execute", "tools/post-execute"):
            w.agent.on(point, passing(lambda payload: seen.append(payload.call.arguments)))
        w.agent.on("tools/result", lambda payload: seen.append(payload.call.arguments))
        await w.ask("go")
        assert seen == [shown] * 4
        assert w.of("tool/call")[0].data["arguments"] == raw
        assert bool(floor.order) is (raw.startswith("{"))


def passing(observe):
    """A listener that looks at the payload and goes on."""

    async def listener(payload, next):
        observe(payload)
        return await next()

    return listener
