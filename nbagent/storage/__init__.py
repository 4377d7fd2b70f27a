"""Where logs are kept."""

from nbagent.storage.jsonl import JsonlStore
from nbagent.storage.memory import MemoryStore
from nbagent.storage.store import Handle, SessionStat, Store

__all__ = ("Handle", "JsonlStore", "MemoryStore", "SessionStat", "Store")
