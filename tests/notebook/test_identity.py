"""Which notebook this is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import InputError
from nbagent.notebook.identity import Notebook, identify, path_at_server, session_folder


def found(
    cwd: Path,
    *,
    kernel_id: str | None = None,
    namespace: dict[str, Any] | None = None,
    server: str | None = None,
    **environ: str,
) -> Notebook:
    return identify(environ=environ, namespace=namespace or {}, cwd=cwd, kernel_id=kernel_id, lookup=lambda _: server)


def test_what_the_user_says_comes_first(tmp_path: Path) -> None:
    (tmp_path / "report.ipynb").touch()
    notebook = found(
        tmp_path,
        kernel_id="k",
        namespace={"__vsc_ipynb_file__": "/elsewhere/a.ipynb"},
        server="/elsewhere/b.ipynb",
        NBAGENT_NOTEBOOK="report.ipynb",
        JPY_SESSION_NAME="/elsewhere/c.ipynb",
    )
    assert notebook.path == tmp_path / "report.ipynb"
    assert notebook.folder == tmp_path / "report.nbagent"
    assert notebook.name == "report.ipynb"


def test_then_the_front_end_the_server_the_kernel_and_the_test_runner(tmp_path: Path) -> None:
    told = {"__vsc_ipynb_file__": str(tmp_path / "vsc.ipynb")}
    start = {"JPY_SESSION_NAME": str(tmp_path / "started.ipynb")}
    test = {"PYTEST_CURRENT_TEST": "notebooks/tour.ipynb::Cell 0 (setup)"}
    renamed = str(tmp_path / "renamed.ipynb")
    assert found(tmp_path, kernel_id="k", namespace=told, server=renamed, **start, **test).source == "front end"
    assert found(tmp_path, kernel_id="k", server=renamed, **start, **test).path == tmp_path / "renamed.ipynb"
    assert found(tmp_path, server=renamed, **start, **test).path == tmp_path / "started.ipynb"
    assert found(tmp_path, **test).path == tmp_path / "tour.ipynb"


def test_where_nobody_knows_the_folder_is_this_kernels_own(tmp_path: Path) -> None:
    notebook = found(
        tmp_path, kernel_id="abc", PYTEST_CURRENT_TEST="tests/test_x.py::test_y (call)", JPY_SESSION_NAME="console-1"
    )
    assert notebook == Notebook(None, tmp_path / "untitled-abc.nbagent", "unknown")
    assert found(tmp_path).folder != found(tmp_path).folder


def test_a_named_notebook_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("missing.ipynb", "."):
        with pytest.raises(InputError) as raised:
            found(tmp_path, NBAGENT_NOTEBOOK=name)
        assert raised.value.code == "NOTEBOOK_NOT_FOUND"
        assert "--session-dir" in str(raised.value)


def test_a_session_dir_wins_without_asking_anybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert session_folder("kept here") == tmp_path / "kept here"


class Server(HTTPServer):
    """Answers the one question that a Jupyter server is asked here."""

    def __init__(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.headers = headers or {}
        self.asked: list[tuple[str, str | None]] = []
        self.sessions: list[dict[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        body = json.dumps(self.server.sessions).encode()
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    running: list[Server] = []
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))

    def start(**options: Any) -> Server:
        server = Server(**options)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        running.append(server)
        facts = {"url": f"http://127.0.0.1:{server.server_port}/base/", "token": "secret-token", "root_dir": "/home/me"}
        (tmp_path / f"jpserver-{server.server_port}.json").write_text(json.dumps(facts))
        return server

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def test_a_server_is_asked_for_the_path_of_the_kernels_session(servers: Any, tmp_path: Path) -> None:
    server = servers()
    server.sessions = [
        {"path": "other.ipynb", "kernel": {"id": "k0"}},
        {"path": "talks/report.ipynb", "kernel": {"id": "k1"}},
    ]
    (tmp_path / "jpserver-0.json").write_text("broken")
    (tmp_path / "jpserver-1.json").write_text(json.dumps({"url": "http://127.0.0.1:1/", "token": "", "root_dir": "/"}))
    assert path_at_server("k1") == "/home/me/talks/report.ipynb"
    assert path_at_server("k2") is None
    assert server.asked[0] == ("/base/api/sessions", "token secret-token")


def test_a_token_goes_to_its_own_server_only(servers: Any) -> None:
    elsewhere = servers()
    server = servers(status=302, headers={"Location": f"http://127.0.0.1:{elsewhere.server_port}/base/api/sessions"})
    path_at_server("k1")
    asked = [*server.asked, *elsewhere.asked]
    assert len(asked) == 2
    assert len(elsewhere.asked) == 1  # its own turn, not the redirect
