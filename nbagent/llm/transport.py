"""HTTP to a model server: event streams in batches, failures in words, an abort that ends a wait at once.

The only module that knows the HTTP library.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import anyio.to_thread

from nbagent.cancellation import CancelSignal
from nbagent.errors import InputError, LlmError
from nbagent.llm.failures import failure_of_body, readable
from nbagent.llm.sse import MAX_EVENT_BYTES, ServerEvent, SseDecoder

if TYPE_CHECKING:
    import ssl

    import httpx

__all__ = ("CONNECT_SECONDS", "IDLE_SECONDS", "Transport", "check_base_url")

_T = TypeVar("_T")

CONNECT_SECONDS = 10.0
"""How long a connection may take; `NBAGENT_CONNECT_TIMEOUT` overrides it."""
IDLE_SECONDS = 300.0
"""How long a server may send nothing at all; comments count as something. There is no limit on the whole answer."""
_FAILED_BODY_BYTES = 1_000_000
_MOST_KEPT = 20
"""Connections kept for later requests."""
_CLOSE_SECONDS = 0.2
"""How long the closing of a connection may take after an abort."""
_LOOPBACK: dict[str, Any] = {"all://localhost": None, "all://127.0.0.1": None, "all://[::1]": None}
"""A proxy of the environment never serves this machine's own addresses."""


