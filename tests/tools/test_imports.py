"""What is loaded when: a notebook that makes no tool pays for none of it."""

from __future__ import annotations

import subprocess
import sys

LOADED = "; import sys; print([name for name in ('pydantic', 'griffe', 'httpx', 'IPython') if name in sys.modules])"


def loaded_after(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code + LOADED], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_importing_tools_loads_no_validation():
    assert loaded_after("import nbagent, nbagent.agent, nbagent.tools, nbagent.testing") == "[]"


def test_a_docstring_of_prose_loads_no_parser():
    body = "def double(x: int) -> int:\n    'Double it.'\n    return 2 * x\n"
    assert loaded_after(f"from nbagent import tool\nexec({body!r})\ntool(double)") == "['pydantic']"
