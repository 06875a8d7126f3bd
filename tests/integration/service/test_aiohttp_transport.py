"""Requests that arrive at a service of raw sockets: behaviour of the HTTP libraries, counted."""

import asyncio
import gzip
from contextlib import suppress
from urllib.parse import unquote, urlsplit

import pytest

from callkeeper.service import AnswerUnreadable, MemoryTokenStore, PhoneCall, ServiceUnavailable, TokenLapsed
from callkeeper.service.client import Reseller
from tests.integration.service.raw_service import Arrival, always, client, raw_service, reply

EVERY_HEADER = {"host", "accept", "accept-encoding", "user-agent", "ssotoken", "institutionkey", "requestedby"}
CALL = reply(200, b'{"success":true,"phoneCall":{"phoneCallId":1,"voiceId":"v-1"}}')


async def details(reseller: Reseller, voice_id: str = "v-1", *, check: bool = False) -> PhoneCall:
    """Ask for a call's details."""
    return await reseller.details("cu-1", voice_id, check=check, requested_by="bot")


async def test_check_on_a_dropped_kept_alive_connection_arrives_once() -> None:
    """D13: a check whose kept-alive connection drops as it arrives is not sent a second time."""

    async def respond(arrival: Arrival, writer: asyncio.StreamWriter) -> None:
        if arrival.target.endswith("=true"):
            writer.close()
        else:
            writer.write(CALL)

    async with raw_service(respond) as service, client(service.url) as reseller:
        await details(reseller)
        with pytest.raises(ServiceUnavailable):
            await details(reseller, check=True)
    first, check = service.arrivals
    assert check.target.endswith("checkVoiceAuthentication=true")
    assert first.connection == check.connection


@pytest.mark.parametrize("lists", ["calls", "institutions"])
async def test_listing_that_connects_has_a_connection_of_its_own(lists: str) -> None:
    """It arrives only if a new connection can be opened, as an effect does; others share one that is kept."""
    answer = reply(200, b'{"success":true,"phoneCalls":[],"institutions":[]}')
    async with raw_service(always(answer)) as service, client(service.url) as reseller:
        for connects in (False, True, True, False):
            if lists == "calls":
                await reseller.queue("cu-1", continue_from=0, page_size=1, requested_by="bot", connects=connects)
            else:
                with suppress(AnswerUnreadable):  # this answer has two lists
                    await reseller.institutions(connects=connects)
    first, own, another, last = (arrival.connection for arrival in service.arrivals)
    assert first == last
    assert len({first, own, another}) == 3


async def test_check_answered_401_arrives_once() -> None:
    """A check is never repeated, not even after a 401: the caller books another one."""
    async with raw_service(always(reply(401))) as service, client(service.url) as reseller:
        with pytest.raises(TokenLapsed):
            await details(reseller, check=True)
    assert len(service.arrivals) == 1
    assert len(service.logins) == 1


async def test_cookie_is_never_sent_back() -> None:
    """D14: a cookie from one answer is sent in no later request, over either transport."""
    answer = reply(200, b'{"success":true,"voiceId":"v-1","phoneCallId":1}', Set_Cookie="session=1; Path=/")
    async with raw_service(always(answer)) as service, client(service.url) as reseller:
        for _ in range(2):
            await details(reseller)
            await reseller.assign("cu-1", person_id="p-1", requested_by="bot", voice_id="v-1")
    assert len(service.arrivals) == 4
    assert not any("cookie" in arrival.headers for arrival in service.arrivals)


async def test_request_without_a_body_names_no_content_type() -> None:
    """A request without a body has no content type, and one with a body is JSON (Spec: Endpoints)."""
    answer = reply(200, b'{"success":true,"voiceId":"v-1","token":"t-1","actions":[],"phoneCall":{"voiceId":"v-1"}}')
    async with raw_service(always(answer)) as service, client(service.url) as reseller:
        await details(reseller)
        await reseller.reject_voice("cu-1", "v-1", requested_by="bot")
        await reseller.user_token("cu-1")
        await reseller.login_as("cu-1")
        await reseller.assign("cu-1", person_id="p-1", requested_by="bot", voice_id="v-1")
    sent = [(arrival.method, bool(arrival.body), arrival.headers.get("content-type")) for arrival in service.arrivals]
    assert sent == [
        ("GET", False, None),
        ("POST", False, None),
        ("POST", False, None),
        ("POST", False, None),
        ("POST", True, "application/json"),
    ]
    assert {arrival.headers["content-type"] for arrival in service.logins} == {"application/json"}


