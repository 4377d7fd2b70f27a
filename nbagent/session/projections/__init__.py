"""The folds that every runtime keeps, one a file."""

from nbagent.session.projections.inbox import INBOX
from nbagent.session.projections.turn_boundary import TURN_BOUNDARY
from nbagent.session.projections.turns import TURNS

__all__ = ("INBOX", "TURNS", "TURN_BOUNDARY")
