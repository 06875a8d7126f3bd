"""The service behind an outgoing proxy: both ways to it, refusals of the proxy, and what its settings say."""

import re

import pytest

from callkeeper.app.environment import SettingsWrong
from callkeeper.app.settings import NetworkSettings, ServiceSettings
from callkeeper.app.wiring import service_config
from callkeeper.service import MemoryTokenStore, NotSent, ServiceUnavailable
from callkeeper.service.proxy import Proxy
from tests.integration.service.raw_service import client, raw_service
from tests.integration.service.test_aiohttp_transport_tls import ANSWER, AUTHORITY, server_tls
from tests.tunnel import tunnel


async def test_reads_and_effects_go_through_the_proxy() -> None:
    """Login, read and effect reach the service through tunnels, whose owner reads no request, and nothing goes past them."""
    async with raw_service(ANSWER, server_tls("good")) as service, tunnel("bank:canary") as through:
        url = service.url.replace("http:", "https:")
        proxy = Proxy.of(f"http://bank:canary@127.0.0.1:{through.port}")
        async with client(url, ca_file=AUTHORITY, proxy=proxy) as reseller:
            await reseller.details("cu-1", "v-1", check=False, requested_by="bot")
            await reseller.reject_voice("cu-1", "v-1", requested_by="bot")
    assert (len(service.logins), len(service.arrivals)) == (1, 2)
    assert set(through.asked) == {f"127.0.0.1:{service.port}"}
    assert b"InstitutionKey" not in through.passed


async def test_proxy_that_refuses_is_an_outage_and_no_effect_is_in_doubt() -> None:
    """A proxy that wants a login, or is not there, is an outage of the service; an effect was certainly not sent."""
    tokens = MemoryTokenStore()
    async with raw_service(ANSWER) as plain, client(plain.url, tokens) as reseller:
        await reseller.institution_keys()
    async with raw_service(ANSWER, server_tls("good")) as service, tunnel("bank:canary") as through:
        url = service.url.replace("http:", "https:")
        refused, away = "refused by the outgoing proxy", "no connection to the outgoing proxy"
        for address, words in ((f"http://127.0.0.1:{through.port}", refused), ("http://127.0.0.1:1", away)):
            async with client(url, tokens, ca_file=AUTHORITY, proxy=Proxy.of(address)) as reseller:
                with pytest.raises(ServiceUnavailable, match=f"no whole answer: {words}$"):
                    await reseller.details("cu-1", "v-1", check=False, requested_by="bot")
                with pytest.raises(NotSent):
                    await reseller.reject_voice("cu-1", "v-1", requested_by="bot")
    assert (service.logins, service.arrivals) == ([], [])


SERVICE = {
    "CALLKEEPER_SERVICE_URL": "https://service.example",
    "CALLKEEPER_ACCESS_TOKEN": "canary-access",
    "CALLKEEPER_EMAIL": "svc@reseller.example",
    "CALLKEEPER_PASSWORD": "canary-password",
    "CALLKEEPER_REQUESTED_BY": "bot",
}


def test_proxy_reaches_the_client_from_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting counts, not the platform's HTTPS_PROXY; its password is shown nowhere."""
    monkeypatch.setenv("HTTPS_PROXY", "http://other.example:3128")
    assert service_config(ServiceSettings.load(SERVICE)).proxy is None
    settings = ServiceSettings.load(SERVICE | {"CALLKEEPER_PROXY": "http://us%40er:canary%3A1@proxy.example:3128"})
    proxy = service_config(settings).proxy
    assert proxy is not None
    assert (proxy.address, proxy.user, proxy.password.reveal()) == ("http://proxy.example:3128", "us@er", "canary:1")
    assert "canary" not in repr(settings)


@pytest.mark.parametrize(
    ("url", "is_direct"),
    [
        ("https://core.example/hook", True),
        ("https://CORE.example:8443/hook", True),
        ("https://a.core.example", True),
        ("https://10.0.0.7/hook", True),
        ("https://score.example", False),
        ("https://core.example.org", False),
        ("https://service.example", False),
    ],
)
def test_hosts_of_the_own_network_are_reached_without_the_proxy(url: str, is_direct: bool) -> None:
    """One proxy leads outside; receiver and identity provider may be inside, and are named as such, with hosts below."""
    proxy = Proxy.of("http://proxy.example:3128, direct=core.example | 10.0.0.7")
    assert proxy.leaves_out(url) is is_direct
    environ = {"CALLKEEPER_PROXY": "http://proxy.example:3128,direct=.core.example|10.0.0.7"}
    assert (NetworkSettings.load(environ).proxy_to(url) is None) is is_direct


@pytest.mark.parametrize(
    ("url", "is_direct"),
    [
        ("http://localhost:8080", True),
        ("http://127.0.0.1:8080/hook", True),
        ("http://gateway/api", True),
        ("https://localhost:8443", True),
        ("https://[::1]/hook", True),
        ("https://[fd00::7]:8443/hook", True),
        ("https://[fd00::8]/hook", True),
        ("https://[fd00::9]/hook", False),
        ("https://gateway/api", False),
    ],
)
def test_nothing_that_a_proxy_could_read_goes_through_it(url: str, is_direct: bool) -> None:
    """Without TLS it would read password and tokens; this machine needs none. An IPv6 address is named as usual."""
    environ = {"CALLKEEPER_PROXY": "http://proxy.example:3128, direct=fd00::7|[fd00::8]"}
    assert (NetworkSettings.load(environ).proxy_to(url) is None) is is_direct


@pytest.mark.parametrize(
    "text",
    [
        "proxy.example:3128",
        "http://proxy.example",
        "https://canary:x@proxy.example:3128",
        "http://canary@:3128",
        "http://proxy.example:99999",
        "http://proxy.example:3128/canary",
        "socks5://proxy.example:1080",
        "http://proxy.example:3128, direct=",
        "http://proxy.example:3128, direct=canary/x",
        "http://proxy.example:3128, direct=a, direct=canary",
        "http://proxy.example:3128, direct=core.example:8443",
        "http://proxy.example:3128, direct=a|[fd00::7]:8443",
    ],
)
def test_proxy_that_cannot_be_is_refused_before_anything_starts(text: str) -> None:
    """The message names the variable and an example, and does not repeat the value, which may hold a password."""
    with pytest.raises(SettingsWrong) as wrong:
        NetworkSettings.load({"CALLKEEPER_PROXY": text})
    lines = str(wrong.value)
    assert re.search("CALLKEEPER_PROXY: must (be http://host:port|name hosts)", lines)
    assert "canary" not in lines