async def test_request_carries_only_the_headers_that_we_set() -> None:
    """Neither HTTP library adds a header of its own: what arrives is what the Spec asks for."""
    answer = reply(200, b'{"success":true,"voiceId":"v-1","phoneCall":{"voiceId":"v-1"}}')
    async with raw_service(always(answer)) as service, client(service.url) as reseller:
        await details(reseller)
        await reseller.reject_voice("cu-1", "v-1", requested_by="bot")
    read, effect = service.arrivals
    assert read.headers.keys() == EVERY_HEADER
    assert effect.headers.keys() == EVERY_HEADER | {"connection", "content-length"}
    assert read.headers["user-agent"] == "callkeeper"
    assert read.headers["host"] == service.url.removeprefix("http://")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirect_is_not_followed(status: int) -> None:
    """A redirect could carry the token to another host: it is no answer of the service, and nothing follows it."""
    async with raw_service(always(CALL)) as elsewhere:
        answer = reply(status, Location=f"{elsewhere.url}/external/calls/v-1/details")
        async with raw_service(always(answer)) as service, client(service.url) as reseller:
            with pytest.raises(ServiceUnavailable):
                await details(reseller)
        assert len(service.arrivals) == 1
        assert elsewhere.arrivals == []


async def test_gzip_answer_is_read() -> None:
    """A compressed answer of honest size is read."""
    body = gzip.compress(b'{"success":true,"phoneCall":{"voiceId":"v-1"}}')
    answer = reply(200, body, Content_Encoding="gzip")
    async with raw_service(always(answer)) as service, client(service.url) as reseller:
        assert (await details(reseller)).voice_id == "v-1"


async def test_gzip_bomb_is_cut() -> None:
    """A small body that unfolds beyond the cap is refused at the cap."""
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 60_000
    answer = reply(200, bomb, Content_Encoding="gzip")
    async with raw_service(always(answer)) as service, client(service.url) as reseller:
        with pytest.raises(AnswerUnreadable, match="exceeds 1048576 bytes"):
            await details(reseller)


async def test_gzip_bomb_behind_a_401_is_cut() -> None:
    """The body of a 401 is read before the repeat, within the same cap."""
    bomb = reply(401, gzip.compress(b" " * 50_000_000), Content_Encoding="gzip")

    async def respond(arrival: Arrival, writer: asyncio.StreamWriter) -> None:
        writer.write(CALL if len(service.arrivals) == 1 else bomb)

    async with raw_service(respond) as service:
        stored = MemoryTokenStore(clock=lambda: float(100 * len(service.arrivals)))
        async with client(service.url, stored) as reseller:
            await details(reseller)
            with pytest.raises(AnswerUnreadable, match="exceeds 1048576 bytes"):
                await details(reseller)


