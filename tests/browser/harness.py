"""JupyterLab and headless Chromium for tests: a real server, real kernels, a real page, everything in temporary folders."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

_QUIET = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}


def chromium() -> str | None:
    """Path of the browser, when there is one."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A running JupyterLab server."""

    def __init__(self, base: str, root: Path, log: Path) -> None:
        self.base = base
        self.root = root
        self.log = log

    def write(self, name: str, cells: list[str], kernel: str = "python3") -> Path:
        """A notebook with these code cells. Lab attaches a running kernel by path: use a new name each time."""
        notebook = nbformat.v4.new_notebook()
        notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        notebook.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
        path = self.root / name
        nbformat.write(notebook, path)
        return path

    def read(self, name: str) -> Any:
        return nbformat.read(self.root / name, as_version=4)


@contextmanager
def running_server(folder: Path, environment: dict[str, str] | None = None) -> Iterator[Server]:
    """JupyterLab on a free loopback port, with its settings, kernels and notebooks under `folder`."""
    root, home = folder / "notebooks", folder / "home"
    root.mkdir(parents=True)
    settings = home / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(_QUIET))
    port = free_port()
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        **(environment or {}),
    }
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--ServerApp.ip=127.0.0.1",
        "--IdentityProvider.token=",
        "--ServerApp.password=",
        "--ServerApp.disable_check_xsrf=True",
        f"--ServerApp.root_dir={root}",
        "--LabApp.expose_app_in_browser=True",
    ]
    log = home / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, env=variables, stdout=output, stderr=subprocess.STDOUT, cwd=root)
        try:
            base = f"http://127.0.0.1:{port}"
            _wait_for(base, process, log)
            yield Server(base, root, log)
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(base: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"{base}/api/status", timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")


@contextmanager
def running_browser() -> Iterator[Any]:
    """Headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


_NOTEBOOK = "window.jupyterapp.shell.currentWidget"


class NotebookPage:
    """A notebook open in JupyterLab."""

    def __init__(self, page: Any, server: Server) -> None:
        self.page = page
        self.server = server
        self.name = ""
        self.requests: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, name: str, *, reset: bool = True) -> None:
        self.name = name
        self.page.goto(f"{self.server.base}/lab/tree/{name}" + ("?reset" if reset else ""))
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        self.wait_for_kernel()

    def wait_for_kernel(self, *statuses: str) -> None:
        """Wait until the kernel is connected and in one of `statuses` (idle by default)."""
        self.page.wait_for_function(
            f"""statuses => {{
                const context = {_NOTEBOOK} && {_NOTEBOOK}.sessionContext;
                const kernel = context && context.session && context.session.kernel;
                return kernel && kernel.connectionStatus === 'connected' && statuses.includes(kernel.status);
            }}""",
            arg=list(statuses) or ["idle"],
            timeout=60_000,
        )

    def run(self, index: int) -> None:
        """Start a cell; returns at once."""
        self.page.evaluate(
            f"""index => {{
                {_NOTEBOOK}.content.activeCellIndex = index;
                window.jupyterapp.commands.execute('notebook:run-cell');
            }}""",
            index,
        )

    def run_and_wait(self, index: int, timeout: float = 60) -> None:
        self.run(index)
        self.wait_for_cell(index, timeout)

    def wait_for_cell(self, index: int, timeout: float = 60) -> None:
        """Wait until a started cell has ended."""
        self.page.wait_for_function(
            f"""index => {{
                const cell = {_NOTEBOOK}.content.widgets[index];
                const prompt = cell.node.querySelector('.jp-InputPrompt');
                return cell.model.executionCount !== null && cell.model.executionState !== 'running'
                    && !(prompt && prompt.textContent.includes('*'));
            }}""",
            arg=index,
            timeout=timeout * 1000,
        )

    def is_running(self, index: int) -> bool:
        return self.page.evaluate(
            f"index => {_NOTEBOOK}.content.widgets[index].model.executionState === 'running'", index
        )

    def interrupt(self) -> None:
        self.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:interrupt-kernel'); }")

    def cell(self, index: int) -> Any:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def output(self, index: int) -> Any:
        """The outputs of a cell in the page."""
        return self.cell(index).locator(".jp-Cell-outputArea")

    def outputs(self, index: int) -> list[dict[str, Any]]:
        """The cell's outputs as the notebook's model has them."""
        return self.page.evaluate(f"index => {_NOTEBOOK}.content.widgets[index].model.toJSON().outputs", index)

    def text(self, index: int) -> str:
        return self.page.evaluate(
            f"""index => {{
                const area = {_NOTEBOOK}.content.widgets[index].node.querySelector('.jp-Cell-outputArea');
                return area ? area.innerText : '';
            }}""",
            index,
        )

    def save(self) -> Any:
        """Save; answers the notebook in the file."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        return self.server.read(self.name)

    def restart_kernel(self) -> None:
        self.page.evaluate(f"() => {_NOTEBOOK}.sessionContext.session.kernel.restart()")
        self.wait_for_kernel()

    def shut_down_kernel(self) -> None:
        self.page.evaluate(f"async () => {{ if ({_NOTEBOOK}) await {_NOTEBOOK}.sessionContext.shutdown(); }}")

    def reload(self) -> None:
        """Load the page again, as a person does who presses F5; the kernel goes on."""
        self.page.reload()
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)

    def set_theme(self, name: str) -> None:
        self.page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", name)
        self.page.wait_for_function(
            "light => document.body.dataset.jpThemeLight === light", arg=str("Light" in name).lower(), timeout=20_000
        )
