"""Disks that are full, folders that vanish, files that somebody else touches."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import orjson
import pytest

from nbagent.errors import StorageError
from nbagent.session import Session
from nbagent.storage import JsonlStore

from .conftest import HEADER, event, events, keep, refused, stored

pytestmark = pytest.mark.anyio

FULL_DISK = """
import os, resource, sys
import anyio
from nbagent.errors import StorageError
from nbagent.session import Session
from nbagent.storage import JsonlStore
from nbagent.types.events import SessionHeader

async def main(folder, limit):
    header = SessionHeader.new("s1", 5)
    handle = await JsonlStore(folder).create(header)
    session = Session(header)
    session.storage = lambda event: handle.append([event])
    told = []
    session.subscribe(lambda event: told.append(event.seq))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        while True:
            session.append("someone/else", {"text": "y" * 300}, ignorable=True)
    except StorageError as failure:
        print(failure.code, failure.message)
    kept = os.path.getsize(handle.path)
    assert kept <= limit
    assert told == list(range(len(session.events)))
    assert await handle.read() == session.events[:]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    session.append("someone/else", {"text": "there is room again"}, ignorable=True)
    await handle.flush()
    await handle.close()
    reader = await JsonlStore(folder).open("s1", "read")
    assert await reader.read() == session.events[:]
    assert not reader.dropped_tail
    print("kept", len(session.events))

anyio.run(main, sys.argv[1], int(sys.argv[2]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are for POSIX")
@pytest.mark.parametrize(("limit", "kept"), [(0, 1), (20, 1), (300, 1), (1000, 3), (5000, 13)])
def test_a_full_disk_refuses_the_append_keeps_what_was_acknowledged_and_goes_on_later(tmp_path, limit, kept):
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path), str(limit)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    first, last = run.stdout.splitlines()
    assert first.startswith(f"STORAGE_WRITE_FAILED session file {tmp_path / 's1.jsonl'} cannot be written: ")
    assert last == f"kept {kept}"


async def test_a_storage_failure_refuses_the_append_of_the_session_and_takes_no_seq(tmp_path):
    handle = await JsonlStore(tmp_path / "sessions").create(HEADER)
    session = Session(HEADER)
    session.storage = lambda appended: handle.append([appended])
    session.append("turn/start", {"turn": 1})
    hidden = tmp_path / "hidden"
    handle.path.rename(hidden)
    with refused("OWNERSHIP_LOST"):
        session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    assert [each.type for each in session.events] == ["turn/start"]
    hidden.rename(handle.path)
    assert session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}}).seq == 1
    await handle.close()
    assert await stored(tmp_path / "sessions") == session.events[:]


async def test_a_folder_that_vanished_is_not_written_to_and_not_made_again(tmp_path):
    folder = tmp_path / "sessions"
    handle = await JsonlStore(folder).create(HEADER)
    handle.append([event(0)])
    shutil.rmtree(folder)
    for _ in range(2):
        with refused("OWNERSHIP_LOST") as error:
            handle.append([event(1)])
        assert "s1.jsonl was removed" in error.message
    with refused("OWNERSHIP_LOST"):
        await handle.flush()
    await handle.close()
    assert not folder.exists()


async def test_a_file_that_was_replaced_is_left_alone(tmp_path):
    handle = await JsonlStore(tmp_path).create(HEADER)
    handle.append([event(0)])
    handle.path.unlink()
    handle.path.write_text("something else\n")
    with refused("OWNERSHIP_LOST"):
        handle.append([event(1)])
    await handle.close()
    assert (tmp_path / "s1.jsonl").read_text() == "something else\n"


@pytest.mark.parametrize("read_first", [True, False])
async def test_what_another_program_appended_is_never_cut_away(tmp_path, read_first):
    path = await keep(tmp_path, event(0))
    writer = await JsonlStore(tmp_path).open("s1", "write")
    if read_first:
        await writer.read()
    with path.open("ab") as file:
        file.write(orjson.dumps(event(1).to_json()) + b"\n")
    with pytest.raises(StorageError):
        writer.append([event(1, "mine")])
    await writer.close()
    assert await stored(tmp_path) == events(0, 2)


async def test_a_file_that_was_cut_while_it_was_open_is_not_continued(tmp_path):
    handle = await JsonlStore(tmp_path).create(HEADER)
    handle.append(events(0, 3))
    os.truncate(handle.path, handle.path.stat().st_size - 4)
    with refused("OWNERSHIP_LOST"):
        handle.append([event(3)])
    await handle.close()


async def test_a_session_that_vanished_between_open_and_append_does_not_start_anew(tmp_path):
    path = await keep(tmp_path, *events(0, 2))
    writer = await JsonlStore(tmp_path).open("s1", "write")
    await writer.read()
    path.unlink()
    with refused("OWNERSHIP_LOST"):
        writer.append([event(2)])
    await writer.close()
    assert not path.exists()


async def test_a_file_in_place_of_the_folder_is_found_out_at_once_with_a_way_on(tmp_path):
    folder = tmp_path / "talk.nbagent"
    folder.write_text("I am a file")
    with refused("STORAGE_UNAVAILABLE") as error:
        await JsonlStore(folder).create(HEADER)
    assert str(folder) in error.message
    assert "--session-dir" in error.message
    assert "NBAGENT_NOTEBOOK" in error.message
    with pytest.raises(StorageError):
        await JsonlStore(folder).open("s1", "read")
    assert await JsonlStore(folder).list() == []
    assert folder.read_text() == "I am a file"


async def test_a_folder_below_a_file_is_found_out_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with refused("STORAGE_UNAVAILABLE") as error:
        await JsonlStore(tmp_path / "file" / "talk.nbagent").create(HEADER)
    assert "is not a folder" in error.message


async def test_a_folder_that_became_unusable_after_creation_refuses_the_append_and_recovers(tmp_path):
    folder = tmp_path / "sessions"
    handle = await JsonlStore(folder).create(HEADER)
    folder.write_text("in the way")
    with pytest.raises(StorageError) as failure:
        handle.append([event(0)])
    assert failure.value.code in {"STORAGE_UNAVAILABLE", "STORAGE_WRITE_FAILED"}
    folder.unlink()
    handle.append([event(0)])
    await handle.close()
    assert await stored(folder) == [event(0)]


@contextmanager
def as_one_of_many():
    """Without the rights of root, who may write everywhere."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.skipif(sys.platform == "win32", reason="needs permissions that are enforced")
async def test_a_folder_without_write_permission_is_found_out_at_once(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with as_one_of_many(), refused("STORAGE_UNAVAILABLE") as error:
            await JsonlStore(tmp_path / "sessions").create(HEADER)
        assert "cannot be written" in error.message
    finally:
        tmp_path.chmod(0o700)


async def test_a_folder_in_place_of_the_file_is_a_clear_failure(tmp_path):
    (tmp_path / "s1.jsonl").mkdir()
    with refused("STORAGE_UNAVAILABLE"):
        await JsonlStore(tmp_path).open("s1", "read")
    assert await JsonlStore(tmp_path).list() == []
