"""Session files that are checked and repaired at the command line."""

from __future__ import annotations

import anyio
import orjson
import pytest

from nbagent.cli import main
from nbagent.session import check_log
from nbagent.storage import JsonlStore
from nbagent.storage.repaired_copy import read_log
from nbagent.types.stream import text_delta
from tests.session.logs import answer, call, calls, close_step, end_turn, frame, header, open_step, say, session


def kept(log, folder):
    async def keep():
        handle = await JsonlStore(folder).create(log.header)
        handle.append(list(log.events))
        await handle.close()

    anyio.run(keep)
    return folder / f"{log.id}.jsonl"


def whole():
    log = session()
    say(log, "a")
    open_step(log)
    answer(log, "b")
    close_step(log)
    end_turn(log)
    return log


def left():
    """A closed turn with unanswered calls, and one that is open."""
    log = session()
    open_step(log)
    answer(log, *calls("c1", "c2"))
    call(log, "c1")
    close_step(log)
    end_turn(log)
    open_step(log, 2)
    header(log)
    frame(log, text_delta(0, "cut"), place={"turn": 2, "step": 1})
    return log


TOLD = """\
{path}: session s, 10 events, to repair:
  before line 6: call c1 of turn 1, step 1 has no result and gets one; it began, its outcome is not known
  before line 6: call c2 of turn 1, step 1 has no result and gets one; it was not recorded as started
  at the end: the answer that was cut in turn 2 becomes a message
  at the end: step 1 of turn 2 is open and is ended
  at the end: turn 2 is open and is ended as interrupted
"""


@pytest.mark.parametrize("verb", [["check"], ["repair"], ["repair", "--write"]])
def test_a_file_that_is_whole_needs_nothing(tmp_path, capsys, verb):
    path = kept(whole(), tmp_path)
    assert main(["sessions", *verb, str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: session s, 6 events, nothing to repair\n"
    assert list(tmp_path.glob("*.jsonl")) == [path]


def test_a_check_tells_what_a_repaired_copy_would_change_and_how_to_get_one(tmp_path, capsys):
    path = kept(left(), tmp_path)
    assert main(["sessions", "check", str(path)]) == 1
    told = TOLD.format(path=path)
    assert capsys.readouterr().out == f"{told}A repaired copy: nbagent sessions repair {path} --write\n"


def test_a_repair_writes_nothing_unless_it_is_told_to(tmp_path, capsys):
    path = kept(left(), tmp_path)
    before = path.read_bytes()
    assert main(["sessions", "repair", str(path)]) == 0
    told = TOLD.format(path=path)
    assert capsys.readouterr().out == f"{told}Nothing was written: add --write for a repaired copy.\n"
    assert list(tmp_path.glob("*.jsonl")) == [path]
    assert path.read_bytes() == before


def test_a_repaired_copy_is_a_whole_session_beside_the_original(tmp_path, capsys):
    path = kept(left(), tmp_path)
    before = path.read_bytes()
    assert main(["sessions", "repair", "--write", str(path)]) == 0
    copy = tmp_path / "s-repaired.jsonl"
    assert f"Written: {copy}; {path} is as it was.\n" in capsys.readouterr().out
    assert path.read_bytes() == before
    log = read_log(copy)
    assert log.header == {**read_log(path).header, "id": "s-repaired"}
    check_log(log.events)
    assert [event.type for event in log.events].count("tool/result") == 2
    assert main(["sessions", "check", str(copy)]) == 0


def test_a_copy_never_takes_the_place_of_another_file(tmp_path, capsys):
    path = kept(left(), tmp_path)
    for _ in range(2):
        assert main(["sessions", "repair", "--write", str(path)]) == 0
    assert "s-repaired-2.jsonl" in capsys.readouterr().out
    first, second = (read_log(tmp_path / f"{name}.jsonl") for name in ("s-repaired", "s-repaired-2"))
    assert first.events == second.events


def test_a_record_that_was_cut_is_left_out_of_the_copy(tmp_path, capsys):
    log = whole()
    path = kept(log, tmp_path)
    with path.open("ab") as file:
        file.write(b'{"type":"turn/st')
    assert main(["sessions", "check", str(path)]) == 1
    assert "  at the end: a record that was cut in the middle is left out\n" in capsys.readouterr().out
    assert main(["sessions", "repair", "--write", str(path)]) == 0
    assert read_log(tmp_path / "s-repaired.jsonl").events == list(log.events)


def damaged(path, number, change):
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number - 1] = change(lines[number - 1])
    path.write_bytes(b"".join(lines))


FAULTS = [
    (4, lambda _line: b"{nonsense\n", True),
    (3, lambda line: line.replace(b'"turn":1', b'"turn":7'), True),
    (2, lambda line: line.replace(b"user/message", b"someone/else").replace(b',"surfaceOp":"append"', b""), False),
]


@pytest.mark.parametrize(("line", "change", "damage"), FAULTS)
@pytest.mark.parametrize("verb", [["check"], ["repair", "--write"]])
def test_damage_is_named_by_file_and_line_and_nothing_is_written(tmp_path, capsys, verb, line, change, damage):
    path = kept(whole(), tmp_path)
    damaged(path, line, change)
    before = path.read_bytes()
    assert main(["sessions", *verb, str(path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert f"{path} " in told.err
    assert f"line {line} " in told.err
    assert ("damaged" in told.err) == damage
    assert path.read_bytes() == before
    assert list(tmp_path.glob("*.jsonl")) == [path]


def test_a_file_that_is_no_session_is_one_line(tmp_path, capsys):
    missing, empty, other = (tmp_path / name for name in ("missing.jsonl", "empty.jsonl", "other.jsonl"))
    empty.touch()
    other.write_bytes(orjson.dumps({"type": "nothing"}) + b"\n")
    for path, words in ((missing, "there is no session in"), (empty, "there is no session in"), (other, "in line 1")):
        assert main(["sessions", "check", str(path)]) == 1
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        assert words in told
        assert str(path) in told


def test_a_copy_that_cannot_be_written_leaves_nothing(tmp_path, capsys, monkeypatch):
    path = kept(left(), tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nbagent.storage.jsonl_file.os.fsync", full)
    assert main(["sessions", "repair", "--write", str(path)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert list(tmp_path.glob("*.jsonl")) == [path]


@pytest.mark.parametrize("arguments", [["sessions"], ["sessions", "mend"], ["sessions", "check"]])
def test_a_wrong_use_is_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "usage: nbagent sessions" in capsys.readouterr().err


def test_it_explains_itself(capsys):
    with pytest.raises(SystemExit) as end:
        main(["sessions", "repair", "--help"])
    assert end.value.code == 0
    assert "Without --write nothing is written." in capsys.readouterr().out
