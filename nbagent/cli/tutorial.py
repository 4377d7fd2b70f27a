"""`nbagent tutorial`: runs a tutorial notebook, the first when none is named, or opens it in JupyterLab.

The notebook is never run where it is installed: each run works on a copy in the current folder, and a copy that somebody
has changed is left as it is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import nbagent
from nbagent.errors import InputError, LifecycleError, NbagentError, StorageError

__all__ = ("add_arguments", "execute", "shipped_notebook", "transcript", "working_copy")

_TUTORIAL = "01-first-agent.ipynb"
_CELL_LIMIT = 120
"""Seconds that one cell may take; the tutorial's longest takes two."""


def add_arguments(commands: Any) -> None:
    """Add `tutorial` to the commands of a parser."""
    tutorial = commands.add_parser(
        "tutorial",
        help="run a tutorial notebook and show what it prints; needs no key",
        description="Run a tutorial notebook on a copy in the current folder and show what it prints. "
        "It needs no key and no network.",
        allow_abbrev=False,
    )
    tutorial.add_argument(
        "notebook",
        nargs="?",
        default=_TUTORIAL,
        metavar="NOTEBOOK",
        help="which one: its file name or the number that it begins with; the first when none is named",
    )
    tutorial.add_argument(
        "--lab",
        action="store_true",
        help="open the copy in JupyterLab instead; what else is given goes to JupyterLab (for example --no-browser or --port=8889)",
    )
    tutorial.set_defaults(run=_tutorial_command)


def _tutorial_command(options: argparse.Namespace, rest: Sequence[str]) -> int:
    name = _tutorial(options.notebook, lab_options=bool(rest))
    return _open_in_lab(name, Path.cwd(), rest) if options.lab else _run(name, Path.cwd())


def _run(name: str, folder: Path) -> int:
    path, note = working_copy(name, folder)
    print(f"Running {path.name} in {folder}{note}", flush=True)
    notebook = _read(path)
    fault: NbagentError | None = None
    try:
        execute(notebook, path, told=lambda line: print(f"  {line}", flush=True))
    except NbagentError as failure:
        fault = failure
    _write(notebook, path)
    print(f"\n{transcript(notebook)}\n")
    if fault is not None:
        raise fault
    print(
        f"All {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells ran. The notebook with its outputs is "
        f"{path.name}, its sessions are in {path.stem}.nbagent/."
    )
    return 0


def _open_in_lab(name: str, folder: Path, rest: Sequence[str]) -> int:
    if importlib.util.find_spec("jupyterlab") is None:
        raise InputError(
            "JupyterLab is not installed here: run .venv/bin/pip install '.[lab]' in the folder of nbagent's source",
            code="MISSING_PACKAGE",
        )
    path, note = working_copy(name, folder, keep_changes=True)
    print(f"Opening {path.name} in {folder}{note}", flush=True)
    command = [sys.executable, "-m", "jupyterlab", str(path), *rest]
    # JupyterLab asks for this where the user is root, as in most containers; it still listens on loopback with a token.
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    sys.stdout.flush()
    if os.name == "posix":
        # In its place, so that what stops this command stops JupyterLab.
        os.execv(sys.executable, command)  # noqa: S606
    return subprocess.call(command)  # noqa: S603


# -- the notebook and its copy -----------------------------------------------------------------------------------------


def _folders() -> tuple[Path, Path]:
    """Where notebooks that come with the package are: installed, or in a source folder."""
    package = Path(nbagent.__file__).parent
    return package / "notebooks", package.parent / "notebooks"


def _tutorial(wanted: str, *, lab_options: bool) -> str:
    """File name of the tutorial that somebody named by its file name, with or without the ending, or by its number."""
    shipped = sorted({path.stem for folder in _folders() for path in folder.glob("*.ipynb")})
    for stem in shipped:
        if wanted in {f"{stem}.ipynb", stem, stem.partition("-")[0]}:
            return f"{stem}.ipynb"
    if not shipped:
        # Said with the name of the file that is missing.
        return _TUTORIAL
    hint = "; options for JupyterLab are written --option=value" if lab_options else ""
    raise InputError(
        f"there is no tutorial {wanted!r}; there is: {', '.join(shipped)}{hint}", code="NOTEBOOK_NOT_FOUND"
    )


def shipped_notebook(name: str) -> Path:
    """Where a notebook that comes with the package is, installed or in a source folder.

    Raises:
        InputError: `NOTEBOOK_NOT_FOUND`.
    """
    for folder in _folders():
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{name} is not in this installation of nbagent: install it again", code="NOTEBOOK_NOT_FOUND")


def working_copy(name: str, folder: Path, *, keep_changes: bool = False) -> tuple[Path, str]:
    """A copy of a shipped notebook in `folder`, and a note when an older copy has been changed.

    A copy whose cells are as they were shipped is used again. One that was changed is never written to: the copy gets
    the next free number, or with `keep_changes` the changed one is answered.

    Args:
        name: File name of the notebook.
        folder: Where the copy goes.
        keep_changes: Whether a changed copy is what the caller wants.

    Raises:
        InputError: `NOTEBOOK_NOT_FOUND`.
        StorageError: `STORAGE_UNAVAILABLE`, the folder cannot be written.
    """
    original = shipped_notebook(name)
    cells = _cells(original)
    note = ""
    for number in itertools.count(1):
        path = folder / (name if number == 1 else f"{original.stem}-{number}.ipynb")
        if not path.exists():
            _write(_read(original), path)
            return path, note
        if path.samefile(original):
            continue
        if _cells(path) == cells:
            return path, note
        if keep_changes:
            return path, " (with your changes)"
        note = note or f" ({path.name} has been changed and is left alone)"
    raise AssertionError  # the numbers do not end


