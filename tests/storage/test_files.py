"""What stands in a session file, and what is made of one that was cut or damaged."""

from __future__ import annotations

import tempfile

import anyio
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.errors import StorageError
from nbagent.session import Session, check_log
from nbagent.session.repair import interrupted_turn_closers
from nbagent.session.session import restored_event
from nbagent.storage import JsonlStore
from nbagent.types.events import Event
from nbagent.types.frozen import freeze
from nbagent.types.messages import Message, user_message
from tests.session.logs import legal_logs

from .conftest import HEADER, event, events, keep, refused, stored

pytestmark = pytest.mark.anyio


async def test_a_file_is_a_header_line_and_one_line_an_event(tmp_path):
    message = user_message("grüße\n\u2028", id="m")
    path = await keep(tmp_path, Event("user/message", 0, 7, message, "append"))
    content = path.read_bytes()
    assert content.endswith(b"}\n")
    assert [orjson.loads(line) for line in content.split(b"\n")[:-1]] == [
        {"type": "session", "version": 1, "id": "s1", "createdAt": 5},
        {"type": "user/message", "seq": 0, "time": 7, "data": message, "surfaceOp": "append"},
    ]


async def test_messages_come_back_as_messages(tmp_path):
    splice = {"target": "next-turn", "start": 0, "inserted": [user_message("a", id="a")]}
    await keep(
        tmp_path,
        Event("user/message", 0, 1, user_message("hi", id="m"), "append"),
        Event("agent/inbox/spliced", 1, 1, freeze(splice)),
    )
    said, spliced = await stored(tmp_path)
    assert type(said.data) is type(spliced.data["inserted"][0]) is Message


async def test_nothing_is_left_of_a_session_that_was_never_written(tmp_path):
    handle = await JsonlStore(tmp_path / "deep" / "talk.nbagent").create(HEADER)
    await handle.flush()
    await handle.close()
    assert list(tmp_path.iterdir()) == []


async def test_nothing_but_the_file_is_seen_in_the_folder(tmp_path):
    handle = await JsonlStore(tmp_path).create(HEADER)
    handle.append([event(0)])
    assert [path.name for path in tmp_path.iterdir() if path.name[0] != "."] == ["s1.jsonl"]
    await handle.close()
    assert [path.name for path in tmp_path.iterdir() if path.name[0] != "."] == ["s1.jsonl"]


async def test_a_file_cut_at_any_byte_gives_the_longest_valid_prefix_and_is_continued(tmp_path):
    kept = [event(0, "a"), event(1, "ü" * 9), event(2, '"\\'), event(3, "d")]
    path = await keep(tmp_path, *kept)
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    for size in range(len(lines[0]), len(content) + 1):
        path.write_bytes(content[:size])
        whole = content[:size].count(b"\n") - 1
        assert await stored(tmp_path) == kept[:whole]
        writer = await JsonlStore(tmp_path).open("s1", "write")
        assert await writer.read() == kept[:whole]
        assert writer.dropped_tail == (content[size - 1 : size] != b"\n")
        assert path.read_bytes() == content[:size]
        if whole < len(kept):
            writer.append([kept[whole]])
            assert path.read_bytes() == b"".join(lines[: whole + 2])
        await writer.close()


async def test_a_torn_tail_is_trimmed_by_an_append_that_read_nothing_before(tmp_path):
    path = await keep(tmp_path, *events(0, 2))
    path.write_bytes(path.read_bytes()[:-3])
    writer = await JsonlStore(tmp_path).open("s1", "write")
    writer.append([event(1, "new")])
    await writer.close()
    assert await stored(tmp_path) == [event(0), event(1, "new")]


async def test_a_header_that_was_never_completed_is_no_session_yet(tmp_path):
    path = await keep(tmp_path, event(0))
    header = path.read_bytes().splitlines()[0]
    for size in range(len(header) + 1):
        path.write_bytes(header[:size])
        with refused("SESSION_NOT_FOUND"):
            await JsonlStore(tmp_path).open("s1", "write")
        assert await JsonlStore(tmp_path).list() == []
        await keep(tmp_path, event(0))
        assert await stored(tmp_path) == [event(0)]


