"""Effects over real sockets arrive at most once, and are never "not sent" if they may have arrived."""

import asyncio
import socket
import traceback
from collections.abc import Awaitable, Callable

import pytest

from callkeeper.service import (
    MemoryTokenStore,
    NotSent,
    OutcomeUnknown,
    ServiceRefused,
    TokenLapsed,
    Unsendable,
    ValidationType,
)
from callkeeper.service.aiohttp_transport import Guard
from callkeeper.service.client import Reseller
from tests.integration.service.raw_service import Arrival, RawService, Respond, always, client, raw_service, reply

Effect = Callable[[Reseller, Guard | None], Awaitable[object]]

SECRET_BODY = b'{"success":false,"error":"member 123-45-6789 declined","code":"Declined"}'


async def assign(reseller: Reseller, guard: Guard | None = None) -> object:
    """Assign."""
    return await reseller.assign("cu-1", person_id="p-1", requested_by="bot", voice_id="v-1", guard=guard)


async def enroll(reseller: Reseller, guard: Guard | None = None) -> object:
    """Enroll."""
    await reseller.enroll(
        "cu-1",
        "v-1",
        person_id="p-1",
        validation_type=ValidationType.OTHER,
        notes=None,
        requested_by="bot",
        guard=guard,
    )
    return None


async def reject(reseller: Reseller, guard: Guard | None = None) -> object:
    """Reject."""
    await reseller.reject_voice("cu-1", "v-1", requested_by="bot", guard=guard)
    return None


def _filler(listener: socket.socket) -> socket.socket:
    filler = socket.socket()
    filler.setblocking(False)
    filler.connect_ex(listener.getsockname())
    return filler


effects = pytest.mark.parametrize("effect", [assign, enroll, reject])


async def close_unanswered(_: Arrival, writer: asyncio.StreamWriter) -> None:
    """Close the connection without a word."""
    writer.close()


async def reset(_: Arrival, writer: asyncio.StreamWriter) -> None:
    """Reset the connection."""
    writer.transport.abort()


