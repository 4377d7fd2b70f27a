"""How a 135M-parameter model is brought to call a tool: it begins its answer inside the call and must stay there."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

import nbagent

CALL_A_TOOL: dict[str, Any] = {
    "prefill": "<tool_call>\n",
    "stop": ["</tool_call>"],
    "extraBody": {"tool_choice": "required"},
}
"""Configuration of a request whose answer is one call: prefilled, held to the tools' schemas, stopped at its end."""


@nbagent.tool
def get_weather(city: Annotated[str, Field(max_length=20)]) -> str:
    """Current weather of a city.

    Args:
        city: Name of the city.
    """
    return f"It is sunny in {city}, 21 degrees."
