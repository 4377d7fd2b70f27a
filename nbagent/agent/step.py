"""One step: a request, its attempts, the answer, and the tool calls of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nbagent.agent.attempt import Answer, run_attempt
from nbagent.agent.history_size import window_failure
from nbagent.agent.points import Enter, RequestError, RequestProposal, Retry, accept_config, accept_request_error
from nbagent.agent.prompt import Assembly, Section, render_prompt
from nbagent.agent.retry import retry_by_policy
from nbagent.agent.tool_calls import run_tool_calls
from nbagent.errors import LifecycleError, LlmError
from nbagent.llm.runtime import PreparedCall
from nbagent.types.config import CallConfig
from nbagent.types.frozen import FrozenDict
from nbagent.types.messages import Message

if TYPE_CHECKING:
    from nbagent.agent.driver import Driver

__all__ = ("run_step",)


async def run_step(driver: Driver, decision: Enter, assembly: Assembly) -> dict[str, Any] | None:
    """Run the step that is open in the log; answers the turn's end reason, or none when tools want another step.

    Raises:
        Aborted: The turn was cancelled.
        LlmError: The model call failed and is not tried again.
    """
    rendering = render_prompt(assembly)
    batch: Sequence[Message] | None = decision.messages
    starts_series = decision.starts_request_series
    attempt = 0
    while True:
        attempt += 1
        proposal = await _propose(driver)
        prepared = await _prepare(driver, proposal)
        context = await _present_context(driver, assembly)
        driver.check_abort()
        request = driver.agent.requests.admit(
            driver.agent,
            turn=driver.turn,
            step=driver.step,
            prepared=prepared,
            proposal=proposal,
            rendering=rendering,
            tools=assembly.tools,
            context=context,
            batch=batch,
            starts_series=starts_series,
        )
        batch, starts_series = None, False
        driver.check_abort()
        window = prepared.facts.context_window if prepared is not None else None
        too_large = window_failure(driver.agent.history_size, request, window)
        if too_large is None:
            answer = await run_attempt(driver, request, prepared, attempt)
        else:
            answer = Answer("error", failure=too_large)
        if answer.failure is None:
            return await _settle(driver, answer)
        await _retry_or_raise(driver, request.config.provider, answer.failure, attempt)


async def _propose(driver: Driver) -> CallConfig:
    agent = driver.agent
    seed = agent.requests.seed(agent.options)

    async def default() -> CallConfig:
        return seed

    payload = RequestProposal(agent, seed, driver.turn, driver.step, driver.signal)
    proposal = await driver.stoppable(lambda: agent.hooks.waterfall("agent/request", payload, default, accept_config))
    driver.check_abort()
    if not proposal.provider or not proposal.model:
        raise LifecycleError(
            f'agent "{agent.id}" has no provider/model: give create() a provider and a model, or supply both in an '
            '"agent/request" listener',
            code="NO_MODEL",
        )
    return proposal


async def _prepare(driver: Driver, proposal: CallConfig) -> PreparedCall | None:
    try:
        prepared = await driver.stoppable(lambda: driver.agent.llm.prepare_call(proposal, driver.signal))
    except LlmError as error:
        # A listener of "llm/stream" may serve a route that nobody registered.
        if error.code != "NO_ADAPTER":
            raise
        prepared = None
    driver.check_abort()
    return prepared


async def _present_context(driver: Driver, assembly: Assembly) -> Sequence[Section]:
    if not assembly.live_context:
        return assembly.context
    return await driver.stoppable(driver.agent.prompt.context_sections)


async def _settle(driver: Driver, answer: Answer) -> dict[str, Any] | None:
    if answer.finish == "max-tokens":
        return {"kind": "max-tokens"}
    if not answer.tool_calls:
        return {"kind": "completed"}
    concluded = await run_tool_calls(driver, answer.tool_calls)
    return {"kind": "completed"} if concluded else None


async def _retry_or_raise(driver: Driver, provider: str, failure: FrozenDict, attempt: int) -> None:
    agent = driver.agent
    policy = agent.runtime.retry

    async def default() -> Retry | None:
        return await retry_by_policy(driver, policy, failure, attempt)

    payload = RequestError(agent, driver.turn, driver.step, provider, failure, policy, attempt, driver.signal)
    action = await driver.stoppable(
        lambda: agent.hooks.waterfall("agent/request-error", payload, default, accept_request_error)
    )
    driver.check_abort()
    if action is None:
        raise LlmError.from_facts(failure)
