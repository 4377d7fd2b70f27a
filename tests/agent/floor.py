"""Tools whose bodies a test holds and lets go."""

from __future__ import annotations

import anyio

from nbagent import tool
from nbagent.testing import tool_calls


class Floor:
    """Tools that stay in their bodies until let go.

    Attributes:
        order: `+name` for a body that was entered, `-name` for one that was left.
    """

    def __init__(self):
        self.order = []
        self.gates = {}

        @tool(parallel=True)
        async def read(name: str) -> str:
            """Read."""
            return await self.body(name)

        @tool
        async def write(name: str) -> str:
            """Write."""
            return await self.body(name)

        self.tools = [read, write]

    async def body(self, name):
        self.order.append(f"+{name}")
        await self.gates.setdefault(name, anyio.Event()).wait()
        self.order.append(f"-{name}")
        return name

    def release(self, name):
        self.gates.setdefault(name, anyio.Event()).set()

    async def until(self, *order, in_order=True):
        with anyio.fail_after(5):
            while self.order != list(order) if in_order else sorted(self.order) != sorted(order):
                await anyio.sleep(0.002)


def calls(*names):
    return tool_calls(*[(name, "read" if name.startswith("r") else "write", {"name": name}) for name in names])
