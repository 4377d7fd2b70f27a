from __future__ import annotations

import threading
import time
from importlib.metadata import version
from typing import Any

import pytest

from nbagent.notebook.views.budget import FlushTick, flush_tick
from nbagent.notebook.views.resync import DeltaChannel, difference
from nbagent.notebook.views.run_parts import RunParts, head_of
from nbagent.notebook.views.widget import honour_subshells, view_source
from nbagent.types.messages import image_block, text_block, tool_call_block
from nbagent.types.stream import block_start, text_delta
from tests.notebook.turns import TurnLog

# ---------------------------------------------------------------------------------------------- deltas


def applied(parts: list[dict[str, Any]], ops: list[list[Any]]) -> list[dict[str, Any]]:
    """What the page makes of `ops`; the same rules as `apply` in shared.js."""
    parts = [
        {name: list(value) if isinstance(value, list) else value for name, value in part.items()} for part in parts
    ]
    for kind, position, *rest in ops:
        match kind:
            case "cut":
                del parts[position:]
            case "put":
                parts[position : position + 1] = [rest[0]]
            case "set":
                parts[position].update(rest[0])
            case "add":
                parts[position][rest[0]] += rest[1]
            case "list":
                parts[position][rest[0]][rest[1] :] = rest[2]
    return parts


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([], [{"kind": "text", "blocks": ["a"]}]),
        ([{"kind": "text", "blocks": ["a", "b"]}], [{"kind": "text", "blocks": ["a", "B", "c"]}]),
        ([{"kind": "text", "blocks": ["a", "b"]}], [{"kind": "text", "blocks": []}]),
        ([{"kind": "reasoning", "text": "abc"}], [{"kind": "reasoning", "text": "abcdef"}]),
        ([{"kind": "reasoning", "text": "abc"}], [{"kind": "reasoning", "text": "xyz"}]),
        ([{"kind": "a"}, {"kind": "b"}, {"kind": "c"}], [{"kind": "a"}]),
        ([{"kind": "a", "x": 1}], [{"kind": "b", "y": 2}]),
        ([{"kind": "call", "state": "queued", "result": ""}], [{"kind": "call", "state": "done", "result": "r"}]),
    ],
)
def test_the_difference_turns_the_old_parts_into_the_new(old: list[Any], new: list[Any]) -> None:
    assert applied(old, difference(old, new)) == new


def test_text_that_grew_is_sent_as_what_was_added() -> None:
    assert difference([{"kind": "r", "text": "abc"}], [{"kind": "r", "text": "abcd"}]) == [["add", 0, "text", "d"]]


