"""The two ways to the service.

*Reads* (and checks, listings, logins) go over aiohttp's connection pool, which stays cheap with many requests at
once. *Effects* (assign, enroll, reject-voice) go over httpx's own transport, each on a fresh connection: only there can
be told whether a first byte was written, and a fresh connection cannot have been dropped before the request.

Both verify TLS, follow no redirect, keep no cookie, read no proxy from the environment and never repeat a request.
"""

import ssl
from functools import cache

import aiohttp
import httpx

from reseller.config import ServiceConfig
from reseller.wire import EVERY_REQUEST, PooledWire, Wire

KEEPALIVE_S = 15.0
"""How long an idle connection is kept: shorter than servers usually do, so that they rarely drop it first."""


def reads_wire(config: ServiceConfig) -> Wire:
    """Make the pooled way."""
    tls = _tls(config.ca_file)

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=config.max_connections, keepalive_timeout=KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=EVERY_REQUEST,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # the deadline is around the whole exchange
            trust_env=False,
            auto_decompress=False,
            middlewares=(_once,),
        )

    return PooledWire(config.base_url, session, config.max_body_bytes)


def effects_transport(config: ServiceConfig) -> httpx.AsyncBaseTransport:
    """Make the transport that opens a connection for every request and closes it afterwards."""
    return httpx.AsyncHTTPTransport(
        verify=_tls(config.ca_file),
        trust_env=False,
        http2=False,
        retries=0,
        limits=httpx.Limits(max_connections=config.max_connections, max_keepalive_connections=0),
    )


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
