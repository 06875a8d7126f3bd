"""The gate before the service: shared by all workers, shut while the service is away, opened by the first success."""

from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from calls.gate import FAILURES_THAT_SHUT, service_away
from calls.store import Store
from receiver.health import health_routes
from sandbox.faults import Action, Fault
from sandbox.state import Happening, Kind
from tests.rig import Rig

END = Happening(Kind.END, 400)


@pytest.fixture
def away() -> Fault:
    """Return a service that answers everything with 500."""
    return Fault(target="*", action=Action.ANSWER, status=500)


async def test_gate_shuts_after_five_failures_and_books_nothing_while_shut(rig: Rig, away: Fault) -> None:
    """A dead service trips the gate; from then on no check is booked, and one member at a time is tried (D5)."""
    calls = [rig.stage.call(END) for _ in range(10)]
    await rig.run(5)
    rig.stage.sandbox.faults.add(away)
    await rig.run(20)
    booked = sum([(await rig.record(call)).checks_used for call in calls])
    arrived = rig.stage.sandbox.ledger.entries.number
    await rig.run(20)
    assert sum([(await rig.record(call)).checks_used for call in calls]) <= booked + 2
    assert rig.stage.sandbox.ledger.entries.number - arrived <= 6, "one probe a pause, and pauses grow"
    assert "service_away" in {entry["event"] for entry in rig.log.entries}
    held = [entry for call in calls for entry in await rig.trail(call) if entry.what in {"held_back", "check_failed"}]
    assert held, "the trail shows it"


async def test_gate_opens_with_the_first_success_and_work_goes_on(rig: Rig, away: Fault) -> None:
    """When the service is back, one probe opens the gate for all calls (D5)."""
    call = rig.stage.call(Happening(Kind.GREEN, 30), END)
    await rig.run(5)
    rig.stage.sandbox.faults.add(away)
    await rig.run(30)
    rig.stage.sandbox.faults.clear()
    await rig.run(35)
    assert "service_back" in {entry["event"] for entry in rig.log.entries}
    assert not rig.store.gate.failures
    record = await rig.record(call)
    assert record.reading is not None
    assert record.reading.status == "FullAuthentication"


async def ready(rig: Rig) -> tuple[int, dict[str, object]]:
    """Return what ``/readyz`` says."""
    redis: Any = AlwaysMaster(rig.redis)
    app = httpx.ASGITransport(Starlette(routes=health_routes(redis)))
    async with httpx.AsyncClient(transport=app, base_url="http://web") as client:
        answer = await client.get("/readyz")
    return answer.status_code, answer.json()


class AlwaysMaster:
    """A Redis in this process, which knows no ROLE."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis

    def __getattr__(self, name: str) -> Any:
        return getattr(self._redis, name)

    async def role(self) -> list[bytes]:
        """Say that it takes writes."""
        return [b"master"]


async def test_gate_is_shown_by_readyz_until_the_first_success(rig: Rig, away: Fault) -> None:
    """While the service is away ``/readyz`` says so and stays 200: events are recorded all the same (D5)."""
    rig.stage.call(END)
    await rig.run(5)
    assert await ready(rig) == (200, {"ready": True, "service": "there"})
    rig.stage.sandbox.faults.add(away)
    began_at = rig.clock.now
    await rig.run(20)
    assert await ready(rig) == (200, {"ready": True, "service": "away"})
    seen = await service_away(rig.redis)
    assert seen is not None
    assert began_at <= seen.since < seen.tried_again_at
    assert seen.failures >= FAILURES_THAT_SHUT
    assert f"away since {seen.since:%H:%M:%S} UTC" in seen.words
    rig.stage.sandbox.faults.clear()
    await rig.run(35)
    assert await ready(rig) == (200, {"ready": True, "service": "there"})
    assert await service_away(rig.redis) is None


@pytest.mark.parametrize("status", [429, 503])
async def test_gate_obeys_retry_after_in_all_workers(rig: Rig, status: int) -> None:
    """A 429 or 503 that names a time keeps every worker away for that long (D5)."""
    for _ in range(5):
        rig.stage.call(END)
    await rig.run(6)
    busy = Fault(target="*", action=Action.ANSWER, status=status, headers={"Retry-After": "20"}, times=1)
    rig.stage.sandbox.faults.add(busy)
    await rig.run(9)
    arrived = rig.stage.sandbox.ledger.entries.number
    other = Store(rig.redis, now_ms=rig.now_ms)
    assert await other.claim(10) == []
    assert other.gate.shut_until is not None
    await rig.run(10)
    assert rig.stage.sandbox.ledger.entries.number == arrived
    await rig.run(15)
    assert rig.stage.sandbox.ledger.entries.number > arrived + 5


async def test_gate_stays_open_for_failures_between_successes(rig: Rig) -> None:
    """Failures of single calls are not the service's: every success begins the count anew."""
    broken = rig.stage.call(END)
    for _ in range(5):
        rig.stage.call(END)
    rig.stage.sandbox.faults.add(Fault(target="*", action=Action.ANSWER, status=500, voice_id=broken.voice_id))
    await rig.run(60)
    assert "service_away" not in {entry["event"] for entry in rig.log.entries}


async def test_gate_report_repeated_by_the_client_counts_once(rig: Rig) -> None:
    """A report whose answer was lost and that Redis runs twice leaves the same state as once (C14)."""
    scripts, keys = rig.store._scripts, [rig.store.keys.service, rig.store.keys.claimer("c-1")]
    for _ in range(4):
        await scripts.call("service", keys, [rig.now_ms(), 7, "failed", "", 0.5, 5, 60])
    assert int(await rig.redis.hget(keys[0], "failures")) == 1
