"""One attempt of a step: the model's stream becomes frames in the log, then one assistant message.

A reader task takes chunks off the adapter as they arrive; whenever the attempt looks, what is at hand becomes one frame.
A frame is durable before anybody is told of its chunks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from nbagent.agent.masking import ChunkMask
from nbagent.agent.stream_notices import StreamNotices
from nbagent.types.assembler import Assembler
from nbagent.types.config import Request
from nbagent.types.frozen import FrozenDict
from nbagent.types.messages import assistant_message
from nbagent.types.stream import StreamChunk

if TYPE_CHECKING:
    from nbagent.agent.driver import Driver
    from nbagent.llm.model_stream import ModelStream
    from nbagent.llm.runtime import PreparedCall

__all__ = ("Answer", "run_attempt")

_FRAME_SECONDS = 1 / 30
"""Under a steady burst the reader lets the loop look this often."""
_CLOSE_SECONDS = 0.25
"""How long a stream may take to close after a cancel."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How an attempt ended.

    Attributes:
        finish: The finish kind.
        tool_calls: The tool calls of the logged message, in order.
        failure: The provider's failure, when there is no message.
    """

    finish: str
    tool_calls: Sequence[dict[str, Any]] = ()
    failure: FrozenDict | None = None


async def run_attempt(driver: Driver, request: Request, prepared: PreparedCall | None, attempt: int) -> Answer:
    """Stream one model call into the log.

    Raises:
        Aborted: The turn was cancelled; what was shown is in the log.
    """
    stream = (prepared or driver.agent.llm).stream(request, driver.signal)
    # A stream that cannot be made has no notifications, one that was made has a start and an end.
    await driver.stoppable(stream.open)
    if driver.signal.aborted:
        await stream.aclose()
    driver.check_abort()
    run = _Attempt(driver, request, attempt)
    run.notices.start()
    try:
        await run.read(stream)
        return run.settle()
    except BaseException as error:
        run.settle_failed(error)
        raise
    finally:
        run.notices.end_aborted()


@dataclass(slots=True)
class _Inbound:
    """What the reader has taken off the stream and nobody has looked at yet."""

    chunks: list[StreamChunk] = field(default_factory=list[StreamChunk])
    ended: bool = False
    failure: Exception | None = None
    news: anyio.Event = field(default_factory=anyio.Event)


class _Attempt:
    def __init__(self, driver: Driver, request: Request, attempt: int) -> None:
        self._driver = driver
        self._session = driver.session
        self._request = request
        self._attempt = attempt
        self._index = 0
        self._mask = ChunkMask()
        self._settled = False
        self._assembler = Assembler()
        self.notices = StreamNotices(driver.agent, driver.turn, driver.step)

    async def read(self, stream: ModelStream) -> None:
        """Take the whole stream; a cancel closes it."""
        inbound = _Inbound()
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            unsubscribe = self._driver.signal.subscribe(group.cancel_scope.cancel)
            group.start_soon(_pump, stream, inbound)
            try:
                await self._consume(inbound)
            except Exception as error:
                failure = error
                group.cancel_scope.cancel()
            finally:
                unsubscribe()
        self._driver.check_abort()
        if failure is not None:
            raise failure

    async def _consume(self, inbound: _Inbound) -> None:
        while True:
            await inbound.news.wait()
            self._driver.check_abort()
            inbound.news = anyio.Event()
            chunks, inbound.chunks = inbound.chunks, []
            ended = inbound.ended
            if ended:
                self._record(self._mask.last(chunks))
            else:
                self._record(self._mask.feed(chunks))
            if ended:
                if inbound.failure is not None:
                    raise inbound.failure
                return

    def _record(self, chunks: Sequence[StreamChunk]) -> None:
        if not chunks:
            return
        data = {
            "turn": self._driver.turn,
            "step": self._driver.step,
            "attempt": self._attempt,
            "index": self._index,
            "chunks": list(chunks),
        }
        event = self._session.append("assistant/frame", data)
        for chunk in event.data["chunks"]:
            self._assembler.feed(chunk)
        self.notices.chunks(event.data["chunks"], self._index, event.time)
        self._index += len(chunks)

    def settle(self) -> Answer:
        """The stream ended by itself: log the message, or answer the failure."""
        reason = self._assembler.finish or {"kind": "stop"}
        kind = reason["kind"]
        if kind in {"error", "aborted"}:
            return Answer(kind, failure=FrozenDict(reason.get("error") or _unexplained(kind)))
        # A call that the token limit may have cut never runs.
        calls = kind != "max-tokens"
        blocks = _with_unique_call_ids(self._assembler.blocks(tool_calls=calls))
        self._append_message(blocks, self._assembler.replay_state(tool_calls=calls), interrupted=False)
        return Answer(kind, [block for block in blocks if block["type"] == "tool-call"])

    def settle_failed(self, error: BaseException) -> None:
        """The attempt raised: after a cancel keep what was shown, else leave only the frames."""
        cancelled = self._driver.signal.aborted or not isinstance(error, Exception)
        if self._settled or not cancelled:
            return
        blocks = self._assembler.interrupted_blocks()
        if not blocks:
            return
        try:
            self._append_message(blocks, None, interrupted=True)
        except Exception as settlement:
            raise BaseExceptionGroup(
                "Assistant stream failed and its durable settlement was rejected", [error, settlement]
            ) from error

    def _append_message(
        self, blocks: Sequence[dict[str, Any]], replay_state: FrozenDict | None, *, interrupted: bool
    ) -> None:
        self._settled = True
        config = self._request.config
        message = assistant_message(
            blocks,
            provider=config.provider,
            model=config.model,
            replay_state=replay_state,
        )
        data: dict[str, Any] = {"turn": self._driver.turn, "step": self._driver.step, "message": message}
        if self._assembler.usage is not None:
            data["usage"] = self._assembler.usage
        if interrupted:
            data["interrupted"] = True
        event = self._session.append("assistant/message", data, surface_op="append")
        self.notices.end_committed(event)


async def _pump(stream: ModelStream, inbound: _Inbound) -> None:
    looked = 0.0
    try:
        async for chunk in stream:
            inbound.chunks.append(chunk)
            if len(inbound.chunks) == 1:
                inbound.news.set()
                looked = time.monotonic()
            elif time.monotonic() - looked > _FRAME_SECONDS:
                await anyio.lowlevel.checkpoint()
    except Exception as error:
        inbound.failure = error
    finally:
        inbound.ended = True
        inbound.news.set()
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await stream.aclose()


def _with_unique_call_ids(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some servers give every call of an answer the same id; a result must find its one call."""
    taken: set[str] = set()
    unique: list[dict[str, Any]] = []
    for block in blocks:
        if block["type"] == "tool-call":
            call_id, copies = block["id"], 1
            while call_id in taken:
                copies += 1
                call_id = f"{block['id']}-{copies}"
            taken.add(call_id)
            if call_id != block["id"]:
                block = FrozenDict({**block, "id": call_id})  # noqa: PLW2901
        unique.append(block)
    return unique


def _unexplained(kind: str) -> dict[str, Any]:
    if kind == "aborted":
        return {"message": "the model call was aborted by its route", "code": "ABORTED"}
    return {"message": "the model call failed without saying why", "code": "UNKNOWN"}
