"""`python -m nbagent` is the command `nbagent`."""

from __future__ import annotations

import sys

from nbagent.cli import main

if __name__ == "__main__":
    sys.exit(main())
