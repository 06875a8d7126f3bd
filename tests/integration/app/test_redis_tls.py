"""Redis behind TLS: the certificate is verified unless a setting disables that, and the doctor says which.

The certificates are those of the tests of the service's client: a throw-away authority, valid to 2120 or expired.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from callkeeper.app.connections import blocking_redis, receiver_redis
from callkeeper.app.doctor.finding import Severity
from callkeeper.app.doctor.redis_server import store_findings
from callkeeper.app.settings import StoreSettings
from callkeeper.service import CertificateFault

CERTIFICATES = Path(__file__).parents[1] / "service" / "certificates"
AUTHORITY = str(CERTIFICATES / "authority.pem")


@asynccontextmanager
async def behind_tls(redis_url: str, certificate: str) -> AsyncIterator[str]:
    """Put a server with a certificate in front of Redis; return its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / f"{certificate}.pem")
    port = urlsplit(redis_url).port
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_redis = await asyncio.open_connection("127.0.0.1", port)
        both = (_pump(reader, to_redis[1]), _pump(to_redis[0], writer))
        tasks.update(asyncio.create_task(each) for each in both)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"rediss://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


async def test_redis_with_a_certificate_that_verifies_is_used(redis_url: str) -> None:
    """With a known authority and the right host, both kinds of connection work, and the doctor says ok."""
    async with behind_tls(redis_url, "good") as url:
        store = StoreSettings.load({"REDIS_URL": url, "CALLKEEPER_CA": AUTHORITY})
        async with receiver_redis(store.redis) as redis:
            await redis.set("seen", "over TLS")
            found = {finding.what: finding for finding in await store_findings(redis, store.redis)}
        with blocking_redis(store.redis) as blocking:
            assert await asyncio.to_thread(blocking.get, "seen") == b"over TLS"
    assert (found["redis tls"].severity, found["redis"].severity) == (Severity.OK, Severity.OK)


@pytest.mark.parametrize(
    ("certificate", "settings", "fault", "remedy"),
    [
        ("good", {}, CertificateFault.UNKNOWN_AUTHORITY, "Name the authority in CALLKEEPER_CA"),
        ("expired", {"CALLKEEPER_CA": AUTHORITY}, CertificateFault.EXPIRED, "Renew the server's certificate."),
        (
            "other-host",
            {"CALLKEEPER_CA": AUTHORITY},
            CertificateFault.OTHER_HOST,
            "Correct the host in REDIS_URL",
        ),
    ],
    ids=["of an unknown authority", "expired", "for another host"],
)
async def test_redis_with_a_certificate_that_does_not_verify_is_refused(
    redis_url: str, certificate: str, settings: dict[str, str], fault: CertificateFault, remedy: str
) -> None:
    """Nothing is sent to a server whose certificate is invalid; the doctor says what is wrong with it, and what helps."""
    async with behind_tls(redis_url, certificate) as url:
        store = StoreSettings.load({"REDIS_URL": url, **settings})
        async with receiver_redis(store.redis) as redis:
            with pytest.raises(RedisConnectionError):
                await redis.set("seen", "never")
            [finding] = await store_findings(redis, store.redis)
    assert finding.severity is Severity.FAULT
    assert finding.detail == f"{store.redis.address} does not answer: the certificate {fault}"
    assert finding.remedy.startswith(remedy)


async def test_redis_is_taken_unverified_only_where_the_settings_say_so(redis_url: str) -> None:
    """With an unknown authority, as on some platforms, CALLKEEPER_REDIS_TLS=unverified works, and the doctor warns."""
    async with behind_tls(redis_url, "other-host") as url:
        store = StoreSettings.load({"REDIS_URL": url, "CALLKEEPER_REDIS_TLS": "unverified"})
        async with receiver_redis(store.redis) as redis:
            assert await redis.ping()
            found = {finding.what: finding for finding in await store_findings(redis, store.redis)}
    assert found["redis tls"].severity is Severity.WARNING