def _cells(path: Path) -> list[tuple[str, str]] | None:
    """Kind and text of each cell; none when the file is no notebook."""
    import nbformat

    try:
        return [(cell.cell_type, cell.source) for cell in _read(path).cells]
    except (OSError, ValueError, nbformat.ValidationError):
        return None


def _read(path: Path) -> Any:
    import nbformat

    read: Any = nbformat.read  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return read(path, as_version=4)


def _write(notebook: Any, path: Path) -> None:
    import nbformat

    part = path.with_name(f".{path.name}.part")
    try:
        nbformat.write(notebook, part)  # pyright: ignore[reportUnknownMemberType]
        part.replace(path)
    except OSError as fault:
        raise StorageError(
            f"{path} cannot be written ({fault.strerror}): change to a folder of your own first",
            code="STORAGE_UNAVAILABLE",
        ) from fault


# -- running it --------------------------------------------------------------------------------------------------------


def execute(notebook: Any, path: Path, *, told: Callable[[str], object] = lambda _line: None) -> None:
    """Run every cell of `notebook` in a new kernel of this interpreter; outputs are put into it.

    Args:
        notebook: What nbformat reads; changed in place, also when a cell fails.
        path: The file it belongs to: its folder is the working directory, its name says where sessions go.
        told: Called with a line before each code cell.

    Raises:
        LifecycleError: `CELL_FAILED`, the number of the cell and its error in one line; `KERNEL_FAILED`.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    numbers = {index: number for number, index in enumerate(_code_indexes(notebook), start=1)}
    last = 0

    def begin(cell: Any, cell_index: int) -> None:
        nonlocal last
        last = numbers[cell_index]
        told(f"cell {last} of {len(numbers)}: {_first_line(cell.source)}")

    client = NotebookClient(
        notebook,
        km=_kernel_manager(),
        timeout=_CELL_LIMIT,
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_execute=begin,
    )
    environment = {**os.environ, "NBAGENT_NOTEBOOK": str(path.absolute()), "NBAGENT_LIVE": "0"}
    try:
        _run_apart(client.async_execute(env=environment, cleanup_kc=True))
    except CellExecutionError as fault:
        reason = _first_line(f"{fault.ename}: {fault.evalue}")
        raise LifecycleError(f"cell {last} failed: {reason}", code="CELL_FAILED") from fault
    except CellTimeoutError as fault:
        raise LifecycleError(f"cell {last} took longer than {_CELL_LIMIT} s", code="CELL_FAILED") from fault
    except (DeadKernelError, RuntimeError, OSError) as fault:
        where = f"in cell {last}" if last else "before the first cell"
        raise LifecycleError(f"the kernel ended {where}: {_first_line(str(fault))}", code="KERNEL_FAILED") from fault


def _run_apart(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine on a thread of its own; an interrupt cancels it and is raised when it has ended.

    On the main thread nbclient takes Ctrl-C for itself, and ends the kernel twice.
    """
    done: Future[None] = Future()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def followed() -> None:
        running.append((asyncio.get_running_loop(), cast("asyncio.Task[Any]", asyncio.current_task())))
        await work

    def serve() -> None:
        try:
            asyncio.run(followed())
            done.set_result(None)
        except BaseException as fault:
            done.set_exception(fault)

    thread = threading.Thread(target=serve, name="nbagent-execute")
    thread.start()
    try:
        done.result()
    except KeyboardInterrupt:
        for loop, task in running:
            # It may have ended at this very moment.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        raise
    finally:
        thread.join()


def _kernel_manager() -> Any:
    """Starts kernels of this very interpreter, whatever kernels are registered on the machine, if any."""
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    spec = KernelSpec(
        # The kernel listens on loopback for this process only; its warning about that would stand in the transcript.
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"],
        display_name="Python 3",
        language="python",
        interrupt_mode="signal",
    )

    class ThisInterpreter(KernelSpecManager):
        def get_kernel_spec(self, kernel_name: str) -> Any:  # noqa: ARG002
            return spec

    return AsyncKernelManager(kernel_name="python3", kernel_spec_manager=ThisInterpreter())


def _code_indexes(notebook: Any) -> list[int]:
    return [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.source.strip()]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


# -- showing it --------------------------------------------------------------------------------------------------------


def transcript(notebook: Any) -> str:
    """Headings, code and plain-text outputs of a notebook, to read in a terminal."""
    parts: list[str] = []
    number = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.extend(line.lstrip("# ").upper() for line in cell.source.splitlines() if line.startswith("#"))
        elif cell.cell_type == "code" and cell.source.strip():
            number += 1
            head = f"In [{number}]: "
            first, *rest = cell.source.splitlines()
            parts.append("\n".join([f"{head}{first}", *(f"{'...: ':>{len(head)}}{line}" for line in rest)]))
            parts.extend(filter(None, (_plain(output).rstrip() for output in cell.outputs)))
    return "\n\n".join(parts)


def _plain(output: Any) -> str:
    match output.output_type:
        case "stream":
            return str(output.text)
        case "error":
            return _first_line(f"{output.ename}: {output.evalue}")
        case _:
            return str(output.data.get("text/plain", ""))
