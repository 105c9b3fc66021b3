"""The one pooled HTTP client of a process: guarded addresses, no cookies kept, no environment, no secrets in logs."""

import http.cookiejar
import logging
from typing import Any, Final

import httpcore
import httpx

from runs.tools.bounds import (
    CONNECT_TIMEOUT_S,
    EFFECT_KEEPALIVE_S,
    MAX_CONNECTIONS,
    MAX_IDLE_CONNECTIONS,
    READ_KEEPALIVE_S,
)
from runs.tools.netguard import AddressGuard

EFFECT: Final = "executor_effect"
"""Request extension: True sends the request over the connections kept for effects."""


LOCATION: Final = "executor_location"
"""Response extension: the `Location` header, which is not among the headers."""


def make_client(guard: AddressGuard, *, verify: Any = True) -> httpx.AsyncClient:
    """A client that connects only where `guard` allows; close it with `aclose()`. One for a process and event loop.

    `verify` is httpx's: True, or an `ssl.SSLContext` for a private CA.
    """
    logging.getLogger("httpx").addFilter(_no_request_lines)
    return httpx.AsyncClient(
        transport=_GuardedTransport(guard, verify),
        # An upstream's cookies belong to one call; a jar would hand them to the next caller.
        cookies=http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=[])),
        follow_redirects=False,
        trust_env=False,
        # Reading and writing end with the whole call's deadline, which the caller sets.
        timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S, pool=CONNECT_TIMEOUT_S),
    )


def _no_request_lines(record: logging.LogRecord) -> bool:
    """httpx logs every request with its whole address, where a key may stand in the query."""
    return not str(record.msg).startswith("HTTP Request:")


class _GuardedTransport(httpx.AsyncBaseTransport):
    """Two pools behind one client, by what an unanswered request would mean.

    A server may close an idle connection at the moment we write to it. The request was then never read, but nothing
    proves that: for an effect the outcome is unknown. Reads may wait on old connections and are simply repeated;
    effects get connections so young that no server closes them for idleness.
    """

    def __init__(self, guard: AddressGuard, verify: Any) -> None:
        self._reads = _pooled(guard, verify, READ_KEEPALIVE_S)
        self._effects = _pooled(guard, verify, EFFECT_KEEPALIVE_S)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        pool = self._effects if request.extensions.get(EFFECT) else self._reads
        response = await pool.handle_async_request(request)
        # httpx reads a redirect's target even where it does not follow, and raises for a bad one: the status, which
        # tells what became of an effect, would be lost.
        location = response.headers.get("location")
        if location is not None:
            del response.headers["location"]
            response.extensions[LOCATION] = location
        return response

    async def aclose(self) -> None:
        await self._reads.aclose()
        await self._effects.aclose()


def _pooled(guard: AddressGuard, verify: Any, keepalive_s: float) -> httpx.AsyncHTTPTransport:
    """httpx's own transport over a pool whose connections are made by the guard.

    httpx offers no parameter for the network backend, so its pool is replaced; a test holds that every connection
    goes through the guard.
    """
    transport = httpx.AsyncHTTPTransport(verify=verify, trust_env=False)
    transport._pool = httpcore.AsyncConnectionPool(
        ssl_context=httpx.create_ssl_context(verify=verify, trust_env=False),
        max_connections=MAX_CONNECTIONS // 2,
        max_keepalive_connections=MAX_IDLE_CONNECTIONS,
        keepalive_expiry=keepalive_s,
        http1=True,
        http2=False,
        retries=0,
        network_backend=guard.backend(),
    )
    return transport
