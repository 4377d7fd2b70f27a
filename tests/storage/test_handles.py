"""What a store and its handles do, wherever they keep sessions."""

from __future__ import annotations

import pytest

from nbagent.errors import StorageError
from nbagent.storage import JsonlStore
from nbagent.types.events import SessionHeader

from .conftest import HEADER, event, events, refused

pytestmark = pytest.mark.anyio


async def test_what_was_appended_is_read_back_in_order(store):
    handle = await store.create(HEADER)
    handle.append(events(0, 2))
    handle.append(events(2, 3))
    assert await handle.read() == events(0, 3)
    await handle.close()
    again = await store.open("s1", "read")
    assert (again.header, again.access, again.dropped_tail) == (HEADER, "read", False)
    assert await again.read() == events(0, 3)


async def test_slices_are_contiguous_and_past_the_end_there_is_nothing(store):
    handle = await store.create(HEADER)
    handle.append(events(0, 5))
    assert await handle.read(1, 3) == events(1, 4)
    assert await handle.read(3) == events(3, 5)
    assert await handle.read(3, 100) == events(3, 5)
    assert await handle.read(5) == await handle.read(99, 1) == await handle.read(2, 0) == []


async def test_a_reader_works_beside_the_writer_and_never_goes_back(store):
    writer = await store.create(HEADER)
    writer.append([event(0)])
    reader = await store.open("s1", "read")
    assert await reader.read() == events(0, 1)
    writer.append([event(1)])
    assert await reader.read() == events(0, 2)
    await writer.close()
    assert await reader.read() == events(0, 2)


async def test_there_is_one_writer(store):
    writer = await store.create(HEADER)
    writer.append([event(0)])
    with refused("SESSION_LOCKED"):
        await store.open("s1", "write")
    await writer.close()
    following = await store.open("s1", "write")
    following.append([event(1)])
    await following.close()
    assert await (await store.open("s1", "read")).read() == events(0, 2)


async def test_a_session_is_created_once(store):
    handle = await store.create(HEADER)
    with refused("SESSION_ALREADY_EXISTS"):
        await store.create(HEADER)
    handle.append([event(0)])
    await handle.close()
    with refused("SESSION_ALREADY_EXISTS"):
        await store.create(HEADER)


async def test_an_unknown_session_is_not_found(store):
    assert await store.stat("s1") is None
    assert await store.list() == []
    for access in ("read", "write"):
        with refused("SESSION_NOT_FOUND") as error:
            await store.open("s1", access)
        assert '"s1"' in error.message


async def test_what_was_created_and_never_written_is_seen_here_and_then_never_was(store):
    handle = await store.create(HEADER)
    assert (await store.stat("s1")).event_count == 0
    assert [stat.header.id for stat in await store.list()] == ["s1"]
    assert await handle.read() == []
    await handle.flush()
    await handle.close()
    assert await store.stat("s1") is None
    assert await store.list() == []
    await (await store.create(HEADER)).close()


async def test_only_the_next_seq_is_taken(store):
    handle = await store.create(HEADER)
    for wrong in ([event(1)], [event(0), event(2)], [event(0), event(0)]):
        with refused("STORAGE_WRITE_FAILED") as error:
            handle.append(wrong)
        assert "expected" in error.message
    handle.append([])
    handle.append([event(0)])
    with refused("STORAGE_WRITE_FAILED"):
        handle.append([event(0)])
    assert await handle.read() == [event(0)]


async def test_a_read_handle_refuses_to_write(store):
    (await store.create(HEADER)).append([event(0)])
    reader = await store.open("s1", "read")
    with refused("HANDLE_READ_ONLY") as error:
        reader.append([event(1)])
    assert error.message == 'session "s1": append is not available on a read handle'
    with refused("HANDLE_READ_ONLY"):
        await reader.flush()


async def test_a_closed_handle_does_nothing_and_closes_twice(store):
    handle = await store.create(HEADER)
    handle.append([event(0)])
    await handle.close()
    await handle.close()
    with refused("HANDLE_CLOSED") as error:
        handle.append([event(1)])
    assert error.message == 'session "s1": append on a closed handle'
    with refused("HANDLE_CLOSED"):
        await handle.read()
    with refused("HANDLE_CLOSED"):
        await handle.flush()


async def test_a_second_close_does_not_take_the_session_from_its_next_writer(store):
    first = await store.create(HEADER)
    first.append([event(0)])
    await first.close()
    second = await store.open("s1", "write")
    await first.close()
    with refused("SESSION_LOCKED"):
        await store.open("s1", "write")
    second.append([event(1)])


@pytest.mark.parametrize("name", [".", "..", ".hidden", "a/b", "../x", "a b", "a\n", "a\0b", "ü", "x" * 129])
async def test_an_id_that_could_not_be_a_file_name_is_refused_everywhere(store, name):
    for call in (store.create(SessionHeader.new(name, 1)), store.open(name, "read"), store.stat(name)):
        with refused("INVALID_SESSION_ID"):
            await call


@pytest.mark.parametrize("name", ["a", "-", "_.-", "A9", "x" * 128, "talk.2", "a..b"])
async def test_an_id_of_letters_digits_dots_and_dashes_is_fine(store, name):
    handle = await store.create(SessionHeader.new(name, 1))
    handle.append([event(0)])
    await handle.close()
    assert (await store.stat(name)).header.id == name


async def test_a_header_of_another_version_is_refused(store):
    with refused("SESSION_FORMAT"):
        await store.create({"version": 2, "id": "s1", "createdAt": 1})


async def test_flushing_the_store_names_every_failure_and_flushes_the_others(tmp_path):
    store = JsonlStore(tmp_path)
    handles = [await store.create(SessionHeader.new(name, 1)) for name in "abc"]
    for handle in handles:
        handle.append([event(0)])
    await store.flush()
    handles[0].path.unlink()
    handles[2].path.unlink()
    with pytest.raises(ExceptionGroup) as failed:
        await store.flush()
    assert [failure.code for failure in failed.value.exceptions] == ["OWNERSHIP_LOST", "OWNERSHIP_LOST"]
    assert all(isinstance(failure, StorageError) for failure in failed.value.exceptions)
    for handle in handles:
        await handle.close()


async def test_sessions_are_listed_least_recently_written_first(tmp_path):
    import os

    store = JsonlStore(tmp_path)
    for age, name in ((3, "old"), (1, "new"), (2, "between")):
        handle = await store.create(SessionHeader.new(name, 1))
        handle.append(events(0, age))
        await handle.close()
        os.utime(handle.path, (1e9 - age, 1e9 - age))
    (tmp_path / "notes.jsonl").write_text("not a session\n")
    (tmp_path / "other.txt").write_text("x")
    listed = await store.list()
    assert [(stat.header.id, stat.event_count) for stat in listed] == [("old", 3), ("between", 2), ("new", 1)]
    assert all(stat.size_bytes == stat.path.stat().st_size for stat in listed)
