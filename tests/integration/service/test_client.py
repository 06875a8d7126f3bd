"""The client against the stand-in: two readings of one Spec, written apart, must agree."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from callkeeper.calls.reading_folding import policies_of
from callkeeper.service import (
    CallNotFound,
    CallStatus,
    CoreType,
    InstitutionNotFound,
    LoginPolicy,
    LoginRefused,
    MemoryTokenStore,
    OutcomeUnknown,
    Secret,
    ServiceConfig,
    ServiceRefused,
    ServiceUnavailable,
    TokenLapsed,
    ValidationType,
)
from callkeeper.service.client import Reseller
from tests.sandbox_fixtures import CREDENTIALS, KEY, PHONE, Asgi, ServedSandbox
from tests.transports import AnnouncingTransport


@asynccontextmanager
async def client(sandbox: ServedSandbox, **changes: Any) -> AsyncIterator[Reseller]:
    """Open a client of the stand-in."""
    config = ServiceConfig(
        base_url=sandbox.url,
        access_token=changes.get("access_token", Secret(sandbox.credentials.access_token)),
        email=Secret(sandbox.credentials.email),
        password=changes.get("password", Secret(sandbox.credentials.password)),
    )
    reseller = Reseller(config, MemoryTokenStore())
    try:
        yield reseller
    finally:
        await reseller.aclose()


async def details(reseller: Reseller, voice_id: str, *, check: bool = False) -> Any:
    """Ask for a call's details."""
    return await reseller.details(KEY, voice_id, check=check, requested_by="bot")


async def test_login_tells_the_institutions(sandbox_server: ServedSandbox) -> None:
    """Endpoint 1."""
    async with client(sandbox_server) as reseller:
        assert await reseller.institution_keys() == {KEY}
        assert (await reseller.token()).expires_on is not None


@pytest.mark.parametrize("wrong", ["access_token", "password"])
async def test_wrong_credentials_are_refused(sandbox_server: ServedSandbox, wrong: str) -> None:
    """Endpoint 1: whichever credential is wrong."""
    async with client(sandbox_server, **{wrong: Secret("wrong")}) as reseller:
        with pytest.raises(LoginRefused):
            await reseller.institution_keys()


async def test_user_token_is_granted(sandbox_server: ServedSandbox) -> None:
    """Endpoint 2."""
    async with client(sandbox_server) as reseller:
        assert (await reseller.user_token(KEY)).reveal()


async def test_call_goes_from_the_queue_to_green(sandbox_server: ServedSandbox) -> None:
    """Endpoints 3, 4, 5: listed with its candidate, assigned, checked, green."""
    call = sandbox_server.call(script=({"kind": "green", "after_s": 0},))
    async with client(sandbox_server) as reseller:
        now = datetime.now(UTC)
        (entry,) = await reseller.queue(
            KEY,
            continue_from=0,
            page_size=10,
            search_string=PHONE,
            start_at=now - timedelta(minutes=5),
            end_at=now + timedelta(minutes=5),
        )
        assert entry.voice_id == call["voice_id"]
        assert entry.phone_number == PHONE
        assert abs(entry.started_at - now) < timedelta(minutes=5)
        assert [person.person_id for person in entry.persons] == ["p-1"]
        assert entry.person_id is None
        settled = await reseller.assign(KEY, person_id="p-1", requested_by="bot", voice_id=call["alternate_id"])
        assert settled == call["voice_id"]
        green = await details(reseller, settled, check=True)
        assert green.status == CallStatus.FULL_AUTHENTICATION
        assert [policy.startswith("Green") for policy in policies_of(green)] == [True]
        assert green.person_id == "p-1"
    assert sandbox_server.control("GET", f"/calls/{call['voice_id']}")["checks_used"] == 1


async def test_queue_outside_the_bounds_is_empty(sandbox_server: ServedSandbox) -> None:
    """Endpoint 3: bounds and search text leave out what they should."""
    sandbox_server.call()
    later = datetime.now(UTC) + timedelta(hours=1)
    async with client(sandbox_server) as reseller:
        assert len(await reseller.queue(KEY, continue_from=0, page_size=10)) == 1
        assert await reseller.queue(KEY, continue_from=0, page_size=10, start_at=later) == ()
        assert await reseller.queue(KEY, continue_from=0, page_size=10, search_string="nobody of that name") == ()


async def test_queue_is_paged_by_entries(sandbox_server: ServedSandbox) -> None:
    """Endpoint 3: both readings assume that ``continueFrom`` counts entries."""
    ids = {sandbox_server.call()["voice_id"] for _ in range(5)}
    async with client(sandbox_server) as reseller:
        pages = [await reseller.queue(KEY, continue_from=at, page_size=2) for at in (0, 2, 4, 6)]
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert {entry.voice_id for page in pages for entry in page} == ids


async def test_assign_without_an_id_is_refused(sandbox_server: ServedSandbox) -> None:
    """Endpoint 4: neither number nor voice id."""
    async with client(sandbox_server) as reseller:
        with pytest.raises(ServiceRefused):
            await reseller.assign(KEY, person_id="p-1", requested_by="bot")


async def test_unknown_call_is_not_found(sandbox_server: ServedSandbox) -> None:
    """Endpoints 5, 6, 7: the stand-in's wording of "not found" is understood as such."""
    async with client(sandbox_server) as reseller:
        with pytest.raises(CallNotFound):
            await details(reseller, "no-such-call")
        with pytest.raises(CallNotFound):
            await reseller.reject_voice(KEY, "no-such-call", requested_by="bot")
        with pytest.raises(CallNotFound):
            await enroll(reseller, "no-such-call")


