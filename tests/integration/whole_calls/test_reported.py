"""Reports beside trails: unclassified policies, pauses in logs and doctor, institutions in rules."""

import asyncio
from dataclasses import replace

import pytest
import structlog
from redis.asyncio import Redis

from callkeeper.app.web_app import warn_of_unknown_institutions
from callkeeper.calls.schedule.plan import Schedule
from callkeeper.calls.store.last_listing import Listings, Standing
from callkeeper.calls.store.queries import Queries
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import DEMO, Rig
from tests.sandbox_fixtures import PHONE, START, Asgi
from tests.workers_built import institution_settings
from workers.managed_institutions import Institutions


async def test_a_policy_without_a_colour_is_logged_once_a_call_and_holds(sandbox_asgi: Asgi, redis: Redis) -> None:
    """An unclassified policy is logged, and prevents an enroll while it is applied."""
    rig = Rig(sandbox_asgi, redis, DEMO)
    call = await rig.begin_call(
        Happening(Kind.POLICY, 3, "Yellow Review"),
        Happening(Kind.MFA_VALIDATED, 6, "operator-2"),
        Happening(Kind.END, 40),
        run_s=60,
    )
    logged = [entry for entry in rig.log.entries if entry["event"] == "policy_unclassified"]
    assert [(entry["voice_id"], entry["policy"]) for entry in logged] == [(call.voice_id, "Yellow Review")]
    assert Operation.ENROLL not in rig.ledger(call)
    assert any("unclassified_policy" in entry.forbidden for entry in await rig.trail(call))


@pytest.mark.parametrize("share", [0, 3])
async def test_an_unassigned_call_spends_its_share_of_checks(sandbox_asgi: Asgi, redis: Redis, share: int) -> None:
    """``[checks] unassigned`` is how many checks a call may spend while nobody is assigned; none unless it says so."""
    sandbox_asgi.world.add_member("cu-1", "p-2", [PHONE], first_name="Joint", last_name="Example")
    rig = Rig(sandbox_asgi, redis, replace(DEMO, checks_unassigned=share))
    call = await rig.begin_call(Happening(Kind.END, 60), run_s=50)
    assert rig.ledger(call).get(Operation.CHECK, 0) == share
    said = [entry.because for entry in await rig.trail(call) if entry.asked == "assign"]
    assert said == ["2 candidates, exactly one is needed"]


async def test_candidate_who_stands_alone_for_one_listing_is_not_assigned(rig: Rig) -> None:
    """The queue matches two members, for some seconds only one of them, and then both again."""
    rig.stage.world.add_member("cu-1", "p-2", [PHONE], first_name="Joint", last_name="Example")
    call = await rig.begin_call(Happening(Kind.END, 90), run_s=20)
    [entry] = await rig.stage.queue()
    call.persons = entry["persons"][:1]
    await rig.run(20)
    call.persons = None
    await rig.run(20)
    assert "assign" not in rig.ledger(call)


async def test_a_call_assigned_late_is_watched_from_then_on(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Checks spent before the assignment are counted; the schedule begins anew with it."""
    sandbox_asgi.world.add_member("cu-1", "p-2", [PHONE], first_name="Joint", last_name="Example")
    book = replace(DEMO, checks_unassigned=2, schedule=Schedule((4.0, 8.0, 16.0), 2))
    rig = Rig(sandbox_asgi, redis, book)
    call = await rig.begin_call(Happening(Kind.CLAIMED, 20, "operator-1", "p-1"), Happening(Kind.END, 90), run_s=50)
    record = await rig.record(call)
    assert record.plan.watch_from is not None
    assert 18 <= (record.plan.watch_from - START).total_seconds() <= 27
    assert 4 <= record.plan.checks_used == rig.ledger(call)[Operation.CHECK]


async def test_settings_that_name_an_unknown_institution_are_logged_once(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Which institutions exist is known only after the login: then a worker names every setting that is wrong, once."""
    rig = Rig(sandbox_asgi, redis, DEMO)
    institutions = Institutions(
        rig.service,
        Listings(rig.redis),
        rig.store,
        rig.tools.gate,
        institution_settings(
            only=frozenset({"cu-1", "zebra"}),
            named={
                "CALLKEEPER_RULES": frozenset({"cu-1", "CU-1"}),
                "CALLKEEPER_INSTITUTIONS": frozenset({"cu-1", "zebra"}),
            },
        ),
        monotonic=rig.clock.monotonic,
        log=rig.tools.log,
        counting=rig.tools.counting,
    )
    for _ in range(3):
        await institutions.refresh()
        rig.clock.advance(120)
    logged = [entry for entry in rig.log.entries if entry["event"] == "institution_unknown"]
    assert [(entry["setting"], entry["institution"], entry["nearest"]) for entry in logged] == [
        ("CALLKEEPER_INSTITUTIONS", "zebra", None),
        ("CALLKEEPER_RULES", "CU-1", "cu-1"),
    ]
    assert {entry["log_level"] for entry in logged} == {"warning"}


async def test_web_warns_of_a_desk_token_for_an_unknown_institution(redis: Redis) -> None:
    """The web process looks until the list is stored, also while Redis is away, and then names what is wrong once."""
    logged = structlog.testing.LogCapture()
    log = structlog.wrap_logger(None, processors=[logged])
    named = {"CALLKEEPER_OIDC_ROLES": frozenset({"cu-1", "Cu-2"})}
    looking = asyncio.create_task(warn_of_unknown_institutions(named, Queries(redis), log, every_s=0.01))
    await asyncio.sleep(0.1)
    assert (looking.done(), logged.entries) == (False, [])
    await Listings(redis).save_standings([Standing(key="cu-1"), Standing(key="cu-2")])
    await asyncio.wait_for(looking, 10)
    assert [(entry["event"], entry["institution"], entry["nearest"]) for entry in logged.entries] == [
        ("institution_unknown", "Cu-2", "cu-2")
    ]
