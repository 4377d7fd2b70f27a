"""The loop."""

from nbagent.agent.agent import Agent
from nbagent.agent.compaction import CompactionPolicy
from nbagent.agent.handle import AgentHandle
from nbagent.agent.initiator import current_agent, require_agent
from nbagent.agent.options import AgentOptions
from nbagent.agent.points import Enter, Reject, Retry
from nbagent.agent.runtime import Runtime

__all__ = (
    "Agent",
    "AgentHandle",
    "AgentOptions",
    "CompactionPolicy",
    "Enter",
    "Reject",
    "Retry",
    "Runtime",
    "current_agent",
    "require_agent",
)
