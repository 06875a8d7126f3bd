"""Which institutions may be acted for: by their list where it can be read, else by each key of the login."""

from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.store.request_budget import budget_use
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.institutions import InstitutionStatus
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.sandbox_fixtures import PHONE, Asgi

END = Happening(Kind.END, 900)
OTHER = "cu-2"


@pytest.fixture
def rig(sandbox_asgi: Asgi, redis: Redis) -> Rig:
    """Return a rig with a second institution."""
    sandbox_asgi.world.add_institution(OTHER, "Second")
    sandbox_asgi.world.add_member(OTHER, "p-1", [PHONE])
    return Rig(sandbox_asgi, redis)


async def assigned(rig: Rig, seconds: float) -> list[str]:
    """Start a call at each institution, and return those whose call was assigned after some seconds."""
    calls = [rig.stage.call(END, key=key) for key in (KEY, OTHER)]
    await rig.run(seconds)
    return [call.institution_key for call in calls if call.aliases]


@pytest.mark.parametrize(
    "variant",
    ["list-items", "list-bare", "list-beside-arrays", "list-paged", "list-refused", "list-failing"],
)
async def test_institutions_are_known_however_they_are_listed(rig: Rig, variant: str) -> None:
    """Calls of every institution are assigned, whatever the list is wrapped in, and also where it cannot be read.

    Spec: Endpoints 8 and 10.
    """
    rig.stage.sandbox.choose([variant])
    assert await assigned(rig, 10) == [KEY, OTHER]


async def test_key_that_is_refused_concerns_its_institution_only_and_is_tried_again(rig: Rig) -> None:
    """The others go on at once; its own calls are assigned a minute after the service stops refusing it.

    A refusal is an answer, no outage. A counter and the log name it.
    """
    rig.stage.sandbox.choose(["list-refused", "keys-refused"])
    assert await assigned(rig, 10) == [KEY]
    assert (await rig.counted()).count(figure.INSTITUTIONS_UNREADABLE) == 1
    assert [e["institution"] for e in rig.log.entries if e["event"] == "institution_unreadable"] == [OTHER]
    rig.stage.sandbox.choose(["list-refused"])
    assert await assigned(rig, 75) == [KEY, OTHER]


@pytest.mark.parametrize("fault", [{"action": Action.ANSWER, "status": 503}, {"action": Action.RESET}], ids=str)
@pytest.mark.parametrize("only", [None, OTHER])
@pytest.mark.parametrize("after_s", [5, 33, 100])
async def test_calls_are_assigned_within_10_s_after_an_outage_at_the_first_look(
    rig: Rig, fault: dict[str, Any], only: str | None, after_s: float
) -> None:
    """List and key did not answer when this worker began, so nothing is known of the institution. The log says so once."""
    rig.stage.sandbox.faults.add(Fault(target="institutions", **fault))
    rig.stage.sandbox.faults.add(Fault(target="institution", institution_key=only, **fault))
    await rig.run(after_s)
    rig.stage.sandbox.faults.clear()
    assert await assigned(rig, 10) == [KEY, OTHER]
    logged = [entry["institution"] for entry in rig.log.entries if entry["event"] == "institution_unreadable"]
    assert logged == ([KEY, OTHER] if only is None else [only])


async def test_429_while_institutions_are_first_read_limits_its_institution_only(rig: Rig) -> None:
    """The login names several keys, so a 429 for one of them says nothing about the account's limit."""
    rig.stage.sandbox.choose(["list-failing", "busy-one"])
    await rig.run(1)
    assert [use.institution_key for use in await budget_use(rig.redis, rig.store.keys)] == [OTHER]


async def test_429_is_an_answer_and_brings_no_more_requests(rig: Rig) -> None:
    """What is missing is asked for once a minute, as after a refusal: the service has asked for fewer requests."""
    rig.stage.sandbox.faults.add(Fault(target="institutions", action=Action.ANSWER, status=500))
    busy = rig.stage.sandbox.faults.add(Fault(target="institution", action=Action.ANSWER, status=429))
    await rig.run(50)
    assert busy.met <= 2