def last_words(answer: bytes) -> Respond:
    """Write an answer and close."""

    async def respond(_: Arrival, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    return respond


@effects
@pytest.mark.parametrize(
    "respond",
    [
        pytest.param(close_unanswered, id="closed after the request was received"),
        pytest.param(reset, id="reset after the request was received"),
        pytest.param(always(reply(500)), id="500"),
        pytest.param(always(reply(502, b"<html>")), id="502"),
        pytest.param(always(reply(503, Retry_After="1")), id="503"),
        pytest.param(always(reply(429)), id="429"),
        pytest.param(always(reply(200)), id="empty"),
        pytest.param(always(reply(200, b"<html>")), id="html"),
        pytest.param(always(reply(200, b"{}")), id="no success"),
        pytest.param(always(reply(200, b'{"success":null}')), id="success null"),
        pytest.param(always(reply(200, b'{"success":"true"}')), id="success a text"),
        pytest.param(always(reply(404, b"<html>")), id="404 page"),
        pytest.param(always(reply(400, b'{"title":"Bad"}')), id="400 problem"),
        pytest.param(always(reply(302, Location="/")), id="redirect"),
        pytest.param(always(reply(200, b"\x1f\x8b!!", Content_Encoding="gzip")), id="broken gzip"),
        pytest.param(last_words(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), id="cut off"),
        pytest.param(last_words(b"no http\r\n\r\n"), id="foreign protocol"),
    ],
)
async def test_effect_that_arrived_without_a_clear_answer_is_unknown(effect: Effect, respond: Respond) -> None:
    """D13, E1: once a request may have arrived, only a clear answer ends the doubt; it arrives once."""
    async with raw_service(respond) as service, client(service.url) as reseller:
        with pytest.raises(OutcomeUnknown):
            await effect(reseller, None)
    assert len(service.arrivals) == 1


@effects
async def test_effect_unanswered_at_the_deadline_is_unknown(effect: Effect) -> None:
    """E1: an effect that is received and never answered is unknown, not unsent."""

    async def respond(arrival: Arrival, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with raw_service(respond) as service, client(service.url, deadline_s=1.0) as reseller:
        with pytest.raises(OutcomeUnknown, match="deadline"):
            await effect(reseller, None)
    assert len(service.arrivals) == 1


@effects
async def test_effect_declined_is_refused_without_the_service_s_words(effect: Effect) -> None:
    """D3: `success: false` is a refusal; its code is kept, its error text is shown nowhere."""
    async with raw_service(always(reply(200, SECRET_BODY))) as service, client(service.url) as reseller:
        with pytest.raises(ServiceRefused) as caught:
            await effect(reseller, None)
    assert caught.value.code == "Declined"
    assert "123-45-6789" not in "".join(traceback.format_exception(caught.value))
    assert len(service.arrivals) == 1


@effects
async def test_effect_answered_401_is_lapsed_and_not_repeated(effect: Effect) -> None:
    """An effect answered 401 is not repeated, and there is no login."""
    async with raw_service(always(reply(401))) as service, client(service.url) as reseller:
        with pytest.raises(TokenLapsed):
            await effect(reseller, None)
    assert len(service.arrivals) == 1
    assert len(service.logins) == 1


async def connected(service: RawService, reseller: Reseller) -> None:
    """Log in, so that only the effect itself is left to fail."""
    await reseller.institution_keys()
    assert len(service.logins) == 1


@effects
async def test_effect_on_a_refused_connection_is_not_sent(effect: Effect) -> None:
    """Nobody listens: provably nothing was written."""
    async with raw_service(always(reply(500))) as service:
        stored = MemoryTokenStore()
        async with client(service.url, stored) as reseller:
            await connected(service, reseller)
    async with client(service.url, stored) as reseller:
        with pytest.raises(NotSent):
            await effect(reseller, None)


@effects
async def test_effect_without_a_connection_at_the_deadline_is_not_sent(effect: Effect) -> None:
    """If the connection is not accepted before the deadline, nothing was written."""
    stored = MemoryTokenStore()
    async with raw_service(always(reply(500))) as service, client(service.url, stored) as reseller:
        await connected(service, reseller)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [_filler(listener) for _ in range(8)]
        port = listener.getsockname()[1]
        async with client(f"http://127.0.0.1:{port}", stored, deadline_s=0.3) as reseller:
            with pytest.raises(NotSent):
                await effect(reseller, None)
        for filler in fillers:
            filler.close()


@effects
async def test_guard_that_raises_keeps_every_byte_back(effect: Effect) -> None:
    """If the guard raises, that error is the cause of `NotSent`, and nothing arrives."""

    def guard() -> None:
        raise PermissionError("the lease is over")

    async with raw_service(always(reply(200, b'{"success":true}'))) as service, client(service.url) as reseller:
        with pytest.raises(NotSent) as caught:
            await effect(reseller, guard)
    assert isinstance(caught.value.__cause__, PermissionError)
    assert service.arrivals == []


@effects
async def test_guard_is_the_last_to_run_before_the_first_byte(effect: Effect) -> None:
    """No other task runs between the guard and the first byte."""
    seen: list[bytes] = []
    stored = MemoryTokenStore()
    async with raw_service(always(reply(500))) as service, client(service.url, stored) as reseller:
        await connected(service, reseller)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def look() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.setblocking(False)
                seen.append(connection.recv(4))

        def guard() -> None:
            asyncio.get_running_loop().call_soon(look)

        async with client(f"http://127.0.0.1:{listener.getsockname()[1]}", stored) as reseller:
            with pytest.raises(OutcomeUnknown):
                await effect(reseller, guard)
    assert seen == [b"POST"]


@effects
async def test_every_effect_has_a_connection_of_its_own(effect: Effect) -> None:
    """A fresh connection cannot have been dropped before the request: none is used twice."""
    answer = reply(200, b'{"success":true,"voiceId":"v-1"}')
    async with raw_service(always(answer)) as service, client(service.url) as reseller:
        for _ in range(3):
            await effect(reseller, None)
    assert len({arrival.connection for arrival in service.arrivals}) == 3
    assert all(arrival.headers["connection"] == "close" for arrival in service.arrivals)


@pytest.mark.parametrize("key", ["", "cu-1\r\nX: y", "cu-1\n", " cu-1", "cü-1", "\x00", "k" * 300])
async def test_effect_with_an_unsendable_header_is_not_sent(key: str) -> None:
    """A12: a value that cannot be a header is told apart from a failure that may pass."""
    async with raw_service(always(reply(200))) as service, client(service.url) as reseller:
        with pytest.raises(Unsendable):
            await reseller.reject_voice(key, "v-1", requested_by="bot")
    assert service.arrivals == []


async def test_failed_login_before_an_effect_is_not_sent() -> None:
    """No token, no request: whatever the login met is the cause of `NotSent`."""
    async with client("http://127.0.0.1:1", deadline_s=2.0) as reseller:
        with pytest.raises(NotSent) as caught:
            await reject(reseller)
    assert type(caught.value.__cause__).__name__ == "ServiceUnavailable"
