"""What agents can do."""

from nbagent.tools.approval import Approval, ApprovalRequest
from nbagent.tools.current import CurrentCall, current_call
from nbagent.tools.outcome import ToolOutcome
from nbagent.tools.pipeline import ToolExecution
from nbagent.tools.points import ToolCall
from nbagent.tools.registry import ToolRegistry
from nbagent.tools.tool import Tool, as_tool, tool

__all__ = (
    "Approval",
    "ApprovalRequest",
    "CurrentCall",
    "Tool",
    "ToolCall",
    "ToolExecution",
    "ToolOutcome",
    "ToolRegistry",
    "as_tool",
    "current_call",
    "tool",
)
