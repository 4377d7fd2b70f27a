"""How an agent is set up: what `create`, `resume` and `fork` take, checked, in one value."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from nbagent.cancellation import CancelSignal
from nbagent.errors import InputError
from nbagent.types.frozen import FrozenDict

if TYPE_CHECKING:
    from nbagent.agent.agent import Agent
    from nbagent.agent.compaction import CompactionPolicy
    from nbagent.agent.scope import Scope

__all__ = ("AgentChoices", "AgentOptions", "Setup", "TurnBudget")

Setup = Callable[["Scope", "Agent"], Awaitable[Any]]


class AgentChoices(TypedDict, total=False):
    """What `create`, `resume` and `fork` take alike.

    Attributes:
        provider: Route to the model, as registered in `runtime.llm`.
        model: Model name on that route.
        system: System prompt, or a function called once a step that answers it.
        tools: Tools, or functions that become tools.
        reasoning_effort: Effort asked of the model.
        max_tokens: Cap on the tokens of an answer.
        max_parallel_tool_calls: Overrides the runtime's limit for this agent.
        max_steps: Model calls that one turn may make.
        max_turn_tokens: Tokens, in and out, that one turn may use.
        max_cost: Dollars that one turn may cost; the route's price has to be known.
        max_seconds: Seconds that one turn may take.
        compaction: When the history is compacted by itself: `"auto"`, a `CompactionPolicy`, or none, the default.
        setup: `async def setup(scope, agent)`, run before anybody sees the agent; it may answer a plain function that
            is called right before publication.
        signal: Abandons the creation; so does cancelling the awaiting task.
        parent: The agent that this one works for and goes away with. It hears what this one does, and its tools, prompt
            sections and listeners are this one's too.
    """

    provider: str | None
    model: str | None
    system: str | Callable[..., Any] | None
    tools: Sequence[Any]
    reasoning_effort: str | None
    max_tokens: int | None
    max_parallel_tool_calls: int | None
    max_steps: int | None
    max_turn_tokens: int | None
    max_cost: float | None
    max_seconds: float | None
    compaction: CompactionPolicy | Literal["auto"] | None
    setup: Setup | None
    signal: CancelSignal | None
    parent: Agent | None


@dataclass(frozen=True, slots=True)
class TurnBudget:
    """What one turn may use before it is ended; a field that is absent is not limited.

    Attributes:
        steps: Model calls.
        tokens: Tokens, in and out, cached ones included.
        cost: Dollars.
        seconds: Seconds since the turn began.
    """

    steps: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """How an agent calls its model.

    Attributes:
        provider: Route, as registered in `llm`.
        model: Model name on that route.
        reasoning_effort: Effort asked of the model; the route's default when absent.
        max_tokens: Cap on the tokens of an answer.
        max_parallel_tool_calls: Overrides the runtime's limit.
        budget: What one turn may use.
    """

    provider: str | None = None
    model: str | None = None
    reasoning_effort: str | None = None
    max_tokens: int | None = None
    max_parallel_tool_calls: int | None = None
    budget: TurnBudget = field(default_factory=TurnBudget)

    @classmethod
    def of(cls, choices: AgentChoices) -> AgentOptions:
        """The options among the choices, checked.

        Raises:
            InputError: `INVALID_OPTION`.
        """
        given = cast("dict[str, Any]", choices)
        unknown = [name for name in given if name not in AgentChoices.__annotations__]
        if unknown:
            raise InputError(f"an agent has no option {unknown[0]!r}", code="INVALID_OPTION")
        for name in ("max_tokens", "max_parallel_tool_calls", "max_steps", "max_turn_tokens"):
            value = given.get(name)
            if value is not None and (type(value) is not int or not 0 < value < 2**53):
                raise InputError(
                    f"agent {_camel_case(name)} must be a positive safe integer, got {value!r}", code="INVALID_OPTION"
                )
        for name in ("max_cost", "max_seconds"):
            value = given.get(name)
            if value is not None and not _is_amount(value):
                raise InputError(
                    f"agent {_camel_case(name)} must be a number above 0, got {value!r}", code="INVALID_OPTION"
                )
        if given.get("reasoning_effort") == "":
            raise InputError("agent reasoningEffort must not be empty", code="INVALID_OPTION")
        budget = TurnBudget(
            given.get("max_steps"), given.get("max_turn_tokens"), given.get("max_cost"), given.get("max_seconds")
        )
        own = [each.name for each in fields(cls) if each.name != "budget"]
        return cls(**{name: given.get(name) for name in own}, budget=budget)

    def with_stored_model(self, header: FrozenDict | None) -> AgentOptions:
        """These options; without a model, with the one that the session's latest request header names."""
        if self.provider is not None or self.model is not None or header is None:
            return self
        config = header["config"]
        return replace(self, provider=config["provider"], model=config["model"])


def _is_amount(value: Any) -> bool:
    return type(value) in {int, float} and math.isfinite(value) and value > 0


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
