"""The two ways to the service, both over aiohttp.

*Reads* (and checks, listings, logins) go over kept-alive connections. *Effects* (assign, enroll, reject-voice) go each over
a fresh connection, which cannot have been dropped before the request.

Both verify TLS, follow no redirect, keep no cookie, read no proxy from the environment and never repeat a request.
"""

import ssl
from collections.abc import Callable
from functools import cache

import aiohttp
import httpx

from reseller.config import ServiceConfig
from reseller.wire import EVERY_REQUEST, AiohttpWire, Wire

KEEPALIVE_S = 15.0
"""How long an idle connection is kept: shorter than servers usually do, so that they rarely drop it first."""


def reads_wire(config: ServiceConfig) -> Wire:
    """Make the way of reads: many requests over few connections."""
    tls = _tls(config.ca_file)
    return _wire(
        config,
        lambda: aiohttp.TCPConnector(ssl=tls, limit=config.max_connections, keepalive_timeout=KEEPALIVE_S),
    )


def effects_wire(config: ServiceConfig) -> Wire:
    """Make the way of effects: a connection is opened for every request and closed afterwards."""
    tls = _tls(config.ca_file)
    return _wire(config, lambda: aiohttp.TCPConnector(ssl=tls, limit=config.max_connections, force_close=True))


def _wire(config: ServiceConfig, connector: Callable[[], aiohttp.TCPConnector]) -> Wire:
    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=EVERY_REQUEST,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # the deadline is around the whole exchange
            trust_env=False,
            auto_decompress=False,
            middlewares=(_once,),
        )

    return AiohttpWire(config.base_url, session, config.max_body_bytes)


async def _once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Hide from aiohttp that a connection was lost, or it would send a GET a second time by itself.

    A check that is sent twice costs two of a call's 20. Failures to connect pass: those it does not repeat.
    """
    try:
        return await send(request)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientSSLError):
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError("the connection was lost") from error


@cache
def _tls(ca_file: str | None) -> ssl.SSLContext:
    if ca_file is None:
        return httpx.create_ssl_context(trust_env=False)
    return ssl.create_default_context(cafile=ca_file)
