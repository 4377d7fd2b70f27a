"""Stores to test, and what is put in them."""

from __future__ import annotations

import pytest

from nbagent.errors import NbagentError
from nbagent.storage import JsonlStore, MemoryStore
from nbagent.types.events import Event, SessionHeader
from nbagent.types.frozen import freeze

HEADER = SessionHeader.new("s1", 5)


def event(seq, text="x"):
    """A small event that may stand anywhere."""
    return Event("someone/else", seq, 1000 + seq, freeze({"text": text}), ignorable=True)


def events(start, end):
    return [event(seq) for seq in range(start, end)]


async def keep(folder, *kept):
    """Store events and let go of them; answers the file."""
    handle = await JsonlStore(folder).create(HEADER)
    handle.append(list(kept))
    await handle.close()
    return handle.path


async def stored(folder):
    """What anybody else would read."""
    handle = await JsonlStore(folder).open("s1", "read")
    return await handle.read()


class refused:
    """The block raises an error with this code; the message is kept."""

    def __init__(self, code):
        self._raises = pytest.raises(NbagentError)
        self.code = code
        self.message = ""

    def __enter__(self):
        self._info = self._raises.__enter__()
        return self

    def __exit__(self, *failure):
        contained = self._raises.__exit__(*failure)
        if contained:
            assert self._info.value.code == self.code, self._info.value
            self.message = self._info.value.message
            assert self.message.count("\n") <= 1
        return contained


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path):
    """Both kinds, where they must behave alike."""
    return JsonlStore(tmp_path / "sessions") if request.param == "file" else MemoryStore()
