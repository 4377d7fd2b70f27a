"""The log, and what is folded from it."""

from nbagent.session.message_projections import MessageProjections
from nbagent.session.projection import ProjectionRegistry, ProjectionUnit
from nbagent.session.session import Session, SessionEvent, check_log

__all__ = ("MessageProjections", "ProjectionRegistry", "ProjectionUnit", "Session", "SessionEvent", "check_log")
