"""TLS is verified, on both ways to the service; a certificate that does not verify wakes a person.

The certificates in ``certificates/`` are of a throw-away authority whose key was not kept, valid to 2120 or expired.
"""

import asyncio
import ssl
from pathlib import Path

import pytest

from callkeeper.app.environment import SettingsWrong
from callkeeper.app.settings import ServiceSettings
from callkeeper.app.wiring import service_config
from callkeeper.calls.store.last_errors import fault_words
from callkeeper.service import CertificateFault, CertificateRefused, MemoryTokenStore, NotSent, ServiceUnavailable
from tests.integration.service.raw_service import always, client, raw_service, reply

CERTIFICATES = Path(__file__).parent / "certificates"
AUTHORITY = str(CERTIFICATES / "authority.pem")
ANSWER = always(reply(200, b'{"success":true,"phoneCallId":1}'))


def server_tls(name: str) -> ssl.SSLContext:
    """Make the context of a server with one of the certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / f"{name}.pem")
    return context


async def test_certificate_that_verifies_is_accepted() -> None:
    """The right host, a trusted authority, in time: reads and effects go through."""
    async with raw_service(ANSWER, server_tls("good")) as service:
        url = service.url.replace("http:", "https:")
        async with client(url, ca_file=AUTHORITY) as reseller:
            await reseller.details("cu-1", "v-1", check=False, requested_by="bot")
            await reseller.reject_voice("cu-1", "v-1", requested_by="bot")
    assert len(service.arrivals) == 2


@pytest.mark.parametrize(
    ("certificate", "ca_file"),
    [("expired", AUTHORITY), ("other-host", AUTHORITY), ("good", None)],
    ids=["expired", "for another host", "of an unknown authority"],
)
async def test_certificate_that_does_not_verify_is_refused(certificate: str, ca_file: str | None) -> None:
    """D6: nothing is sent, no credential leaves; an effect is "not sent" for that reason."""
    async with raw_service(ANSWER) as plain:
        tokens = MemoryTokenStore()
        async with client(plain.url, tokens) as reseller:
            await reseller.institution_keys()
    async with raw_service(ANSWER, server_tls(certificate)) as service:
        url = service.url.replace("http:", "https:")
        async with client(url, ca_file=ca_file) as reseller:
            with pytest.raises(CertificateRefused):
                await reseller.details("cu-1", "v-1", check=False, requested_by="bot")
        async with client(url, tokens, ca_file=ca_file) as reseller:
            with pytest.raises(NotSent) as caught:
                await reseller.reject_voice("cu-1", "v-1", requested_by="bot")
    assert isinstance(caught.value.__cause__, CertificateRefused)
    assert (service.arrivals, service.logins) == ([], [])


def test_private_authority_reaches_the_client_from_the_settings() -> None:
    """A service whose certificate a bank's own authority has signed is used if a setting names that authority."""
    environ = {
        "CALLKEEPER_SERVICE_URL": "https://service.example",
        "CALLKEEPER_ACCESS_TOKEN": "canary-access",
        "CALLKEEPER_EMAIL": "svc@reseller.example",
        "CALLKEEPER_PASSWORD": "canary-password",
        "CALLKEEPER_REQUESTED_BY": "bot",
    }
    assert service_config(ServiceSettings.load(environ)).ca_file is None
    config = service_config(ServiceSettings.load(environ | {"CALLKEEPER_CA": AUTHORITY}))
    assert config.ca_file == AUTHORITY


def test_file_without_a_certificate_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """The message names the variable and what is wrong with its file."""
    empty = tmp_path / "empty.pem"
    empty.touch()
    for path, problem in ((empty, "holds no certificate"), (tmp_path, "is not the path of a file")):
        with pytest.raises(SettingsWrong, match=f"CALLKEEPER_CA.*{problem}"):
            ServiceSettings.load({"CALLKEEPER_CA": str(path)})


@pytest.mark.parametrize(
    ("certificate", "ca_file", "fault"),
    [
        ("expired", AUTHORITY, CertificateFault.EXPIRED),
        ("other-host", AUTHORITY, CertificateFault.OTHER_HOST),
        ("good", None, CertificateFault.UNKNOWN_AUTHORITY),
    ],
    ids=["expired", "for another host", "of an unknown authority"],
)
async def test_certificate_says_what_is_wrong_with_it(
    certificate: str, ca_file: str | None, fault: CertificateFault
) -> None:
    """Each fault has words and a remedy of its own: people renew a certificate, or correct an address."""
    async with (
        raw_service(ANSWER, server_tls(certificate)) as service,
        client(service.url.replace("http:", "https:"), ca_file=ca_file) as reseller,
    ):
        with pytest.raises(CertificateRefused) as caught:
            await reseller.institution_keys()
    assert (caught.value.fault, caught.value.brief) == (
        fault,
        f"certificate verify failed: the certificate {fault}",
    )
    assert fault_words(fault.name) is not None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://127.0.0.1:{no_http}", "no TLS on this port"),
        ("http://127.0.0.1:{silent}", "connection closed"),
        ("http://127.0.0.1:{no_http}", "not valid HTTP"),
        ("http://127.0.0.1:1", "connection refused"),
        ("https://canary-host.invalid", "name not found"),
    ],
)
async def test_service_that_is_not_there_is_named_by_cause(url: str, words: str) -> None:
    """Each cause has words of its own, and none shows the address."""

    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)  # a connection that is closed with bytes unread is reset, and the answer may be lost
        writer.write(b"-ERR unknown command\r\n")
        writer.close()

    servers = [await asyncio.start_server(each, "127.0.0.1", 0) for each in (close, answer)]
    silent, no_http = [each.sockets[0].getsockname()[1] for each in servers]
    async with servers[0], servers[1], client(url.format(silent=silent, no_http=no_http)) as reseller:
        with pytest.raises(ServiceUnavailable) as caught:
            await reseller.institution_keys()
    assert str(caught.value) == f"token: no whole answer: {words}"
