"""The program that runs all checks tells truly how they went."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.__main__ import PARTS, ROOT, Result, _read, _together

REPORT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><failure message="no"/></testcase><testcase name="c"><error message="no"/></testcase>
<testcase name="d"><skipped message="why"/></testcase><testcase name="e"><skipped message="why"/></testcase>
</testsuite></testsuites>"""


def checks(*parts: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests", *parts],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_report_is_counted(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert _read(report) == Result(passed=1, failed=2, skipped=2, reasons=["why"])


def test_parts_are_added_up() -> None:
    together = _together(Result(1, 0, 2, ["why"]), Result(1, 1, 2, ["why"], "what"))
    assert together == Result(2, 1, 4, ["why"], "what")


def test_an_unknown_part_is_refused_and_the_known_ones_are_named() -> None:
    done = checks("nothing")
    assert done.returncode == 2
    assert all(part in done.stderr for part in PARTS)


@pytest.mark.slow
def test_without_a_browser_exactly_its_tests_are_skipped() -> None:
    done = checks("browser", PATH=os.devnull)
    line, last = done.stdout.splitlines()
    assert done.returncode == 0
    assert "there is no Chromium here" in line
    assert re.fullmatch(r"0 passed, 0 failed, [1-9]\d* skipped", last)
