"""Routes by name, prepared calls, and the one terminal form in which a failure of a route reaches the loop."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nbagent.cancellation import CancelSignal
from nbagent.errors import LlmError
from nbagent.hooks import Hooks
from nbagent.llm.adapter import Adapter
from nbagent.llm.model_stream import ModelStream
from nbagent.types.config import CallConfig, ModelFacts, Request
from nbagent.types.stream import StreamChunk, finish

__all__ = ("LlmRuntime", "PreparedCall", "StreamCall")


@dataclass(frozen=True, slots=True)
class StreamCall:
    """`llm/stream`: a request is about to be streamed; answer an async iterator of chunks."""

    request: Request
    signal: CancelSignal


class LlmRuntime:
    """One layer of routes; a nearer layer shadows a farther one.

    Args:
        hooks: Whose `llm/stream` listeners are asked.
        parent: The farther layer.
    """

    def __init__(self, hooks: Hooks, parent: LlmRuntime | None = None) -> None:
        self._hooks = hooks
        self._parent = parent
        self._adapters: dict[str, Adapter] = {}

    def register(self, providers: Sequence[str], adapter: Adapter) -> Callable[[], None]:
        """Serve routes with an adapter; answers a function that takes them out.

        Raises:
            LlmError: `DUPLICATE_ADAPTER`, one of them is taken in this layer; none is registered then.
        """
        for provider in providers:
            if provider in self._adapters:
                raise LlmError(f'provider "{provider}" already has an adapter', code="DUPLICATE_ADAPTER")
        for provider in providers:
            self._adapters[provider] = adapter

        def remove() -> None:
            for provider in providers:
                if self._adapters.get(provider) is adapter:
                    del self._adapters[provider]

        return remove

    def adapter(self, provider: str) -> Adapter:
        """The adapter that serves a route here.

        Raises:
            LlmError: `NO_ADAPTER`.
        """
        found = self._adapters.get(provider)
        if found is not None:
            return found
        if self._parent is not None:
            return self._parent.adapter(provider)
        raise LlmError(f'no adapter registered for provider "{provider}"', code="NO_ADAPTER")

    async def prepare_call(self, config: CallConfig, signal: CancelSignal) -> PreparedCall:
        """Bind a configuration to its route, with what the route fills in.

        Raises:
            LlmError: `NO_ADAPTER`, `UNSUPPORTED_REASONING_EFFORT`, `ABORTED`.
        """
        adapter = self.adapter(config.provider)
        found: Any = adapter.facts(config.model)
        facts: ModelFacts = await cast("Awaitable[ModelFacts]", found) if inspect.isawaitable(found) else found
        if signal.aborted:
            raise LlmError("the call was cancelled while it was prepared", code="ABORTED")
        effort = config.reasoning_effort
        if effort is not None and facts.efforts is not None and effort not in facts.efforts:
            known = ", ".join(facts.efforts) or "none"
            raise LlmError(
                f'model "{config.model}" does not take reasoning effort "{effort}"; it takes: {known}',
                code="UNSUPPORTED_REASONING_EFFORT",
            )
        filled: dict[str, Any] = {}
        if effort is None and facts.default_effort is not None:
            filled["reasoningEffort"] = facts.default_effort
        if config.max_tokens is None and facts.default_max_tokens is not None:
            filled["maxTokens"] = facts.default_max_tokens
        complete = config.replace(**filled) if filled else config
        return PreparedCall(self, adapter, complete, dict.fromkeys(filled, True), facts)

    def stream(self, request: Request, signal: CancelSignal) -> ModelStream:
        """Stream a request over the route that its configuration names. Failures of listeners are raised."""
        return self.stream_over(None, request, signal)

    def stream_over(self, adapter: Adapter | None, request: Request, signal: CancelSignal) -> ModelStream:
        """Stream a request over `adapter`, or over the registered one."""

        async def boundary() -> AsyncIterator[StreamChunk]:
            return _contained(
                lambda: (adapter or self.adapter(request.config.provider)).stream(request, signal), signal
            )

        return ModelStream(lambda: self._hooks.waterfall("llm/stream", StreamCall(request, signal), boundary))

    async def aclose(self) -> None:
        """Close the adapters of this layer, all of them; the first failure is raised."""
        adapters = {id(adapter): adapter for adapter in self._adapters.values()}
        self._adapters.clear()
        failures: list[Exception] = []
        for adapter in adapters.values():
            close = getattr(adapter, "aclose", None)
            if close is not None:
                try:
                    await close()
                except Exception as failure:
                    failures.append(failure)
        if failures:
            raise failures[0]


class PreparedCall:
    """A configuration bound to its route, good for one stream.

    Attributes:
        config: With what the route filled in.
        adapter_defaults: Which fields it filled in.
        facts: What the route knows of the model.
    """

    def __init__(
        self,
        runtime: LlmRuntime,
        adapter: Adapter,
        config: CallConfig,
        adapter_defaults: Mapping[str, bool],
        facts: ModelFacts,
    ) -> None:
        self._runtime = runtime
        self._adapter = adapter
        self._used = False
        self.config = config
        self.adapter_defaults = adapter_defaults
        self.facts = facts

    def stream(self, request: Request, signal: CancelSignal) -> ModelStream:
        """Stream the request that was built for this call.

        Raises:
            LlmError: `INVALID_PREPARED_CALL`, it was used before or the request has another configuration.
        """
        if self._used or request.config != self.config:
            fault = "was already used" if self._used else "belongs to another configuration"
            raise LlmError(f"this prepared call {fault}", code="INVALID_PREPARED_CALL")
        self._used = True
        return self._runtime.stream_over(self._adapter, request, signal)


async def _contained(
    open_stream: Callable[[], AsyncIterator[StreamChunk]], signal: CancelSignal
) -> AsyncIterator[StreamChunk]:
    """A route's stream; whatever it raises becomes its terminal chunk."""
    try:
        stream = open_stream()
        try:
            async for chunk in stream:
                yield chunk
                if chunk["type"] == "finish":
                    return
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
    except Exception as failure:
        yield _terminal(failure, signal)


def _terminal(failure: Exception, signal: CancelSignal) -> StreamChunk:
    if isinstance(failure, LlmError):
        facts = failure.facts()
    else:
        try:
            message = str(failure) or type(failure).__name__
        except Exception:  # its text cannot be had
            message = "LLM adapter failed"
        facts = {"message": message, "code": "UNKNOWN"}
    kind = "aborted" if signal.aborted or facts["code"] == "ABORTED" else "error"
    return finish(kind, error=facts)
