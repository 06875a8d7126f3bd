"""The two ways to the service.

*Reads* (and checks, listings, logins) go over aiohttp's connection pool, which stays cheap with many requests at
once. *Effects* (assign, enroll, reject-voice) go over httpx's own transport, each on a fresh connection: only there can
be told whether a first byte was written, and a fresh connection cannot have been dropped before the request.

Both verify TLS, follow no redirect, keep no cookie, read no proxy from the environment and never repeat a request.
"""

import ssl
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from reseller.bounded import BoundedTransport
from reseller.config import ServiceConfig

KEEPALIVE_S = 15.0
"""How long an idle connection is kept: shorter than servers usually do, so that they rarely drop it first."""


def reads_transport(config: ServiceConfig) -> httpx.AsyncBaseTransport:
    """Make the pooled transport. Its session is opened by the first request, in that request's loop."""
    tls = _tls(config.ca_file)

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=config.max_connections, keepalive_timeout=KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            middlewares=(_once,),
        )

    return AiohttpTransport(verify=tls, trust_env=False, client=session)


def effects_transport(config: ServiceConfig) -> httpx.AsyncBaseTransport:
    """Make the transport that opens a connection for every request and closes it afterwards."""
    return httpx.AsyncHTTPTransport(
        verify=_tls(config.ca_file),
        trust_env=False,
        http2=False,
        retries=0,
        limits=httpx.Limits(max_connections=config.max_connections, max_keepalive_connections=0),
    )


def bounded_client(config: ServiceConfig, transport: httpx.AsyncBaseTransport) -> httpx.AsyncClient:
    """Make a client over a transport with everything off that acts by itself.

    Its own timeouts are off: `ServiceConfig.deadline_s` bounds the whole exchange.
    """
    return httpx.AsyncClient(
        base_url=config.base_url,
        transport=BoundedTransport(transport, config.max_body_bytes),
        headers={"accept": "application/json", "accept-encoding": "gzip, deflate", "user-agent": "callkeeper"},
        cookies=_no_cookies(),
        follow_redirects=False,
        trust_env=False,
        timeout=None,  # noqa: S113  (the deadline is around the whole exchange)
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


def _no_cookies() -> CookieJar:
    return CookieJar(policy=DefaultCookiePolicy(allowed_domains=()))


@cache
def _tls(ca_file: str | None) -> ssl.SSLContext:
    if ca_file is None:
        return httpx.create_ssl_context(trust_env=False)
    return ssl.create_default_context(cafile=ca_file)
