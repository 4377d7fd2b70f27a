"""The retry policy at work: waits between the attempts of a step, and says so in the log."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import anyio

from nbagent.agent.points import Retry
from nbagent.llm.retry import RetryPolicy, next_delay
from nbagent.types.frozen import FrozenDict
from nbagent.types.messages import new_id

if TYPE_CHECKING:
    from nbagent.agent.driver import Driver

__all__ = ("retry_by_policy",)


async def retry_by_policy(
    driver: Driver, policy: RetryPolicy | None, failure: FrozenDict, attempt: int
) -> Retry | None:
    """Wait as the policy says and answer `Retry`, or nothing when the failure is final.

    `llm/retry` is in the log before the wait, `llm/retry-started` right before the next attempt; a cancel during the
    wait leaves only the first.
    """
    if policy is None:
        return None
    delay = next_delay(policy, failure["code"], attempt, failure.get("providerRetryAfterMs"), random.random)
    if delay is None:
        return None
    retry_id = new_id()
    data: dict[str, Any] = {
        "turn": driver.turn,
        "step": driver.step,
        "attempt": attempt,
        "retryId": retry_id,
        "delayMs": round(delay * 1000),
        "failure": failure,
    }
    driver.session.append("llm/retry", data)
    await anyio.sleep(delay)
    driver.check_abort()
    driver.session.append("llm/retry-started", {"turn": driver.turn, "step": driver.step, "retryId": retry_id})
    return Retry()
