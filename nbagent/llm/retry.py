"""When a failed model call is tried again, and after how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from nbagent.errors import InputError
from nbagent.types.stream import RETRYABLE_CODES

__all__ = ("RetryPolicy", "next_delay")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff between bounds.

    Attributes:
        retries: Attempts after the first; unlimited when none.
        base_seconds: The first wait.
        cap_seconds: The longest wait; a longer one asked for by the provider ends the retries, unless unlimited.
        jitter: Share of a wait by which it is varied at random.
        codes: Failure codes that are tried again.
    """

    retries: int | None = 5
    base_seconds: float = 0.5
    cap_seconds: float = 10.0
    jitter: float = 0.1
    codes: frozenset[str] = RETRYABLE_CODES

    @classmethod
    def named(cls, name: str) -> Self:
        """`normal`: five retries; `always`: until it works.

        Raises:
            InputError: `INVALID_OPTION`.
        """
        if name not in {"normal", "always"}:
            raise InputError(
                f'retry must be "normal", "always", a RetryPolicy or None, got {name!r}', code="INVALID_OPTION"
            )
        return cls(retries=None) if name == "always" else cls()


def next_delay(
    policy: RetryPolicy,
    code: str,
    attempt: int,
    provider_retry_after_ms: int | None,
    random: Callable[[], float],
) -> float | None:
    """Seconds to wait before the next attempt, or none when the failure is final.

    Args:
        policy: The policy.
        code: Failure code of the attempt.
        attempt: Which attempt failed, from 1.
        provider_retry_after_ms: How long the provider asked to wait.
        random: Answers a number from 0 to 1.
    """
    if code not in policy.codes or (policy.retries is not None and attempt > policy.retries):
        return None
    asked = None if provider_retry_after_ms is None else provider_retry_after_ms / 1000
    if asked is not None and 0 <= asked <= policy.cap_seconds:
        return asked
    if asked is not None and asked > policy.cap_seconds and policy.retries is not None:
        return None
    wait = min(policy.base_seconds * 2 ** min(attempt - 1, 30), policy.cap_seconds)
    return wait * (1 + policy.jitter * (2 * random() - 1))
