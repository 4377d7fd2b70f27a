"""What is registered for one agent alone: a layer over the runtime's registries that unwinds with the agent."""

from __future__ import annotations

from collections.abc import Callable

from nbagent.agent.prompt import PromptRegistry
from nbagent.hooks import Hooks, Listener
from nbagent.llm.runtime import LlmRuntime
from nbagent.tools import ToolRegistry

__all__ = ("Scope",)


class Scope:
    """The registries of one layer.

    Attributes:
        hooks: Listeners of the extension points.
        llm: Routes to models.
        tools: Tools and guards.
        prompt: Prompt sections, variables and context.

    Args:
        parent: The layer this one shadows.
    """

    def __init__(self, parent: Scope | None = None) -> None:
        self.hooks = Hooks(parent.hooks if parent else None)
        self.llm = LlmRuntime(self.hooks, parent.llm if parent else None)
        self.tools = ToolRegistry(self.hooks, parent.tools if parent else None)
        self.prompt = PromptRegistry(parent.prompt if parent else None)

    def on(self, point: str, listener: Listener) -> Callable[[], None]:
        """Listen to an extension point in this layer; answers a function that removes the listener."""
        return self.hooks.on(point, listener)

    async def aclose(self) -> None:
        """Forget everything registered in this layer and close the connections of its routes."""
        self.tools.close()
        self.prompt.close()
        self.hooks.close()
        await self.llm.aclose()
