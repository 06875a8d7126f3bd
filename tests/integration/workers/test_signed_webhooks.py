"""Outcomes as whole connections to a socket that counts."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from callkeeper.calls.outcome_messages import TestMessage
from callkeeper.service import Secret
from callkeeper.service.proxy import Proxy
from tests.tunnel import tunnel
from workers.signed_webhooks import Answer, Posted, WebhookClient

SECRET = Secret("whsec_Y2FuYXJ5LW91dGNvbWUta2V5LTAxMjM0NTY3ODk=")
CERTIFICATES = Path(__file__).parents[1] / "service" / "certificates"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Inside:
    """A server on this machine: it stands for whatever must not be reached."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.connections = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Count a connection and answer its request."""
        self.connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def inside(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Inside]:
    """Run such a server until the block ends."""
    place = Inside(answer)
    async with await asyncio.start_server(place.serve, "127.0.0.1", 0, ssl=tls) as server:
        place.port = server.sockets[0].getsockname()[1]
        yield place


TAKEN = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


class Names(AbstractResolver):
    """Leads a name to one address after the other: what a rebinding attacker's server does."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Answer with the next address."""
        address = self.addresses[self.asked % len(self.addresses)]
        self.asked += 1
        kind = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=0)]

    async def close(self) -> None:
        """Have nothing to close."""


async def post(url: str, *, names: Names | None = None) -> Answer:
    """Post one outcome; return how it was judged."""
    return (await posted(url, names=names)).answer


async def posted(
    url: str,
    *,
    names: Names | None = None,
    ca_file: str | None = None,
    proxy: Proxy | None = None,
) -> Posted:
    """Post one outcome; return what came of it."""
    sink = WebhookClient.open(url, [SECRET], resolver=names, ca_file=ca_file, proxy=proxy)
    try:
        return await sink.post("test.1", TestMessage(timestamp=NOW))
    finally:
        await sink.aclose()


async def test_sink_asks_for_a_name_once_for_each_connection() -> None:
    """Between judging an address and connecting to it the name is not asked for again: there is nothing to rebind."""
    names = Names(["127.0.0.1", "192.0.2.1"])
    async with inside(TAKEN) as place:
        url = f"http://outcomes.example:{place.port}/"
        assert await post(url, names=names) is Answer.TAKEN
    assert (place.connections, names.asked) == (1, 1)


async def test_sink_follows_no_redirect() -> None:
    """An address that was allowed cannot send us on to one that was not."""
    async with inside(TAKEN) as trap:
        away = b"HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n" % trap.port
        async with inside(away) as place:
            assert await post(f"http://127.0.0.1:{place.port}/") is Answer.DECLINED
    assert (place.connections, trap.connections) == (1, 0)


@pytest.mark.parametrize("certificate", ["expired", "other-host", "good"])
async def test_sink_refuses_a_certificate_that_does_not_verify(certificate: str) -> None:
    """An expired certificate, one for another host, one of an unknown authority: nothing is said to its holder."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATES / f"{certificate}.pem")
    async with inside(TAKEN, tls) as place:
        assert await post(f"https://localhost:{place.port}/") is Answer.AWAY
    assert place.connections == 0


async def test_sink_takes_no_proxy_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the platform does not lead outcomes past our judgement."""
    async with inside(TAKEN) as proxy, inside(TAKEN) as place:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert await post(f"http://127.0.0.1:{place.port}/") is Answer.TAKEN
    assert (proxy.connections, place.connections) == (0, 1)


async def test_sink_posts_through_a_proxy_to_a_receiver_of_a_private_authority() -> None:
    """The proxy gets the receiver's name and our login, no byte of the outcome; the private authority is believed."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATES / "good.pem")
    authority = str(CERTIFICATES / "authority.pem")
    async with inside(TAKEN, tls) as place, tunnel("bank:canary 1") as through:
        url = f"https://127.0.0.1:{place.port}/outcomes"
        proxy = Proxy.of(f"http://bank:canary%201@127.0.0.1:{through.port}")
        assert (await posted(url, ca_file=authority, proxy=proxy)).answer is Answer.TAKEN
        assert (await posted(url, proxy=proxy)).error == "the certificate is of an unknown authority"
        refused = await posted(url, ca_file=authority, proxy=Proxy.of(f"http://127.0.0.1:{through.port}"))
    assert (refused.answer, refused.status, refused.error) == (Answer.AWAY, None, "refused by the outgoing proxy")
    assert (set(through.asked), place.connections) == ({f"127.0.0.1:{place.port}"}, 1)
    assert b"callkeeper.test" not in through.passed


async def test_log_names_what_kept_a_post_from_being_answered() -> None:
    """A certificate, nobody there, no such name: each has its own words, without the address."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATES / "expired.pem")
    async with inside(TAKEN, tls) as safe:
        unverified = await posted(f"https://localhost:{safe.port}/")
        gone = await posted("http://127.0.0.1:1/")
        nameless = await posted("http://outcomes.invalid/")
    assert [each.error for each in (unverified, gone, nameless)] == [
        "the certificate is of an unknown authority",
        "connection refused",
        "name not found",
    ]
    assert {each.status for each in (unverified, gone)} == {None}