async def enroll(reseller: Reseller, voice_id: str) -> None:
    """Enroll."""
    await reseller.enroll(
        KEY,
        voice_id,
        person_id="p-1",
        validation_type=ValidationType.KNOWLEDGE_BASED_AUTH,
        notes="knew it",
        requested_by="bot",
    )


async def test_enroll_shows_in_the_details(sandbox_server: ServedSandbox) -> None:
    """Endpoint 6: by alternate id; the manual policy and the status can be read afterwards."""
    call = sandbox_server.call()
    async with client(sandbox_server) as reseller:
        await reseller.assign(KEY, person_id="p-1", requested_by="bot", voice_id=call["voice_id"])
        await enroll(reseller, call["alternate_id"])
        record = await details(reseller, call["voice_id"])
    assert record.status in (CallStatus.FULL_AUTHENTICATION, CallStatus.ACCEPT_CALLER_VOICE)
    assert "Green Manual Authentication" in policies_of(record)
    assert sandbox_server.tally(call["voice_id"])["applied"]["enroll"] == 1


async def test_reject_shows_in_the_details(sandbox_server: ServedSandbox) -> None:
    """Endpoint 7: by the real id only."""
    call = sandbox_server.call()
    async with client(sandbox_server) as reseller:
        await reseller.assign(KEY, person_id="p-1", requested_by="bot", voice_id=call["voice_id"])
        with pytest.raises(ServiceRefused):
            await reseller.reject_voice(KEY, call["alternate_id"], requested_by="bot")
        await reseller.reject_voice(KEY, call["voice_id"], requested_by="bot")
        assert (await details(reseller, call["voice_id"])).status == CallStatus.REJECT_CALLER_VOICE


async def test_institutions_are_managed(sandbox_server: ServedSandbox) -> None:
    """Endpoints 8 to 12."""
    async with client(sandbox_server) as reseller:
        (summary,) = await reseller.institutions()
        assert (summary.key, summary.status) == (KEY, "Active")
        institution = await reseller.institution(KEY)
        assert (institution.key, institution.name) == (KEY, summary.name)
        await reseller.update_institution(KEY, name="Renamed", core=CoreType.NONE)
        assert (await reseller.institution(KEY)).name == "Renamed"
        await reseller.add_institution({"name": "Second Example", "core": "None"})
        assert len(await reseller.institutions()) == 2
        login = await reseller.login_as(KEY)
        assert login.token
        assert login.actions


async def test_institution_that_is_not_ours_is_refused(sandbox_server: ServedSandbox) -> None:
    """Endpoints 9 to 12: unknown keys are not found, a bad body is refused."""
    async with client(sandbox_server) as reseller:
        with pytest.raises(InstitutionNotFound):
            await reseller.institution("no-such-key")
        with pytest.raises(InstitutionNotFound):
            await reseller.update_institution("no-such-key", name="x", core=CoreType.NONE)
        with pytest.raises(ServiceRefused):
            await reseller.add_institution({})


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("action", ["reset", "drop", "truncated"])
async def test_enroll_cut_off_is_unknown(sandbox_server: ServedSandbox, action: str, applied: bool) -> None:
    """E1: cut off before or after it was applied, an enroll is unknown and arrives once."""
    call = sandbox_server.call()
    sandbox_server.fault("enroll", action, applied=applied)
    async with client(sandbox_server) as reseller:
        await reseller.assign(KEY, person_id="p-1", requested_by="bot", voice_id=call["voice_id"])
        with pytest.raises(OutcomeUnknown):
            await enroll(reseller, call["voice_id"])
    tally = sandbox_server.tally(call["voice_id"])
    assert tally["arrived"]["enroll"] == 1
    assert tally["applied"].get("enroll", 0) == applied


@pytest.mark.parametrize("action", ["reset", "drop"])
async def test_check_cut_off_arrives_once(sandbox_server: ServedSandbox, action: str) -> None:
    """D13: a check whose connection goes is not sent again, kept alive or not."""
    call = sandbox_server.call()
    async with client(sandbox_server) as reseller:
        await details(reseller, call["voice_id"])
        before = sandbox_server.tally(call["voice_id"])["arrived"]
        sandbox_server.fault("details", action)
        with pytest.raises(ServiceUnavailable):
            await details(reseller, call["voice_id"], check=True)
    after = sandbox_server.tally(call["voice_id"])["arrived"]
    assert sum(after.values()) == sum(before.values()) + 1


async def test_lapsed_token_is_renewed(sandbox_asgi: Asgi) -> None:
    """Authentication 3, 4: idle for half an hour, a check is told so and a read goes on by itself."""
    call = sandbox_asgi.call()
    reseller = _in_process(sandbox_asgi)
    await details(reseller, call.voice_id)
    sandbox_asgi.advance(1801)
    with pytest.raises(TokenLapsed):
        await details(reseller, call.voice_id, check=True)
    await reseller.renew()
    assert (await details(reseller, call.voice_id)).voice_id == call.voice_id
    await reseller.aclose()


async def test_twentieth_check_is_the_last_that_asks(sandbox_asgi: Asgi) -> None:
    """Polling stop rule: the client reads all answers, those after the twentieth too."""
    call = sandbox_asgi.call()
    reseller = _in_process(sandbox_asgi)
    for _ in range(22):
        record = await details(reseller, call.voice_id, check=True)
        assert record.voice_id == call.voice_id
    await reseller.aclose()


def _in_process(stage: Asgi) -> Reseller:
    config = ServiceConfig(
        base_url="http://127.0.0.1",
        access_token=Secret(CREDENTIALS.access_token),
        email=Secret(CREDENTIALS.email),
        password=Secret(CREDENTIALS.password),
        login=LoginPolicy(min_interval_s=0.0),
    )
    wire = AnnouncingTransport(stage.transport)
    return Reseller(config, MemoryTokenStore(), reads_transport=wire, effects_transport=wire)