class Transport:
    """Requests to one base URL. One client an event loop; the library is loaded with the first request.

    Args:
        base_url: Where the protocol's paths begin.
        headers: Sent with every request; they hold the key and never appear in a message.
        idle_seconds: How long a server may send nothing.

    Attributes:
        host: The server as messages name it.

    Raises:
        InputError: `INVALID_BASE_URL`.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], *, idle_seconds: float = IDLE_SECONDS) -> None:
        check_base_url(base_url)
        self._base_url = base_url.rstrip("/").removesuffix("/chat/completions")
        self._headers = {**headers, "accept-encoding": "identity"}
        self._idle_seconds = idle_seconds
        self._clients: dict[Any, httpx.AsyncClient] = {}
        self.host = urlsplit(base_url).netloc.rpartition("@")[2]

    async def events(
        self, path: str, body: bytes, *, signal: CancelSignal, patience: Callable[[], float | None]
    ) -> AsyncGenerator[list[ServerEvent] | bytes]:
        """Post `body` and read the answer's events, all that one read of the network brought at once.

        Args:
            path: Below the base URL.
            body: The JSON request.
            signal: Its abort ends every wait at once and closes the connection.
            patience: Seconds to wait for more; none while an answer is being given, little when all has been said.

        Yields:
            Batches of events. An answer that is no event stream, whatever it calls itself, comes as its bytes, once.

        Raises:
            LlmError: Every failure, with its code; `ABORTED` after an abort.
        """
        leash = _Leash(signal)
        try:
            client = await self._client()
            response = await self._receive(leash, client, path, body)
            received = _bytes_of(response)
            try:
                await self._check_status(leash, response, received)
                async with aclosing(self._batches(leash, received, patience)) as batches:
                    async for batch in batches:
                        yield batch
            finally:
                await _close(response, received)
        finally:
            leash.release()

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(anyio.lowlevel.current_token(), None)
        if client is not None:
            await client.aclose()

    async def _batches(
        self, leash: _Leash, received: AsyncIterator[bytes], patience: Callable[[], float | None]
    ) -> AsyncGenerator[list[ServerEvent] | bytes]:
        decoder = SseDecoder()
        begun: bytes | None = b""
        while True:
            data = await self._next(leash, received, patience())
            if data is None:
                break
            if begun is not None:
                # The first character tells what it is: a server's own label is often wrong.
                begun += data
                first = begun.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
                if not first:
                    continue
                if first in b"{[<":
                    yield await self._rest(leash, received, begun, MAX_EVENT_BYTES)
                    return
                data, begun = begun, None
            events = decoder.feed(data)
            if events:
                yield events
        events = decoder.close()
        if events:
            yield events
        if decoder.stray:
            yield decoder.stray

    async def _client(self) -> httpx.AsyncClient:
        loop = anyio.lowlevel.current_token()
        client = self._clients.get(loop)
        if client is None:
            # Loading the library and the certificates takes longer than a loop should stand still.
            context = await anyio.to_thread.run_sync(_tls_context)
            client = self._clients.setdefault(loop, self._open(context))
        return client

    async def _receive(self, leash: _Leash, client: httpx.AsyncClient, path: str, body: bytes) -> httpx.Response:
        import httpx

        connected = False

        async def notice(event: str, _: Mapping[str, Any]) -> None:
            nonlocal connected
            connected = connected or event.startswith("connection.connect")

        for _ in range(_MOST_KEPT + 1):
            try:
                request = client.build_request(
                    "POST",
                    f"{self._base_url}{path}",
                    content=body,
                    headers=self._headers,
                    extensions={"trace": notice},
                )
                response = await leash.hold(lambda request=request: client.send(request, stream=True))
                if response is not None:
                    return response
            except httpx.InvalidURL as failure:
                raise LlmError(
                    f"the base URL of {self.host} is not usable: {failure}", code="INVALID_REQUEST"
                ) from failure
            except (httpx.HTTPError, OSError) as failure:
                # A connection kept from an earlier request, which the server closed in the meantime, has brought
                # nothing: the request goes over a new one.
                if connected or not isinstance(failure, httpx.NetworkError | httpx.RemoteProtocolError):
                    raise self._failure(failure, begun=False) from failure
        raise LlmError(f"{self.host} closes every connection", code="TRANSPORT")

    async def _check_status(self, leash: _Leash, response: httpx.Response, received: AsyncIterator[bytes]) -> None:
        status = response.status_code
        if status >= 400:
            content = await self._rest(leash, received, b"", _FAILED_BODY_BYTES)
            raise failure_of_body(status, content, response.headers, host=self.host)
        if status >= 300:
            raise LlmError(
                f"{self.host} answered {status}, a redirection: use the address that it names as base URL",
                code="INVALID_REQUEST",
                status=status,
            )

    async def _rest(self, leash: _Leash, received: AsyncIterator[bytes], begun: bytes, limit: int) -> bytes:
        """A whole body, cut at a limit."""
        parts = [begun]
        size = len(begun)
        while size < limit:
            data = await self._next(leash, received, None)
            if data is None:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts)[:limit]

    async def _next(self, leash: _Leash, received: AsyncIterator[bytes], seconds: float | None) -> bytes | None:
        import httpx

        try:
            return await leash.hold(lambda: anext(received, None), seconds)
        except (httpx.HTTPError, OSError) as failure:
            raise self._failure(failure) from failure

    def _open(self, context: ssl.SSLContext) -> httpx.AsyncClient:
        import httpx

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=_MOST_KEPT, keepalive_expiry=30)
        # A large request may take long to write on a thin line; what counts is that something moves.
        timeout = httpx.Timeout(
            connect=_connect_seconds(), read=self._idle_seconds, write=self._idle_seconds, pool=None
        )
        return httpx.AsyncClient(timeout=timeout, limits=limits, verify=context, mounts=_LOOPBACK)

    def _failure(self, failure: Exception, *, begun: bool = True) -> LlmError:
        import httpx

        if isinstance(failure, httpx.ConnectTimeout):
            return LlmError(f"no connection to {self.host} within {_connect_seconds():g} s", code="TIMEOUT")
        if isinstance(failure, httpx.TimeoutException):
            return LlmError(f"{self.host} sent nothing for {self._idle_seconds:g} s", code="TIMEOUT")
        words = readable(str(failure) or type(failure).__name__)
        if isinstance(failure, httpx.ConnectError | httpx.ProxyError):
            return LlmError(f"cannot reach {self.host}: {_why_unreachable(failure) or words}", code="TRANSPORT")
        if isinstance(failure, httpx.RemoteProtocolError | httpx.ReadError):
            code = "STREAM_TRUNCATED" if begun else "TRANSPORT"
            return LlmError(f"the connection to {self.host} broke: {words}", code=code)
        return LlmError(f"the request to {self.host} failed: {words}", code="TRANSPORT")


class _Leash:
    """Ends the wait that is going on when a signal aborts. One subscription serves all waits of a request."""

    def __init__(self, signal: CancelSignal) -> None:
        self._signal = signal
        self._scope: anyio.CancelScope | None = None
        self.release = signal.subscribe(self._pull)

    async def hold(self, work: Callable[[], Awaitable[_T]], seconds: float | None = None) -> _T | None:
        """Await `work()`, at most `seconds`; none when they are over.

        Raises:
            LlmError: `ABORTED`.
        """
        result: _T | None = None
        if not self._signal.aborted:
            # The scope is left before anything is yielded: a generator must not hand one to its consumer.
            with anyio.move_on_after(seconds) as scope:
                self._scope = scope
                try:
                    result = await work()
                finally:
                    self._scope = None
        if self._signal.aborted and result is None:
            raise LlmError("the call was cancelled", code="ABORTED")
        return result

    def _pull(self) -> None:
        if self._scope is not None:
            self._scope.cancel()


def _bytes_of(response: httpx.Response) -> AsyncIterator[bytes]:
    encoded = response.headers.get("content-encoding", "identity") != "identity"
    return response.aiter_bytes() if encoded else response.aiter_raw()


async def _close(response: httpx.Response, received: AsyncIterator[bytes]) -> None:
    """Close the connection; one whose answer was read to its end stays for the next request."""
    with anyio.CancelScope(shield=True) as scope:
        # A wait that is over at once ends the library's generators from the inside; left suspended, they would be
        # finished by the garbage collector, which trio warns of.
        scope.cancel()
        try:
            while await anext(received, None) is not None:
                pass
        except Exception:  # noqa: S110 - the connection is given up anyway
            pass
    with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
        await response.aclose()


def _why_unreachable(failure: BaseException) -> str | None:
    """What the operating system said, in words that say what to look at."""
    for cause in _causes(failure):
        if isinstance(cause, socket.gaierror):
            return "its name is not known here; check the address and the network"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused; is the server running?"
    return None


def _causes(failure: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = failure
    while current is not None:
        yield current
        if isinstance(current, BaseExceptionGroup):
            for member in current.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
                yield from _causes(member)  # pyright: ignore[reportUnknownArgumentType]
        current = current.__cause__ or current.__context__


@functools.cache
def _tls_context() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()


def check_base_url(base_url: str) -> None:
    """Raise unless `base_url` can be one.

    Raises:
        InputError: `INVALID_BASE_URL`.
    """
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or not base_url.isprintable() or " " in base_url:
        shown = repr(base_url if "@" not in base_url else "***")
        raise InputError(
            f"base URL {shown} is not usable: give an http:// or https:// address, such as http://127.0.0.1:8000/v1",
            code="INVALID_BASE_URL",
        )


def _connect_seconds() -> float:
    try:
        return float(os.environ.get("NBAGENT_CONNECT_TIMEOUT", "")) or CONNECT_SECONDS
    except ValueError:
        return CONNECT_SECONDS
