"""Several processes and one session: one writer, which may die at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from nbagent.storage import JsonlStore

from .conftest import HEADER, event, events, keep, refused, stored

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are killed with signals here"),
]

WRITER = """
import os, sys
import anyio
from nbagent.storage import JsonlStore
from nbagent.types.events import Event, SessionHeader
from nbagent.types.frozen import freeze

async def main(folder):
    handle = await JsonlStore(folder).create(SessionHeader.new("s1", 5))
    for seq in range(10**9):
        text = "y" * (seq * 37 % 9000)
        handle.append([Event("someone/else", seq, 1, freeze({"text": text}), ignorable=True)])
        os.write(1, b".")

anyio.run(main, sys.argv[1])
"""

HOLDER = """
import os, sys, time
import anyio
from nbagent.storage import JsonlStore

async def main(folder, forks):
    handle = await JsonlStore(folder).open("s1", "write")
    # The child says who it is when it runs: until then it has not let go of what it inherited.
    if forks and not os.fork():
        os.write(1, b"%d\\n" % os.getpid())
        time.sleep(60)
        os._exit(0)
    if not forks:
        os.write(1, b"ready\\n")
    sys.stdin.read()
    await handle.close()

anyio.run(main, sys.argv[1], sys.argv[2] == "fork")
"""


@contextmanager
def process(code, *arguments, **environment):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize("written", [1, 40, 400])
async def test_a_writer_that_was_killed_lost_nothing_that_was_acknowledged(tmp_path, written):
    with process(WRITER, tmp_path) as writer:
        acknowledged = 0
        while acknowledged < written:
            acknowledged += len(os.read(writer.stdout.fileno(), 65536))
        writer.send_signal(signal.SIGKILL)
        acknowledged += len(writer.communicate()[0])
    handle = await JsonlStore(tmp_path).open("s1", "write")
    found = await handle.read()
    assert acknowledged <= len(found) <= acknowledged + 1
    assert [each.seq for each in found] == list(range(len(found)))
    handle.append([event(len(found))])
    await handle.close()
    assert await stored(tmp_path) == [*found, event(len(found))]


async def test_a_second_process_is_told_who_has_the_session_and_gets_it_when_that_one_dies(tmp_path):
    await keep(tmp_path, event(0))
    with process(HOLDER, tmp_path, "", JPY_SESSION_NAME="/home/me/report.ipynb") as holder:
        holder.stdout.readline()
        with refused("SESSION_LOCKED") as error:
            await JsonlStore(tmp_path).open("s1", "write")
        assert '"s1"' in error.message
        assert f"process {holder.pid}, report.ipynb" in error.message
        assert "close it there" in error.message
        assert await stored(tmp_path) == [event(0)]
    handle = await JsonlStore(tmp_path).open("s1", "write")
    handle.append([event(1)])
    await handle.close()


async def test_a_second_process_gets_the_session_when_the_first_one_closes_it(tmp_path):
    await keep(tmp_path, event(0))
    with process(HOLDER, tmp_path, "") as holder:
        holder.stdout.readline()
        holder.communicate(timeout=30)
        assert holder.returncode == 0
    await (await JsonlStore(tmp_path).open("s1", "write")).close()


async def test_children_of_a_dead_kernel_do_not_keep_its_session(tmp_path):
    await keep(tmp_path, event(0))
    with process(HOLDER, tmp_path, "fork") as holder:
        child = int(holder.stdout.readline())
        holder.kill()
        holder.wait()
        try:
            await (await JsonlStore(tmp_path).open("s1", "write")).close()
        finally:
            os.kill(child, signal.SIGKILL)


async def test_of_two_that_created_one_session_the_first_to_write_has_it(tmp_path):
    # Two stores stand for two kernels: neither has written, so neither can know of the other.
    first, second = [await JsonlStore(tmp_path).create(HEADER) for _ in range(2)]
    first.append([event(0)])
    with refused("SESSION_LOCKED"):
        second.append([event(0, "other")])
    await first.close()
    with refused("SESSION_ALREADY_EXISTS"):
        second.append([event(0, "other")])
    await second.close()
    assert await stored(tmp_path) == [event(0)]


async def test_a_failed_open_lets_go_of_the_lock(tmp_path):
    path = await keep(tmp_path, *events(0, 3))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\n", b"\n{\n", 1))
    handle = await JsonlStore(tmp_path).open("s1", "write")
    with refused("SESSION_DAMAGED"):
        await handle.read()
    await handle.close()
    path.write_bytes(content)
    await (await JsonlStore(tmp_path).open("s1", "write")).close()


async def test_a_stale_note_of_a_holder_decides_nothing(tmp_path):
    await keep(tmp_path, event(0))
    (tmp_path / ".locks" / "s1.holder").write_text('{"pid": 1, "host": "elsewhere"}')
    await (await JsonlStore(tmp_path).open("s1", "write")).close()
