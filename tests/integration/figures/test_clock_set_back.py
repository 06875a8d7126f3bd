"""Redis's clock is set back: what is wrong is judged as before, and nothing from before is later than what comes now."""

from datetime import timedelta

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.catalogue import Figure
from callkeeper.calls.metrics.redis_writer import ALIVE_S, FigureWriter
from callkeeper.calls.metrics.signals import SignalReader, Signals, note_unstarted
from callkeeper.calls.metrics.snapshot import FigureReader
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.survey import KNOWN_FIELD
from tests.harness.virtual_time import KEY
from tests.integration.figures.test_figures import Hand, writer

HOUR_MS = 3_600_000
BAD_AND_GOOD = {
    "login": (figure.LOGINS, ("LoginRefused",), ("answered",), IncidentKind.LOGIN_REFUSED),
    "queue": (figure.LISTINGS, (KEY, "failed"), (KEY, "answered"), IncidentKind.INSTITUTION_FAILS),
}


@pytest.fixture
def hand() -> Hand:
    """Return Redis's clock."""
    return Hand()


@pytest.fixture
def worker(hand: Hand) -> FigureWriter:
    """Return the writer of a worker."""
    return writer(hand, "box-1-7-aa")


async def signals(redis: Redis, hand: Hand) -> Signals:
    """Read the signals."""
    return await SignalReader(redis, Keys()).read(now=hand.now)


async def kinds(redis: Redis, hand: Hand) -> list[IncidentKind]:
    """Return what is wrong, except that there is no web process here."""
    found = incidents_of(await signals(redis, hand))
    return [incident.kind for incident in found if incident.kind is not IncidentKind.NO_WEB]


async def age_s(redis: Redis, hand: Hand, what: Figure, *labels: str) -> float:
    """Return how long ago something was counted."""
    at = (await signals(redis, hand)).last.at(what, *labels)
    assert at is not None
    return (hand.now - at).total_seconds()


async def count(redis: Redis, process: FigureWriter, hand: Hand, *counted: tuple[Figure, tuple[str, ...]]) -> None:
    """Let a process count things and write them; then a second passes."""
    for what, labels in counted:
        process.figures.count(what, *labels)
    await process.write_async(redis)
    hand.ms += 1000


@pytest.mark.parametrize("back_ms", [HOUR_MS, 300_000, 61_000], ids=["an hour", "five minutes", "a minute"])
@pytest.mark.parametrize(("what", "bad", "good"), [one[:3] for one in BAD_AND_GOOD.values()], ids=BAD_AND_GOOD)
async def test_trouble_that_is_over_stays_over(
    redis: Redis,
    hand: Hand,
    worker: FigureWriter,
    what: Figure,
    bad: tuple[str, ...],
    good: tuple[str, ...],
    back_ms: int,
) -> None:
    """It failed before the clock was set back and goes well since: nothing is wrong, now or when that time comes again."""
    await count(redis, worker, hand, (what, bad))
    hand.ms += 11_000
    await count(redis, worker, hand, (what, good))
    hand.ms -= back_ms
    for _ in range(2):
        await count(redis, worker, hand)
        assert await kinds(redis, hand) == []
        await count(redis, worker, hand, (what, good))
        assert await kinds(redis, hand) == []
        hand.ms += back_ms - 10_000


@pytest.mark.parametrize(("what", "bad", "good", "kind"), BAD_AND_GOOD.values(), ids=BAD_AND_GOOD)
async def test_trouble_that_lasts_is_still_told_and_ends(
    redis: Redis,
    hand: Hand,
    worker: FigureWriter,
    what: Figure,
    bad: tuple[str, ...],
    good: tuple[str, ...],
    kind: IncidentKind,
) -> None:
    """It went well, then failed; the clock is set back, twice: it is wrong until it goes well, not an hour longer."""
    await count(redis, worker, hand, (what, good))
    hand.ms += 11_000
    await count(redis, worker, hand, (what, bad))
    for _ in range(2):
        hand.ms -= HOUR_MS
        await count(redis, worker, hand)
        assert await kinds(redis, hand) == [kind]
    assert await age_s(redis, hand, what, *bad) == 3
    await count(redis, worker, hand, (what, good))
    assert await kinds(redis, hand) == []