async def test_service_that_fails_for_every_key_is_not_asked_for_all_of_them(rig: Rig) -> None:
    """If neither the list nor the first three keys are answered, the other keys are not tried."""
    for number in range(20):
        rig.stage.world.add_institution(f"cu-1{number:02}")
    for target in ("institutions", "institution"):
        rig.stage.sandbox.faults.add(Fault(target=target, action=Action.ANSWER, status=500))
    await rig.institutions.refresh()
    arrived = rig.stage.sandbox.ledger.entries.totals.arrived
    assert (arrived["institutions"], arrived["institution"]) == (1, 3)


async def test_standing_is_asked_for_anew_every_hour_while_a_key_fails(rig: Rig) -> None:
    """Asking again for one key does not keep the others' standing for longer."""
    rig.stage.sandbox.choose(["list-refused", "keys-refused"])
    await rig.run(70)
    first = (await rig.listings.standings())[KEY].told_at
    rig.stage.advance(3600)
    await rig.run(130)
    again = (await rig.listings.standings())[KEY].told_at
    assert first is not None
    assert again is not None
    assert again > first


def with_forty(rig: Rig) -> list[str]:
    """Return the keys of forty more institutions, which the list does not name."""
    keys = [f"cu-1{number:02}" for number in range(40)]
    for key in keys:
        rig.stage.world.add_institution(key)
    rig.stage.sandbox.faults.add(Fault(target="institutions", action=Action.ANSWER, status=500))
    return keys


async def told(rig: Rig) -> set[str]:
    """Return the keys of the institutions whose standing is known."""
    return {key for key, one in (await rig.listings.standings()).items() if one.told_at is not None}


@pytest.mark.parametrize(("rps", "seconds", "most_429"), [(5, 30, 1), (None, 90, 100)])
async def test_institutions_that_are_asked_for_by_key_keep_within_the_limit(
    sandbox_asgi: Asgi, redis: Redis, rps: float | None, seconds: float, most_429: int
) -> None:
    """A worker takes a permit for each, and goes on with the rest. A login takes none, so one request may get a 429.

    A limit that is not set is learned first, from 429s that cost their institutions a minute.
    """
    rig = Rig(sandbox_asgi, redis, rps=rps)
    keys = with_forty(rig)
    rig.stage.sandbox.choose(["limit-5"])
    await rig.run(seconds)
    assert len(await told(rig) & {*keys, KEY}) >= 40
    assert (await rig.counted()).count(figure.REQUESTS_TURNED_AWAY) <= most_429


async def test_keys_that_fail_do_not_keep_the_others_waiting(rig: Rig) -> None:
    """Three failures in a row end the asking, and the next time the others come first."""
    first, *others = [KEY, OTHER, *with_forty(rig)]
    for key in (first, *others[1:3]):
        rig.stage.sandbox.faults.add(Fault(target="institution", institution_key=key, action=Action.ANSWER, status=503))
    await rig.run(5)
    assert await told(rig) == {others[0], *others[3:]}


