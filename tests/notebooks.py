"""`python -m tests.notebooks` runs every notebook of `notebooks/` and writes the outputs that its readers and tests see."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat

from nbagent.cli.tutorial import execute
from nbagent.errors import NbagentError

FOLDER = Path(__file__).parents[1] / "notebooks"
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""What stays the same on every machine; versions of Python do not."""


def refreshed(path: Path) -> Any:
    """The notebook, run in a folder of its own, without anything that a second run would not repeat."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(path, folder))
        notebook = nbformat.read(copy, as_version=4)
        for cell in notebook.cells:
            cell.metadata = {key: value for key, value in cell.metadata.items() if key in {"tags", "jupyter"}}
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        execute(notebook, copy)
    notebook.metadata = nbformat.from_dict(_METADATA)
    return notebook


def main() -> int:
    for path in sorted(FOLDER.glob("*.ipynb")):
        try:
            nbformat.write(refreshed(path), path)
        except NbagentError as fault:
            print(f"{path.name}: {fault}; left as it was")
            return 1
        print(f"{path.name}: refreshed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