@pytest.mark.parametrize("back_ms", [HOUR_MS, 2100], ids=["an hour", "two seconds"])
async def test_first_refusal_after_the_jump_is_later_than_the_last_login_before(
    redis: Redis, hand: Hand, worker: FigureWriter, back_ms: int
) -> None:
    """A login was the last that was counted before the clock was set back, and a refusal is the first since."""
    await count(redis, worker, hand, (figure.LOGINS, ("answered",)))
    hand.ms -= back_ms
    await count(redis, worker, hand, (figure.LOGINS, ("LoginRefused",)))
    assert await kinds(redis, hand) == [IncidentKind.LOGIN_REFUSED]


async def test_later_jump_keeps_the_order_of_all_that_was_counted(
    redis: Redis, hand: Hand, worker: FigureWriter
) -> None:
    """Counted before three jumps, between them and since: in this order, each as long ago as it is."""
    most = 600
    for n in range(4):
        hand.ms -= HOUR_MS
        await count(redis, worker, hand, *((figure.LISTINGS, (f"cu-{n}-{m}", "answered")) for m in range(most)))
    ages: dict[str, set[float]] = {}
    found = await signals(redis, hand)
    for (key, _), _, at in found.last.rows(figure.LISTINGS):
        ages.setdefault(key.rpartition("-")[0], set()).add((found.now - at).total_seconds())
    assert ages == {"cu-0": {4}, "cu-1": {3}, "cu-2": {2}, "cu-3": {1}}
    assert len(found.last.rows(figure.LISTINGS)) == 4 * most


async def test_moment_at_which_redis_lost_its_data_is_moved(redis: Redis, hand: Hand, worker: FigureWriter) -> None:
    """For seconds after it nobody is missed, not for an hour."""
    await redis.hset(Keys().pauses_restored, mapping={"born": "box-1:1", "at": hand.ms, "is_empty": "1"})
    await count(redis, worker, hand)
    hand.ms -= HOUR_MS
    await count(redis, worker, hand)
    replaced = (await signals(redis, hand)).replaced
    assert replaced is not None
    assert hand.now - replaced.at == timedelta(seconds=2)


async def test_repeated_batch_moves_nothing_twice(redis: Redis, hand: Hand, worker: FigureWriter) -> None:
    """The first write after the jump is repeated because its answer was lost, and another process writes as well."""
    other = writer(hand, "box-2-8-bb")
    await count(redis, worker, hand, (figure.LISTINGS, (KEY, "answered")))
    await count(redis, other, hand)
    hand.ms -= HOUR_MS
    script, (keys, args) = redis.register_script(worker._script.source), worker._arguments(worker.figures.batch())
    assert [(await script(keys, args))[0] for _ in range(2)] == [1, 0]
    await count(redis, other, hand)
    assert (await script(keys, args))[0] == 0
    assert await age_s(redis, hand, figure.LISTINGS, KEY, "answered") == 3


async def test_clock_that_goes_back_a_little_moves_nothing(redis: Redis, hand: Hand, worker: FigureWriter) -> None:
    """By less than the second within which the order is unknown, nothing is moved, however often."""
    await count(redis, worker, hand, (figure.LISTINGS, (KEY, "answered")))
    for _ in range(3):
        hand.ms -= 1900
        await count(redis, worker, hand)
    assert await age_s(redis, hand, figure.LISTINGS, KEY, "answered") == -1.7


async def test_hash_of_an_earlier_release_is_kept(redis: Redis, hand: Hand, worker: FigureWriter) -> None:
    """An earlier release does not write when it wrote last: nothing is moved until this release has written."""
    await redis.hset(Keys().counted, "logins|answered", hand.ms - 5000)
    await count(redis, worker, hand)
    hand.ms -= HOUR_MS
    await count(redis, worker, hand)
    assert await age_s(redis, hand, figure.LOGINS, "answered") == 7