class Page:
    """Collects what a channel sends; `content` follows it as the page does."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.now = 0.0
        self.channel = DeltaChannel(self.messages.append, clock=lambda: self.now)

    def publish(self, head: dict[str, Any], parts: list[dict[str, Any]]) -> int:
        return self.channel.publish(head, parts, moment={"elapsed": 1})

    @property
    def content(self) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        for message in self.messages:
            parts = message["parts"] if message["op"] == "snapshot" else applied(parts, message["ops"])
        return parts


def test_the_first_message_is_whole_and_later_ones_are_numbered_deltas() -> None:
    page = Page()
    page.publish({"line": "Running"}, [{"kind": "r", "text": "a"}])
    page.now = 2
    page.publish({"line": "Running"}, [{"kind": "r", "text": "ab"}])
    page.publish({"line": "Finished"}, [{"kind": "r", "text": "ab"}])
    assert [(message["op"], message["seq"]) for message in page.messages] == [
        ("snapshot", 1),
        ("delta", 2),
        ("delta", 3),
    ]
    assert "head" not in page.messages[1]
    assert page.messages[2] == {"op": "delta", "seq": 3, "ops": [], "head": {"line": "Finished", "elapsed": 1}}
    assert page.content == [{"kind": "r", "text": "ab"}]


def test_nothing_is_sent_when_nothing_changed() -> None:
    page = Page()
    assert page.publish({}, [{"kind": "r"}]) > 0
    assert page.publish({}, [{"kind": "r"}]) == 0
    assert len(page.messages) == 1


def test_a_hello_is_answered_by_a_snapshot_even_when_nothing_changed() -> None:
    page = Page()
    page.publish({}, [{"kind": "r"}])
    page.channel.hello("page-1")
    page.publish({}, [{"kind": "r"}])
    assert page.messages[-1]["op"] == "snapshot" and page.messages[-1]["seq"] == 2


def test_a_page_that_opens_late_gets_whole_messages_in_the_first_second() -> None:
    page = Page()
    for text in ("a", "ab", "abc"):
        page.publish({}, [{"kind": "r", "text": text}])
        page.now += 0.3
    assert {message["op"] for message in page.messages} == {"snapshot"}


def test_a_page_that_a_busy_kernel_cannot_hear_is_put_right_within_seconds() -> None:
    page = Page()
    page.publish({}, [{"kind": "r", "text": "a"}])
    page.now = 3
    page.publish({}, [{"kind": "r", "text": "ab"}])
    page.now = 6
    page.publish({}, [{"kind": "r", "text": "abc"}])
    assert [message["op"] for message in page.messages] == ["snapshot", "delta", "snapshot"]


def test_large_content_is_only_sent_whole_when_asked_for() -> None:
    page = Page()
    page.publish({}, [{"kind": "r", "text": "x" * 100_000}])
    page.now = 6
    page.publish({}, [{"kind": "r", "text": "x" * 100_001}])
    assert page.messages[-1]["op"] == "delta"


def test_reloads_are_told_from_second_views() -> None:
    page = Page()
    page.channel.hello("one")
    page.channel.hello("one")
    assert page.channel.pages == 1
    page.channel.hello("two")
    assert page.channel.pages == 2


# ---------------------------------------------------------------------------------------------- parts


def test_only_the_open_block_of_a_streaming_answer_is_sent_again() -> None:
    log = TurnLog()
    page = Page()
    composed = RunParts()
    transcript = log.transcript
    log.session.subscribe(transcript.apply)
    log.begin()
    log.frame(block_start(0, "text"))
    page.now = 10
    sizes = []
    for number in range(200):
        log.frame(text_delta(0, f"Paragraph {number} with **some** words.\n\n"))
        page.now += 0.05
        sizes.append(page.publish(head_of(transcript.state()), composed.of(transcript.state())))
    deltas = [size for size, message in zip(sizes, page.messages, strict=True) if message["op"] == "delta"]
    assert len(deltas) > 150
    assert max(deltas) < 400
    assert page.content == composed.of(transcript.state())


def test_a_part_whose_item_did_not_change_is_the_same_object() -> None:
    log = TurnLog()
    log.begin()
    log.answer(text_block("a"), tool_call_block("c1", "echo", "{}"))
    composed = RunParts()
    first = composed.of(log.transcript.state())
    transcript = log.transcript
    before = composed.of(transcript.state())
    after = composed.of(transcript.state())
    assert len(first) == 3
    assert all(one is other for one, other in zip(before, after, strict=True))


def test_a_turn_of_hundreds_of_calls_stays_light() -> None:
    log = TurnLog()
    log.begin()
    log.answer(*(tool_call_block(f"c{number}", "read", '{"path":"x"}') for number in range(500)))
    for number in range(500):
        log.call(f"c{number}", "read")
        log.result(f"c{number}", "line\n" * 5_000)
    parts = RunParts().of(log.transcript.state())
    assert sum(len(str(part)) for part in parts) < 700_000


def test_pictures_beyond_the_room_of_a_view_are_named() -> None:
    log = TurnLog()
    log.begin()
    log.answer(tool_call_block("c1", "plot", "{}"))
    log.call("c1", "plot")
    log.result("c1", [image_block("image/png", "A" * 1_400_000) for _ in range(3)])
    pictures = RunParts().of(log.transcript.state())[1]["pictures"]
    assert [picture[:14] for picture in pictures] == ["data:image/png", "data:image/png", "image/png"]


# ---------------------------------------------------------------------------------------------- budget


class Talker:
    """A view that always has something to send."""

    def __init__(self, tick: FlushTick, size: int = 100) -> None:
        self.tick = tick
        self.size = size
        self.sent: list[float] = []

    def flush(self) -> int:
        self.sent.append(time.monotonic())
        self.tick.request(self)
        return self.size


def test_all_views_together_send_at_most_twenty_messages_a_second() -> None:
    tick = FlushTick()
    talkers = [Talker(tick) for _ in range(5)]
    for talker in talkers:
        tick.request(talker)
    time.sleep(1.2)
    for talker in talkers:
        talker.tick = FlushTick()
    times = sorted(moment for talker in talkers for moment in talker.sent)
    assert min(len(talker.sent) for talker in talkers) >= 2
    assert len([moment for moment in times if moment < times[0] + 1.0]) <= 20


def test_a_message_after_a_quiet_time_goes_at_once() -> None:
    tick = FlushTick()
    sent = threading.Event()

    class Once:
        def flush(self) -> int:
            sent.set()
            return 1

    started = time.monotonic()
    tick.request(Once())
    assert sent.wait(2)
    assert time.monotonic() - started < 0.5


def test_a_large_message_is_followed_by_a_longer_pause() -> None:
    tick = FlushTick()
    talker = Talker(tick, size=100_000)
    tick.request(talker)
    time.sleep(1.0)
    talker.tick = FlushTick()
    assert 2 <= len(talker.sent) <= 4


def test_a_view_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    tick = FlushTick()
    sent = threading.Event()

    class Failing:
        def flush(self) -> int:
            raise RuntimeError("broken view")

    class Working:
        def flush(self) -> int:
            sent.set()
            return 1

    tick.request(Failing())
    tick.request(Working())
    assert sent.wait(2)
    assert "a view could not send" in caplog.text


def test_the_process_has_one_tick() -> None:
    assert flush_tick() is flush_tick()


# ---------------------------------------------------------------------------------------------- widget


def test_a_views_script_is_one_module_that_loads_nothing() -> None:
    script = view_source("run.js")
    assert script.index("function follow") < script.index("export default")
    for forbidden in ("import ", "fetch(", "http:", "https:", "eval(", "XMLHttpRequest"):
        assert forbidden not in script
    assert "url(" not in view_source("run.css") and "@import" not in view_source("run.css")
    assert len(script) + len(view_source("run.css")) < 20_000


def test_the_kernels_reply_routing_is_the_one_that_is_guarded_against() -> None:
    from ipykernel.comm.comm import BaseComm

    release = tuple(int(part) for part in version("ipykernel").split(".")[:2])
    if release < (7, 4):
        pytest.skip("ipykernel routes by the page's choice before 7.4")
    assert hasattr(BaseComm, "_reply_subshell_for"), (
        "ipykernel has changed how it routes messages of the page: see nbagent.notebook.views.widget.honour_subshells"
    )
    comm = BaseComm.__new__(BaseComm)
    assert honour_subshells(comm)
    assert comm._reply_subshell_for({"method": "custom"}, "subshell-1") == "subshell-1"


def test_a_comm_without_reply_routing_is_left_alone() -> None:
    class Older:
        pass

    comm = Older()
    assert not honour_subshells(comm)
    assert not vars(comm)
