"""How long a notebook waits: for `%load_ext nbagent`, and from `%%agent` to the first text on its way to the page.

    python benchmarks/first_text.py [--runs 7]

Each run is a fresh kernel of this interpreter, driven as a front end drives it. The demo route answers a word every
millisecond, so what is measured is nbagent, ipywidgets and the kernel.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from typing import Any

from jupyter_client.manager import KernelManager

SHOWING = ("comm_msg", "update_display_data")
"""A delta of the live view, or the output that replaces it when the turn was quicker than the view."""

LOAD = """
import time as _time
_began = _time.perf_counter()
get_ipython().run_line_magic("load_ext", "nbagent")
print((_time.perf_counter() - _began) * 1000)
"""


class Kernel:
    """A kernel and what it says."""

    def __init__(self, folder: str) -> None:
        self.manager = KernelManager(kernel_name="python3")
        environment = {**os.environ, "NBAGENT_DEMO_DELAY_MS": "1", "NBAGENT_LIVE": "1", "IPYTHONDIR": folder}
        self.manager.start_kernel(cwd=folder, env=environment, extra_arguments=["--log-level=ERROR"])
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str) -> tuple[str, float | None, float]:
        """Run a cell: what it printed, milliseconds until the first answer text, milliseconds until its end."""
        began = time.perf_counter()
        request = self.client.execute(code)
        printed, first = "", None
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != request:
                continue
            content: dict[str, Any] = message["content"]
            if message["msg_type"] == "stream":
                printed += content["text"]
            elif message["msg_type"] == "error":
                raise RuntimeError("\n".join(content["traceback"]))
            elif first is None and message["msg_type"] in SHOWING and "Your prompt" in str(content):
                first = (time.perf_counter() - began) * 1000
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return printed, first, (time.perf_counter() - began) * 1000

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


def told(name: str, figures: list[float]) -> str:
    return f"{name:<44} {statistics.median(figures):7.1f} ms   ({min(figures):.1f} to {max(figures):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    names = (
        "%load_ext nbagent",
        "%agent create",
        "%%agent to first text, first prompt",
        "%%agent to first text, later",
    )
    figures: dict[str, list[float]] = {name: [] for name in names}
    load, create, first, later = (figures[name] for name in names)
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            kernel = Kernel(folder)
            try:
                kernel.run("pass")
                load.append(float(kernel.run(LOAD)[0]))
                create.append(kernel.run("%agent create analyst --model demo")[2])
                for place in (first, later, later):
                    _, text, _ = kernel.run("%%agent analyst\nhello")
                    if text is None:
                        raise RuntimeError("the view showed no text")
                    place.append(text)
            finally:
                kernel.close()
    print(f"{options.runs} fresh kernels")
    for name in names:
        print(f"  {told(name, figures[name])}")


if __name__ == "__main__":
    main()
