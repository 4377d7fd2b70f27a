"""Shells, kernels and agents for tests of the notebook: all of them real."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

KEYS = (
    "DEEPSEEK_API_KEY",
    "OPENAI_API_KEY",
    "NBAGENT_CUSTOM_BASE_URL",
    "NBAGENT_CUSTOM_MODEL",
    "NBAGENT_CUSTOM_API_KEY",
)


class Outcome:
    """What one execute request gave."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict[str, Any]]] = []
        self.status = ""

    @property
    def stdout(self) -> str:
        return "".join(content["text"] for kind, content in self.messages if kind == "stream")

    @property
    def displays(self) -> list[dict[str, Any]]:
        return [content["data"] for kind, content in self.messages if kind == "display_data"]

    @property
    def updates(self) -> list[dict[str, Any]]:
        return [content["data"] for kind, content in self.messages if kind == "update_display_data"]

    @property
    def text(self) -> str:
        """The one display, as plain text."""
        (display,) = self.displays
        return display["text/plain"]

    @property
    def error(self) -> dict[str, Any] | None:
        return next((content for kind, content in self.messages if kind == "error"), None)

    @property
    def result(self) -> str:
        """What the last expression of the cell was."""
        return next(content["data"]["text/plain"] for kind, content in self.messages if kind == "execute_result")

    @property
    def lines(self) -> list[str]:
        """The lines of the error as a front end shows it."""
        assert self.error is not None, self.messages
        return "\n".join(self.error["traceback"]).splitlines()


class Kernel:
    """A kernel of this interpreter in a folder of its own."""

    def __init__(self, cwd: Path, env: dict[str, str]) -> None:
        from jupyter_client.manager import KernelManager

        self.cwd = cwd
        self.manager = KernelManager(kernel_name="python3")
        base = {key: value for key, value in os.environ.items() if key not in (*KEYS, "PYTEST_CURRENT_TEST")}
        env = {**base, "IPYTHONDIR": str(cwd / ".ipython"), "NBAGENT_DEMO_DELAY_MS": "0", **env}
        self.manager.start_kernel(cwd=str(cwd), env=env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self._outcomes: dict[str, Outcome] = {}

    def start(self, code: str, *, cell_id: str | None = None) -> str:
        """Send a cell and return at once; with `cell_id` it comes from a front end."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        metadata = {"cellId": cell_id} if cell_id else {}
        message = self.client.session.msg("execute_request", content, metadata=metadata)
        self.client.shell_channel.send(message)
        request = message["header"]["msg_id"]
        self._outcomes[request] = Outcome()
        return request

    def run(self, code: str, *, cell_id: str | None = None, timeout: float = 30) -> Outcome:
        """Run a cell to its end."""
        return self.finish(self.start(code, cell_id=cell_id), timeout=timeout)

    def ok(self, code: str, **options: Any) -> Outcome:
        """Run a cell that must succeed."""
        outcome = self.run(code, **options)
        assert outcome.error is None, outcome.lines
        return outcome

    def finish(self, request: str, *, timeout: float = 30) -> Outcome:
        """Wait until a cell is done."""
        self.pump(timeout, lambda: self._outcomes[request].status == "idle")
        assert self._outcomes[request].status == "idle", "the cell did not end in time"
        return self._outcomes[request]

    def pump(self, timeout: float, until: Callable[[], bool] = lambda: False) -> None:
        """Read what the kernel publishes until a condition holds."""
        deadline = time.monotonic() + timeout
        while not until() and time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=0.05)
            except Empty:
                continue
            outcome = self._outcomes.get(message["parent_header"].get("msg_id", ""))
            if outcome is None:
                continue
            if message["msg_type"] == "status":
                outcome.status = message["content"]["execution_state"]
            else:
                outcome.messages.append((message["msg_type"], message["content"]))

    def outcome(self, request: str) -> Outcome:
        return self._outcomes[request]

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def complete(self, code: str) -> list[str]:
        request = self.client.complete(code, len(code))
        while True:
            reply = self.client.get_shell_msg(timeout=20)
            if reply["parent_header"].get("msg_id") == request:
                return reply["content"]["matches"]

    def kill(self) -> None:
        """As if the machine had run out of memory."""
        self.manager.signal_kernel(9)
        deadline = time.monotonic() + 10
        while self.manager.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture
def start_kernel(tmp_path: Path) -> Iterator[Callable[..., Kernel]]:
    """Start kernels with `start_kernel(NAME="value", ...)` for their environment; the extension is loaded."""
    kernels: list[Kernel] = []

    def start(*, load: bool = True, cwd: Path = tmp_path, **env: str) -> Kernel:
        kernel = Kernel(cwd, env)
        kernels.append(kernel)
        if load:
            kernel.ok("%load_ext nbagent")
        return kernel

    yield start
    for kernel in kernels:
        kernel.close()


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    return start_kernel()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory without keys; every agent that the test makes is gone afterwards."""
    from nbagent.notebook import identity
    from nbagent.notebook.roster import roster

    # A process keeps what it found out about its notebook; each test is a process of its own.
    monkeypatch.setattr(identity, "_found", None)
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("NBAGENT_DEMO_DELAY_MS", "0")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for agent in roster.all():
        agent.dispose()


@pytest.fixture
def scripted(home: Path) -> Callable[..., Any]:
    """Make an agent whose model says what a script says: `scripted(text("hi"), name="analyst", tools=[...])`."""
    from nbagent.notebook.host import host
    from nbagent.notebook.notebook_agent import NotebookAgent
    from nbagent.notebook.roster import roster
    from nbagent.testing import ScriptedAdapter

    def make(*script: Any, name: str = "analyst", **options: Any) -> NotebookAgent:
        adapter = ScriptedAdapter(list(script))
        runtime = host().runtime(home / "talk.nbagent")

        async def setup(scope: Any, agent: Any) -> None:
            scope.llm.register(["scripted"], adapter)

        async def create() -> Any:
            return await runtime.agents.create(provider="scripted", model="m", setup=setup, **options)

        agent = NotebookAgent(host(), host().call(create), name)
        roster.add(agent)
        return agent

    return make


@pytest.fixture
def shell(home: Path) -> Iterator[Any]:
    """IPython in this process, with the extension loaded."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    from nbagent.notebook.extension import load_ipython_extension, unload_ipython_extension

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    hooks = sys.displayhook, sys.excepthook
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=config)
    load_ipython_extension(shell)
    yield shell
    unload_ipython_extension(shell)
    atexit.unregister(shell.atexit_operations)
    shell.atexit_operations()
    InteractiveShell.clear_instance()
    sys.displayhook, sys.excepthook = hooks
    import builtins

    for name in ("get_ipython", "display"):
        if hasattr(builtins, name):
            delattr(builtins, name)