async def test_process_that_died_before_is_not_alive(redis: Redis, hand: Hand, worker: FigureWriter) -> None:
    """Its last report would be in the future for an hour: it has vanished, although others were started before."""
    other = writer(hand, "box-2-8-bb")
    await count(redis, worker, hand)
    hand.ms += 2000
    await count(redis, other, hand)
    since = [process.since for process in (await FigureReader(redis).processes()) if process.name == "box-2-8-bb"]
    await count(redis, worker, hand)
    await redis.zadd(Keys().processes, {"box-3-9-cc": hand.ms})  # its own key has expired
    hand.ms -= HOUR_MS
    for _ in range(ALIVE_S + 1):
        await count(redis, other, hand)
    assert [process.name for process in await FigureReader(redis).processes()] == ["box-2-8-bb"]
    assert await redis.exists(Keys().process("box-3-9-cc")) == 0
    found = await signals(redis, hand)
    assert [one.name for one in found.vanished] == ["box-1-7-aa"]
    assert [process.since for process in found.processes] == [since[0] - timedelta(hours=1)]
    assert IncidentKind.PROCESS_GONE in [incident.kind for incident in incidents_of(found)]


async def test_process_that_did_not_start_is_forgotten_as_soon(redis: Redis, redis_url: str, hand: Hand) -> None:
    """It did not start before the clock was set back: people are told for ten minutes, not for an hour."""
    process = writer(hand)
    with BlockingRedis.from_url(redis_url) as client:
        note_unstarted(client, Keys(), "web")
    [field] = await redis.hkeys(Keys().unstarted)
    await redis.hset(Keys().unstarted, field, hand.ms)
    await count(redis, process, hand)
    hand.ms -= HOUR_MS
    await count(redis, process, hand)
    assert IncidentKind.PROCESS_GONE in await kinds(redis, hand)
    hand.ms += 600_000
    await count(redis, process, hand)
    assert IncidentKind.PROCESS_GONE not in await kinds(redis, hand)


@pytest.mark.parametrize("back_ms", [HOUR_MS, 600_000, 61_000, 11_000])
async def test_minutes_are_counted_once(redis: Redis, hand: Hand, worker: FigureWriter, back_ms: int) -> None:
    """The last minutes are the same ones, each as long ago as it was, and are not counted when they come again."""
    for n in range(3):
        for _ in range(n + 1):
            worker.figures.count(figure.WRITES_UNREPLICATED)
        await worker.write_async(redis)
        hand.ms += 60_000
    hand.ms -= back_ms
    await count(redis, worker, hand)
    minutes = [
        minute.figures.count(figure.WRITES_UNREPLICATED) for minute in await FigureReader(redis).minutes(hand.now)
    ]
    assert [n for n in minutes if n] == [1, 2, 3]
    assert minutes.index(3) in {57, 58, 59}
    hand.ms += back_ms + 600_000
    await count(redis, worker, hand)
    recent = await FigureReader(redis).minutes(hand.now, 10)
    assert sum(minute.figures.count(figure.WRITES_UNREPLICATED) for minute in recent) == 0


async def test_contradiction_that_is_new_is_told(redis: Redis, hand: Hand, worker: FigureWriter) -> None:
    """People know of one from before the clock was set back: it is told no more. One that is seen since is told."""

    async def told() -> list[str]:
        found = incidents_of(await signals(redis, hand))
        return [one.advice for one in found if one.kind is IncidentKind.ASSUMPTION_WRONG]

    worker.figures.see("assign-replaces-person", "assign-over-refused", KEY)
    await count(redis, worker, hand)
    assert len(await told()) == 1
    await redis.hset(Keys().survey, mapping={f"{KNOWN_FIELD}{KEY}": hand.ms, "of another|release": "[]"})
    hand.ms -= HOUR_MS
    await count(redis, worker, hand)
    assert await told() == []
    hand.ms += 2000
    worker.figures.see("login-keeps-earlier", "login-ends-earlier", KEY)
    await count(redis, worker, hand)
    [advice] = await told()
    assert advice.count(" (1 time)") == 1
    assert await redis.hget(Keys().survey, "of another|release") == b"[]"
