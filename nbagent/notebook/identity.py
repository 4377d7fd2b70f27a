"""Which notebook this is, and so where its sessions are kept. Found out once a process and then kept, renames included.

No source is always there and right, so they are asked in order of trust: what the user said, what the front end put into
the namespace, the Jupyter server that runs this kernel, what the server told the kernel when it started, the test runner;
and where nobody knows, a folder of this kernel's own in the working directory.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from nbagent.errors import InputError

__all__ = ("Notebook", "identify", "notebook", "path_at_server", "session_folder")

Source = Literal["NBAGENT_NOTEBOOK", "front end", "server", "kernel", "nbval", "unknown"]

_LOOKUP_LIMIT = 2.0
"""Seconds that all lookups at servers together may take."""


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook, or that none is known.

    Attributes:
        path: Its file, absolute; absent when unknown.
        folder: Where its sessions are kept.
        source: Who said so.
    """

    path: Path | None
    folder: Path
    source: Source

    @property
    def name(self) -> str | None:
        """The file's name."""
        return self.path.name if self.path is not None else None


def identify(
    *,
    environ: Mapping[str, str],
    namespace: Mapping[str, Any],
    cwd: Path,
    kernel_id: str | None,
    lookup: Callable[[str], str | None],
) -> Notebook:
    """Find the notebook.

    Args:
        environ: Environment variables.
        namespace: The user's namespace.
        cwd: Working directory.
        kernel_id: Of a kernel that a server started; absent elsewhere.
        lookup: Answers the path that a server has for a kernel id.

    Raises:
        InputError: `NOTEBOOK_NOT_FOUND`, `NBAGENT_NOTEBOOK` names no file.
    """
    named = environ.get("NBAGENT_NOTEBOOK")
    if named:
        path = _absolute(named, cwd)
        if not path.is_file():
            raise InputError(
                f"NBAGENT_NOTEBOOK names {path}, which is no file: set it to the notebook, or choose a folder with "
                "--session-dir",
                code="NOTEBOOK_NOT_FOUND",
            )
        return _known(path, "NBAGENT_NOTEBOOK")
    told = namespace.get("__vsc_ipynb_file__")
    if isinstance(told, str) and told:
        return _known(_absolute(told, cwd), "front end")
    found = lookup(kernel_id) if kernel_id is not None else None
    if found is not None and _is_document(found):
        return _known(_absolute(found, cwd), "server")
    started = environ.get("JPY_SESSION_NAME")
    if started and _is_document(started):
        return _known(_absolute(started, cwd), "kernel")
    test = environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
    if test.endswith(".ipynb"):
        # Relative to a root that only pytest knows; the kernel's working directory is the notebook's folder.
        return _known(cwd / Path(test).name, "nbval")
    return Notebook(None, cwd / f"untitled-{kernel_id or uuid.uuid4().hex[:12]}.nbagent", "unknown")


_found: tuple[int, Notebook] | None = None
_lock = threading.Lock()


def notebook(*, search: bool = True) -> Notebook | None:
    """The notebook of this process. The first call finds out; with `search=False` none is answered before that.

    Raises:
        InputError: `NOTEBOOK_NOT_FOUND`.
    """
    global _found  # noqa: PLW0603
    with _lock:
        if _found is not None and _found[0] == os.getpid():
            return _found[1]
        if not search:
            return None
        answer = identify(
            environ=os.environ,
            namespace=_namespace(),
            cwd=Path.cwd(),
            kernel_id=_kernel_id(),
            lookup=path_at_server,
        )
        _found = os.getpid(), answer
        return answer


def session_folder(session_dir: str | Path | None) -> Path:
    """Where sessions go: the folder that was named, or the notebook's.

    Raises:
        InputError: `NOTEBOOK_NOT_FOUND`.
    """
    if session_dir is not None:
        return Path(session_dir).expanduser().absolute()
    return cast("Notebook", notebook()).folder


def _known(path: Path, source: Source) -> Notebook:
    return Notebook(path, path.with_name(f"{path.stem}.nbagent"), source)


def _absolute(path: str, cwd: Path) -> Path:
    return Path(os.path.normpath(cwd / Path(path).expanduser()))


def _is_document(path: str) -> bool:
    # Consoles have sessions too; their name looks like a path but ends in no file type.
    return bool(Path(path).suffix)


def _namespace() -> Mapping[str, Any]:
    from nbagent.notebook.shell import current_shell

    shell = current_shell()
    return shell.user_ns if shell is not None else {}


def _kernel_id() -> str | None:
    from nbagent.notebook.shell import current_kernel

    kernel = current_kernel()
    file = str(getattr(getattr(kernel, "parent", None), "connection_file", "") or "")
    name = Path(file).name
    # A kernel that no server started has another name for its file, and there is nobody to ask.
    return name.removeprefix("kernel-").removesuffix(".json") if name.startswith("kernel-") else None


def path_at_server(kernel_id: str) -> str | None:
    """The path of the session that has this kernel, asked of the servers of this user; none when it cannot be had."""
    answer: list[str] = []

    def ask() -> None:
        try:
            found = _search_servers(kernel_id)
        except Exception:  # a best effort: proxies, stopped servers and foreign files are all normal
            return
        if found is not None:
            answer.append(found)

    thread = threading.Thread(target=ask, name="nbagent-identity", daemon=True)
    thread.start()
    thread.join(_LOOKUP_LIMIT)
    return answer[0] if answer else None


def _search_servers(kernel_id: str) -> str | None:
    from jupyter_core.paths import jupyter_runtime_dir

    files = sorted(Path(jupyter_runtime_dir()).glob("jpserver-*.json"), key=lambda file: -file.stat().st_mtime)
    for file in files:
        try:
            server: dict[str, Any] = json.loads(file.read_text())
            sessions = _sessions_of(server)
        except (OSError, ValueError):
            continue
        for session in sessions:
            if session.get("kernel", {}).get("id") == kernel_id and session.get("path"):
                return str(Path(server["root_dir"]) / session["path"])
    return None


def _sessions_of(server: Mapping[str, Any]) -> list[dict[str, Any]]:
    import urllib.request

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:  # noqa: ARG002
            return None

    # The token goes to the address that stands beside it and nowhere else: no proxy, no redirect.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay)
    address = f"{str(server['url']).rstrip('/')}/api/sessions"
    if not address.startswith(("http://", "https://")):
        return []
    request = urllib.request.Request(address, headers={"Authorization": f"token {server['token']}"})  # noqa: S310
    with opener.open(request, timeout=_LOOKUP_LIMIT) as response:
        sessions: Any = json.load(response)
    return cast("list[dict[str, Any]]", sessions) if isinstance(sessions, list) else []
