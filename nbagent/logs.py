"""Loggers of the package: what they pass on has every secret masked, tracebacks too."""

from __future__ import annotations

import logging

from nbagent.secrets import mask

__all__ = ("logger",)

_FORMATTER = logging.Formatter()


def logger(name: str) -> logging.Logger:
    """The logger of a module, masked."""
    made = logging.getLogger(name)
    if _masked not in made.filters:
        made.addFilter(_masked)
    return made


def _masked(record: logging.LogRecord) -> bool:
    record.msg, record.args = mask(record.getMessage()), ()
    if record.exc_info:
        # Handlers print the text that is there; the exception itself would be printed anew.
        record.exc_text = mask(_FORMATTER.formatException(record.exc_info))
        record.exc_info = None
    return True
