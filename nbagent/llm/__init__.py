"""Talking to models."""

from nbagent.llm.adapter import Adapter
from nbagent.llm.retry import RetryPolicy
from nbagent.llm.runtime import LlmRuntime, PreparedCall

__all__ = ("Adapter", "LlmRuntime", "PreparedCall", "RetryPolicy")
