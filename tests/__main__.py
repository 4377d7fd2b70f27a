"""`python -m tests [PART ...]` runs all checks of the repository, or the parts that are named.

Each part is a program of its own. One line a part says how it went, the output of a part is shown when it fails, and the
last line counts: every test is one, and so is each of lint and types.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.browser.harness import chromium
from tests.local_model.server import missing as missing_model

ROOT = Path(__file__).parents[1]
_SETTINGS = ("DEEPSEEK_API_KEY", "OPENAI_API_KEY", "NBAGENT_")
"""What a person may have set, and tests must not see."""


@dataclass
class Result:
    """How a part went."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reasons: list[str] = field(default_factory=list)
    output: str = ""


def lint() -> Result:
    return _commands(["ruff", "check", "."], ["ruff", "format", "--check", "."])


def types() -> Result:
    return _commands(["pyright", "--pythonpath", sys.executable])


def fast() -> Result:
    return _pytest()


def slow() -> Result:
    return _pytest("-m", "slow")


def local_model() -> Result:
    needed = missing_model()
    return _pytest("-m", "local_model") if needed is None else _skipped("local_model", f"not installed: {needed}")


def nbval() -> Result:
    with _notebooks() as folder:
        options = ("--nbval", "--nbval-current-env", "-p", "no:cacheprovider", str(folder))
        # Twice in one folder: what the first run left there must not show in the second.
        return _together(_pytest(*options, cwd=folder), _pytest(*options, cwd=folder))


def browser() -> Result:
    if chromium() is None:
        return _skipped("browser", "there is no Chromium here; Debian: apt-get install chromium")
    return _pytest("-m", "browser")


PARTS: dict[str, Callable[[], Result]] = {
    part.__name__: part for part in (lint, types, fast, slow, local_model, nbval, browser)
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests", description="Run the checks of this repository.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of: {', '.join(PARTS)}; all when none is named")
    named = parser.parse_args().parts
    unknown = [part for part in named if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; the parts are: {', '.join(PARTS)}")
    results: list[Result] = []
    for name in named or PARTS:
        print(f"{name:<12}", end="", flush=True)
        begun = time.monotonic()
        result = PARTS[name]()
        results.append(result)
        word = "FAILED" if result.failed else "ok" if result.passed else "skipped"
        reasons = f": {'; '.join(result.reasons)}" if result.reasons else ""
        print(f"{word:<8} {_counted(result)} in {time.monotonic() - begun:.0f} s{reasons}", flush=True)
        if result.failed:
            print(result.output, flush=True)
    total = _together(*results)
    print(_counted(total))
    return 1 if total.failed else 0


def _counted(result: Result) -> str:
    return f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped"


def _together(*results: Result) -> Result:
    reasons = dict.fromkeys(reason for result in results for reason in result.reasons)
    return Result(
        sum(result.passed for result in results),
        sum(result.failed for result in results),
        sum(result.skipped for result in results),
        list(reasons),
        "\n".join(result.output for result in results if result.failed),
    )


def _run(command: list[str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    # Programs of this environment are found although nobody activated it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def _commands(*commands: list[str]) -> Result:
    """One check that consists of several programs."""
    outputs: list[str] = []
    for command in commands:
        done = _run([sys.executable, "-m", *command])
        if done.returncode:
            outputs.append(f"{' '.join(command)}:\n{done.stdout}")
    return Result(failed=1, output="\n".join(outputs)) if outputs else Result(passed=1)


def _pytest(*options: str, cwd: Path = ROOT) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        done = _run([sys.executable, "-m", "pytest", *options, f"--junitxml={report}"], cwd)
        result = _read(report) if report.is_file() else Result()
    if done.returncode and not result.failed:
        # It did not come as far as a failing test.
        result.failed = 1
    result.output = done.stdout
    return result


def _read(report: Path) -> Result:
    result = Result()
    for case in ET.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            result.failed += 1
        elif skipped is not None:
            result.skipped += 1
            result.reasons.append(skipped.get("message", ""))
        else:
            result.passed += 1
    result.reasons = list(dict.fromkeys(result.reasons))
    return result


def _skipped(mark: str, reason: str) -> Result:
    """All tests with a mark, counted without running them."""
    listed = _run([sys.executable, "-m", "pytest", "--collect-only", "-m", mark])
    count = sum("::" in line for line in listed.stdout.splitlines())
    return Result(skipped=count, reasons=[reason])


@contextmanager
def _notebooks() -> Iterator[Path]:
    """A copy of the notebooks alone, without what lies beside them."""
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            shutil.copy(path, folder)
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
