"""HTTP to a model server: one client an adapter, event streams in batches, failures in words.

The only module that knows the HTTP library.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nbagent.errors import InputError, LlmError
from nbagent.llm.failures import failure_of_body, readable
from nbagent.llm.sse import ServerEvent, SseDecoder

if TYPE_CHECKING:
    import httpx

__all__ = ("CONNECT_SECONDS", "IDLE_SECONDS", "Transport", "check_base_url")

CONNECT_SECONDS = 10.0
"""How long a connection may take; `NBAGENT_CONNECT_TIMEOUT` overrides it."""
IDLE_SECONDS = 300.0
"""How long a server may send nothing at all; comments count as something. There is no limit on the whole answer."""
_BODY_BYTES = 1_000_000


class Transport:
    """Requests to one base URL.

    Args:
        base_url: Where the protocol's paths begin.
        headers: Sent with every request; they hold the key and never appear in a message.
        idle_seconds: How long a server may send nothing.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], *, idle_seconds: float = IDLE_SECONDS) -> None:
        check_base_url(base_url)
        self._base_url = base_url.rstrip("/")
        self._headers = dict(headers)
        self._idle_seconds = idle_seconds
        self._client: httpx.AsyncClient | None = None
        self.host = urlsplit(base_url).netloc.rpartition("@")[2]

    async def events(
        self, path: str, body: bytes, *, patience: Callable[[], float | None]
    ) -> AsyncGenerator[list[ServerEvent] | bytes]:
        """Post `body` and read the answer's events, all that one read of the network brought at once.

        Args:
            path: Below the base URL.
            body: The JSON request.
            patience: Seconds to wait for more; none while an answer is being given, little when all has been said.

        Yields:
            Batches of events. An answer that is no event stream comes as its bytes, once.

        Raises:
            LlmError: Every failure, with its code.
        """
        import anyio

        async with self._answer(path, body) as response:
            if response.headers.get("content-type", "").startswith("application/json"):
                yield (await response.aread())[:_BODY_BYTES]
                return
            decoder = SseDecoder()
            received = response.aiter_bytes()
            while True:
                data: bytes | None = None
                # The scope is left before anything is yielded: a generator must not hand one to its consumer.
                with anyio.move_on_after(patience()):
                    data = await anext(received, None)
                if data is None:
                    break
                events = decoder.feed(data)
                if events:
                    yield events
            events = decoder.close()
            if events:
                yield events
            if decoder.stray:
                yield decoder.stray

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @asynccontextmanager
    async def _answer(self, path: str, body: bytes) -> AsyncGenerator[httpx.Response]:
        import httpx

        client = self._client = self._client or self._open()
        try:
            async with client.stream(
                "POST", f"{self._base_url}{path}", content=body, headers=self._headers
            ) as response:
                if response.status_code >= 400:
                    content = (await response.aread())[:_BODY_BYTES]
                    raise failure_of_body(response.status_code, content, response.headers, host=self.host)
                if response.status_code >= 300:
                    raise LlmError(
                        f"{self.host} answered {response.status_code}, a redirection: use the address that it names as "
                        "base URL",
                        code="INVALID_REQUEST",
                        status=response.status_code,
                    )
                yield response
        except httpx.HTTPError as failure:
            raise self._failure(failure) from failure
        except httpx.InvalidURL as failure:
            raise LlmError(f"the base URL of {self.host} is not usable: {failure}", code="INVALID_REQUEST") from failure

    def _open(self) -> httpx.AsyncClient:
        import httpx

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        timeout = httpx.Timeout(connect=_connect_seconds(), read=self._idle_seconds, write=60.0, pool=None)
        return httpx.AsyncClient(timeout=timeout, limits=limits)

    def _failure(self, failure: Exception) -> LlmError:
        import httpx

        if isinstance(failure, httpx.ConnectTimeout):
            return LlmError(f"no connection to {self.host} within {_connect_seconds():g} s", code="TIMEOUT")
        if isinstance(failure, httpx.TimeoutException):
            return LlmError(f"{self.host} sent nothing for {self._idle_seconds:g} s", code="TIMEOUT")
        words = readable(str(failure) or type(failure).__name__)
        if isinstance(failure, httpx.ConnectError | httpx.ProxyError):
            return LlmError(f"cannot reach {self.host}: {words}", code="TRANSPORT")
        if isinstance(failure, httpx.RemoteProtocolError | httpx.ReadError):
            return LlmError(f"the connection to {self.host} broke: {words}", code="STREAM_TRUNCATED")
        return LlmError(f"the request to {self.host} failed: {words}", code="TRANSPORT")


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
