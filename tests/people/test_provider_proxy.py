"""The identity provider behind an outgoing proxy, with a certificate of the bank's own authority."""

import asyncio
import json
from pathlib import Path

import pytest
from redis.asyncio import Redis

from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.configured_logins import OidcConfig
from callkeeper.desk.access.oidc import Provider, ProviderAway
from callkeeper.service import Secret
from callkeeper.service.proxy import Proxy
from tests.integration.service.test_aiohttp_transport_tls import AUTHORITY, server_tls
from tests.tunnel import tunnel


def config(issuer: str, proxy: Proxy | None) -> OidcConfig:
    """Return the configuration of a login."""
    return OidcConfig(
        issuer=issuer,
        client_id="callkeeper",
        client_secret=Secret("canary-client-5d0b7f2c91-4c07a65e93d2"),
        redirect_uri="https://callkeeper.example/login/callback",
        role_claim="groups",
        operator_claim="preferred_username",
        grants=(),
        ca=Path(AUTHORITY),
        proxy=proxy,
    )


async def test_provider_is_asked_through_the_proxy(redis: Redis) -> None:
    """The metadata comes through the tunnel and no other way; a proxy that refuses is a provider that is away."""

    async def describe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        addresses = dict.fromkeys(("authorization_endpoint", "token_endpoint", "jwks_uri"), f"{issuer}/x")
        body = json.dumps({"issuer": issuer, **addresses}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(describe, "127.0.0.1", 0, ssl=server_tls("good"))
    issuer = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, tunnel("bank:canary") as through:
        proxy = Proxy.of(f"http://bank:canary@127.0.0.1:{through.port}")
        about = await Provider(config(issuer, proxy), redis, keys=Keys()).about()
        assert about["token_endpoint"] == f"{issuer}/x"
        assert through.asked == [issuer.partition("://")[2]]
        with pytest.raises(ProviderAway):
            await Provider(config(issuer, Proxy.of(f"http://127.0.0.1:{through.port}")), redis, keys=Keys()).about()
    assert b"openid-configuration" not in through.passed
