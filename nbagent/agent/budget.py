"""What a turn may use: checked before each step that follows the first, from what the log says of the turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbagent.errors import InputError, NbagentError
from nbagent.types.events import Event

if TYPE_CHECKING:
    from nbagent.agent.agent import Agent
    from nbagent.agent.options import AgentOptions
    from nbagent.agent.runtime import Runtime

__all__ = ("check_price", "spent_budget")

_COUNTED = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")


def spent_budget(agent: Agent, turn_start: int) -> str | None:
    """Which budget the open turn has used up: `steps`, `tokens`, `cost` or `time`; none while it may go on.

    Args:
        agent: Whose turn.
        turn_start: Seq of its `turn/start`.

    Raises:
        NbagentError: `UNKNOWN_PRICE`, an answer came from a model without a known price and the cost is limited.
    """
    budget = agent.options.budget
    if budget.steps is None and budget.tokens is None and budget.cost is None and budget.seconds is None:
        return None
    events = agent.session.events[turn_start:]
    if budget.steps is not None and sum(event.type == "step/start" for event in events) >= budget.steps:
        return "steps"
    answers = [event for event in events if event.type == "assistant/message"]
    if budget.tokens is not None and sum(_tokens(answer) for answer in answers) >= budget.tokens:
        return "tokens"
    if budget.cost is not None and sum(_cost(agent, answer) for answer in answers) >= budget.cost:
        return "cost"
    if budget.seconds is not None and agent.session.now() - events[0].time >= budget.seconds * 1000:
        return "time"
    return None


def check_price(runtime: Runtime, options: AgentOptions) -> None:
    """Raise when the cost is limited and the model is known to have no known price.

    Raises:
        InputError: `UNKNOWN_PRICE`.
    """
    if options.budget.cost is None or not options.provider or not options.model:
        return
    if runtime.price(options.provider, options.model, {}) is None:
        raise InputError(_no_price(options.provider, options.model), code="UNKNOWN_PRICE")


def _tokens(answer: Event) -> int:
    usage = answer.data.get("usage", {})
    return sum(usage.get(field, 0) for field in _COUNTED)


def _cost(agent: Agent, answer: Event) -> float:
    source = answer.data["message"]["source"]
    cost = agent.runtime.price(source["provider"], source["model"], answer.data.get("usage", {}))
    if cost is None:
        raise NbagentError(_no_price(source["provider"], source["model"]), code="UNKNOWN_PRICE")
    return cost


def _no_price(provider: str, model: str) -> str:
    return (
        f"max_cost needs a price for {provider}/{model} and none is known: install jupyter-nbagent[prices], give "
        "Runtime(price=...), or limit max_turn_tokens"
    )