async def test_endless_body_is_cut() -> None:
    """A body without end is refused at the cap."""

    async def respond(arrival: Arrival, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            await writer.drain()

    async with raw_service(respond) as service, client(service.url) as reseller:
        with pytest.raises(AnswerUnreadable, match="exceeds"):
            await details(reseller)


@pytest.mark.parametrize(
    "headers",
    ["X-Policy: " + "a" * 9000, "\r\n".join(f"X-Trace-{n}: 1" for n in range(150))],
    ids=["a long one", "many"],
)
async def test_headers_of_gateways_stop_nothing(headers: str) -> None:
    """A policy of 9,000 bytes, or 150 headers, come with an answer that is read like any other."""
    answer = reply(200, b'{"success":true,"phoneCall":{"voiceId":"v-1"}}', Server=f"x\r\n{headers}")
    async with raw_service(always(answer)) as service, client(service.url) as reseller:
        await details(reseller)
        assert service.arrivals[0].headers["accept-encoding"] == "identity, gzip"


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate"])
async def test_unknown_encoding_is_refused(encoding: str) -> None:
    """An answer with a content encoding that was not asked for is refused."""
    answer = reply(200, b"{}", Content_Encoding=encoding)
    async with raw_service(always(answer)) as service, client(service.url) as reseller:
        with pytest.raises(AnswerUnreadable, match="not asked for"):
            await details(reseller)


async def test_dripping_body_is_cut_at_the_deadline() -> None:
    """C11: an answer that never stalls and never ends is given up at the deadline of the whole exchange."""
    closed = asyncio.Event()

    async def respond(arrival: Arrival, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"1\r\n \r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            closed.set()

    async with raw_service(respond) as service, client(service.url, deadline_s=0.3) as reseller:
        with pytest.raises(ServiceUnavailable, match=r"within 0.3 s"):
            await details(reseller)
        await asyncio.wait_for(closed.wait(), 5)


async def test_cut_off_answer_is_unavailable() -> None:
    """D4: an answer shorter than announced is unusable."""
    answer = b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"success":true'

    async def respond(arrival: Arrival, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with raw_service(respond) as service, client(service.url) as reseller:
        with pytest.raises(ServiceUnavailable):
            await details(reseller)


@pytest.mark.parametrize("answer", [b"SSH-2.0-server\r\n\r\n", b"HTTP/1.1 xyz\r\n\r\n", b"\x00\xff\r\n\r\n"])
async def test_foreign_protocol_is_unavailable(answer: bytes) -> None:
    """Something that does not speak HTTP leaves as a typed error too."""

    async def respond(arrival: Arrival, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with raw_service(respond) as service, client(service.url) as reseller:
        with pytest.raises(ServiceUnavailable):
            await details(reseller)


@pytest.mark.parametrize(
    "voice_id",
    [
        "../institutions",
        "a?checkVoiceAuthentication=true",
        "a/enroll",
        "%2e%2e",
        "a#b",
        "a b+c",
        "ü",
        "a;b,c&d=e",
        "...",
        "a\r\nX: y",
    ],
)
async def test_identifier_stays_one_path_part(voice_id: str) -> None:
    """A11: whatever a voice id holds, the request goes to that id's details or effect and nowhere else."""
    answer = reply(200, b'{"success":true,"phoneCallId":1}')
    async with raw_service(always(answer)) as service, client(service.url) as reseller:
        await details(reseller, voice_id)
        await reseller.reject_voice("cu-1", voice_id, requested_by="bot")
    read, reject = (urlsplit(arrival.target) for arrival in service.arrivals)
    for target, verb in ((read, "details"), (reject, "reject-voice")):
        empty, external, calls, identifier, last = target.path.split("/")
        assert (empty, external, calls, last) == ("", "external", "calls", verb)
        assert unquote(identifier) == voice_id
    assert (read.query, reject.query) == ("checkVoiceAuthentication=false", "")


async def test_headers_of_the_auth_modes() -> None:
    """Each mode sends its own headers and none of another's. Spec: Authentication."""
    answer = reply(200, b'{"success":true,"phoneCallId":1,"institutions":[]}')
    async with raw_service(always(answer)) as service, client(service.url) as reseller:
        await details(reseller)
        await reseller.institutions()
    ours = ("accesstoken", "ssotoken", "institutionkey", "requestedby")
    seen = [{name: a.headers[name] for name in ours if name in a.headers} for a in [*service.logins, *service.arrivals]]
    assert seen == [
        {"accesstoken": "access-1"},
        {"ssotoken": "sso-1", "institutionkey": "cu-1", "requestedby": "bot"},
        {"ssotoken": "sso-1"},
    ]


async def test_proxy_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is not used."""
    async with raw_service(always(CALL)) as proxy, raw_service(always(CALL)) as service:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        async with client(service.url) as reseller:
            await details(reseller)
            await reseller.reject_voice("cu-1", "v-1", requested_by="bot")
    assert proxy.arrivals == []
    assert len(service.arrivals) == 2