BROKEN = {
    "empty": b"",
    "half": b'{"type":"some',
    "no object": b"[1]",
    "null": b"null",
    "zeros": b"\0\0\0\0",
    "no text": b"\xff\xfe{",
    "nothing in it": b"{}",
    "two records": b'{"type":"x"}{"type":"y"}',
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("line", [1, 2, 4, 6])
async def test_damage_is_reported_with_file_and_line_and_never_mended(tmp_path, line, broken):
    path = await keep(tmp_path, *events(0, 5))
    lines = path.read_bytes().split(b"\n")
    lines[line - 1] = broken
    damaged = b"\n".join(lines)
    path.write_bytes(damaged)
    for access in ("read", "write"):
        with pytest.raises(StorageError) as failure:
            handle = await JsonlStore(tmp_path).open("s1", access)
            try:
                if access == "write":
                    handle.append([event(5)])
                await handle.read()
            finally:
                await handle.close()
        assert failure.value.code in {"SESSION_DAMAGED", "SESSION_FORMAT"}
        assert f"{path}" in failure.value.message
        assert f"line {line}" in failure.value.message
    assert path.read_bytes() == damaged


async def test_a_missing_line_and_a_line_twice_are_damage(tmp_path):
    path = await keep(tmp_path, *events(0, 4))
    lines = path.read_bytes().splitlines(keepends=True)
    for wrong, where in ((lines[:2] + lines[3:], 3), (lines[:3] + lines[2:], 4)):
        path.write_bytes(b"".join(wrong))
        with refused("SESSION_DAMAGED") as error:
            await stored(tmp_path)
        assert f"line {where}" in error.message


async def test_a_type_that_is_not_known_is_handed_out_for_whoever_interprets_it(tmp_path):
    await keep(tmp_path, event(0), Event("turn/paused", 1, 1, freeze({})))
    assert [each.type for each in await stored(tmp_path)] == ["someone/else", "turn/paused"]


async def test_a_file_of_a_later_version_or_of_another_session_is_told_from_damage(tmp_path):
    path = await keep(tmp_path, event(0))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"version":1', b'"version":2'))
    with refused("SESSION_FORMAT") as error:
        await stored(tmp_path)
    assert "update jupyter-nbagent" in error.message
    path.write_bytes(whole)
    path.rename(tmp_path / "s2.jsonl")
    with refused("SESSION_FORMAT") as error:
        await JsonlStore(tmp_path).open("s2", "read")
    assert 'does not match session id "s2"' in error.message


async def test_a_session_that_was_written_through_reopens_as_it_was(tmp_path):
    handle = await JsonlStore(tmp_path).create(HEADER)
    live = Session(HEADER)
    live.storage = lambda appended: handle.append([appended])
    live.append("turn/start", {"turn": 1})
    live.append("user/message", user_message("hi"), surface_op="append")
    live.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    await handle.close()
    again = Session(HEADER, await stored(tmp_path))
    assert again.events[:3] == live.events[:]
    assert again.events[3].type == "session/end-seed"
    assert again.messages() == live.messages()


@settings(max_examples=40, deadline=None)
@given(legal_logs().filter(len), st.floats(0, 1))
def test_a_session_that_was_cut_anywhere_is_closed_and_continued_as_a_whole_log(lines, share):
    async def resume(folder):
        path = await keep(folder, *[restored_event(line, seq) for seq, line in enumerate(lines)])
        content = path.read_bytes()
        start = content.index(b"\n") + 1
        path.write_bytes(content[: start + round(share * (len(content) - start))])
        writer = await JsonlStore(folder).open("s1", "write")
        found = await writer.read()
        assert [each.to_json() for each in found] == lines[: len(found)]
        closers = interrupted_turn_closers(found)
        writer.append(closers)
        session = Session(HEADER, [*found, *closers])
        session.storage = lambda appended: writer.append([appended])
        writer.append(session.events[session.first_live_seq :])
        turns = [each.data["turn"] for each in found if each.type == "turn/start"]
        session.append("turn/start", {"turn": len(turns) + 1})
        await writer.close()
        assert await stored(folder) == session.events[:]
        check_log(session.events)

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(resume, folder)