class Slow(httpx.AsyncBaseTransport):
    """Lets a second pass before each answer about one institution."""

    def __init__(self, stage: Asgi) -> None:
        self._stage = stage

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass the request on."""
        if "/institutions/" in request.url.path:
            self._stage.advance(1)
        return await self._stage.transport.handle_async_request(request)


async def test_worker_that_starts_does_not_wait_for_all_institutions(sandbox_asgi: Asgi, redis: Redis) -> None:
    """What it has learned after two seconds is used. The others follow."""
    rig = Rig(sandbox_asgi, redis, transport=Slow(sandbox_asgi))
    keys = {*with_forty(rig), KEY}
    await rig.institutions.refresh()
    assert 3 <= len(rig.institutions.keys & await told(rig)) < 20
    assert rig.institutions.keys == keys
    for _ in range(12):
        await rig.run(5)
    assert await told(rig) == keys


async def test_last_answer_counts_however_long_the_service_says_nothing_more(rig: Rig) -> None:
    """Calls need neither the list nor the keys: they are assigned also after three hours without either."""
    await rig.run(5)
    for target in ("institutions", "institution"):
        rig.stage.sandbox.faults.add(Fault(target=target, action=Action.ANSWER, status=500))
    for _ in range(3):
        rig.stage.advance(3600)
        await rig.run(30)
    assert await assigned(rig, 10) == [KEY, OTHER]
    assert await rig.redis.ttl(rig.store.keys.standings) == -1


async def test_keys_that_fail_do_not_keep_an_institution_from_being_active_again(rig: Rig) -> None:
    """What is known of it is asked for anew, although three others have never been answered about."""
    rig.stage.sandbox.faults.add(Fault(target="institutions", action=Action.ANSWER, status=500))
    for number in range(3):
        rig.stage.world.add_institution(key := f"cu-1{number:02}")
        rig.stage.sandbox.faults.add(Fault(target="institution", institution_key=key, action=Action.ANSWER, status=503))
    rig.stage.world.add_institution(OTHER, status=InstitutionStatus.DISABLED)
    await rig.run(20)
    assert await told(rig) == {KEY, OTHER}
    rig.stage.world.add_institution(OTHER)
    await rig.run(70)
    assert (await rig.listings.standings())[OTHER].status == "Active"


async def test_key_that_is_answered_again_is_found_although_others_go_on_failing(rig: Rig) -> None:
    """Keys that have failed take turns: the first three of them do not keep a fourth from being asked for."""
    rig.stage.sandbox.faults.add(Fault(target="institutions", action=Action.ANSWER, status=500))
    keys = [f"cu-1{number:02}" for number in range(4)]
    for key in keys:
        rig.stage.world.add_institution(key)
    *_, last = (
        rig.stage.sandbox.faults.add(Fault(target="institution", institution_key=key, action=Action.ANSWER, status=503))
        for key in keys
    )
    await rig.run(20)
    rig.stage.sandbox.faults.clear(last.id)
    await rig.run(10)
    assert await told(rig) == {KEY, OTHER, keys[-1]}


@pytest.mark.parametrize("targets", [("institutions", "institution"), ("token",)], ids=lambda names: names[0])
async def test_calls_go_on_if_the_service_wants_no_logins_or_questions_about_institutions(
    rig: Rig, targets: tuple[str, ...]
) -> None:
    """Calls are asked about as before."""
    await rig.run(5)
    busy = [
        rig.stage.sandbox.faults.add(
            Fault(target=target, action=Action.ANSWER, status=429, headers={"Retry-After": "300"})
        )
        for target in targets
    ]
    for _ in range(3):
        rig.stage.advance(1500)  # the token lives
        await rig.run(5)
    assert await assigned(rig, 10) == [KEY, OTHER]
    await rig.run(100)
    assert await assigned(rig, 10) == [KEY, OTHER]
    assert busy[0].met


async def test_worker_that_starts_while_logins_fail_goes_on_with_the_token_that_there_is(
    rig: Rig, sandbox_asgi: Asgi, redis: Redis
) -> None:
    """A token lives as long as it is used. The hourly login is tried once a minute."""
    await rig.run(5)
    failing = rig.stage.sandbox.faults.add(Fault(target="token", action=Action.ANSWER, status=500))
    for _ in range(3):
        rig.stage.advance(1500)
        await rig.run(5)
    another, met = Rig(sandbox_asgi, redis), failing.met
    assert await assigned(another, 10) == [KEY, OTHER]
    await another.run(170)
    assert await assigned(another, 10) == [KEY, OTHER]
    assert 0 < failing.met - met <= 4


async def test_nothing_is_asked_about_institutions_before_the_service_wants_it(rig: Rig) -> None:
    """After a 429 that says when to come back, neither the list nor a key is asked for until then."""
    busy = [
        rig.stage.sandbox.faults.add(
            Fault(target=target, action=Action.ANSWER, status=429, headers={"Retry-After": "30"})
        )
        for target in ("institutions", "institution")
    ]
    await rig.institutions.refresh()
    for _ in range(5):
        rig.stage.advance(5)
        await rig.institutions.refresh(max_age_s=0)
    assert [fault.met for fault in busy] == [1, 0]
    rig.stage.sandbox.faults.clear()
    rig.stage.advance(40)
    await rig.institutions.refresh(max_age_s=0)
    assert await told(rig) == {KEY, OTHER}
