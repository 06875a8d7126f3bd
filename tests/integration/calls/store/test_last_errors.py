"""The last error of each kind of request is stored in our own words, again after a minute, and without personal data."""

from typing import Any

import pytest
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import instant
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_errors import AGAIN_S, LASTS, ErrorArea, ErrorNotes, LastError, parse_errors
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.integration.calls.hand import Hand

END = Happening(Kind.END, 400)


@pytest.fixture
def notes(redis: Redis, hand: Hand) -> ErrorNotes:
    """Return a process's notes, by the test's clock."""
    return ErrorNotes(redis, Keys(), now=hand, monotonic=lambda: hand.ms / 1000)


async def stored(redis: Redis, hand: Hand) -> dict[tuple[str, str], LastError]:
    """Return the errors that people see now."""
    client: Any = redis
    return parse_errors([await client.hgetall(Keys().errors)], instant(hand()))


async def test_same_words_are_stored_again_after_a_minute(notes: ErrorNotes, redis: Redis, hand: Hand) -> None:
    """A process remembers what it stored. An emptied Redis gets it again all the same."""
    await notes.note(ErrorArea.CALLS, KEY, "status 503")
    await redis.flushall()
    await notes.note(ErrorArea.CALLS, KEY, "status 503")
    assert await stored(redis, hand) == {}
    hand.ms += int(AGAIN_S * 1000) + 1
    await notes.note(ErrorArea.CALLS, KEY, "status 503")
    assert set(await stored(redis, hand)) == {("calls", KEY)}


async def test_trouble_keeps_its_first_time_until_it_is_over(notes: ErrorNotes, redis: Redis, hand: Hand) -> None:
    """Other words belong to the same trouble; after twenty minutes without an error a new one begins."""
    began_at = instant(hand())
    await notes.note(ErrorArea.CALLS, KEY, "status 503")
    hand.ms += 30_000
    await notes.note(ErrorArea.CALLS, KEY, "no whole answer: timed out")
    error = (await stored(redis, hand))["calls", KEY]
    assert (error.words, error.first_at, error.at) == ("no whole answer: timed out", began_at, instant(hand()))
    hand.ms += int(LASTS.total_seconds() * 1000) + 1
    assert await stored(redis, hand) == {}
    await notes.note(ErrorArea.CALLS, KEY, "status 500")
    assert (await stored(redis, hand))["calls", KEY].first_at == instant(hand())


async def test_error_from_long_before_the_clock_was_set_back_explains_nothing(
    notes: ErrorNotes, redis: Redis, hand: Hand
) -> None:
    """It would be later than every error that comes now, for as long as the clock was set back."""
    await notes.note(ErrorArea.CALLS, KEY, "status 503")
    hand.ms -= 3_600_000
    await notes.note(ErrorArea.QUEUE, KEY, "status 500")
    assert set(await stored(redis, hand)) == {("queue", KEY)}


async def test_text_is_bounded(notes: ErrorNotes, redis: Redis, hand: Hand) -> None:
    """A long text is cut, and is one line."""
    await notes.note(ErrorArea.ARCHIVE, "", "line\n" * 500)
    words = (await stored(redis, hand))["archive", ""].words
    assert (len(words) <= 240, "\n" in words) == (True, False)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            Fault(
                target="*", action=Action.ANSWER, status=503, body='{"success": false, "error": "Upstream down: Ann"}'
            ),
            "status 503: Upstream down: …",
        ),
        (Fault(target="*", action=Action.ANSWER, status=500, body="<html>Ann Smith</html>"), "status 500"),
    ],
    ids=["words", "a page"],
)
async def test_outage_shows_what_the_service_says(rig: Rig, fault: Fault, said: str) -> None:
    """The incident has status and known words of the answer; a name in it is not stored."""
    await rig.begin_call(END, run_s=5, is_pushed=False)
    rig.stage.sandbox.faults.add(fault)
    await rig.run(30)
    signals = await SignalReader(rig.redis, Keys()).read(now=rig.clock.now)
    found = {incident.kind.value: incident.last_error for incident in incidents_of(signals)}
    assert found["service_away"] == said
    assert b"Ann" not in b"".join((await rig.redis.hgetall(Keys().errors)).values())


async def test_checks_that_bring_no_results_show_why(rig: Rig) -> None:
    """The provider's error is on the incident, although every answer of the service is a success."""
    for _ in range(4):
        rig.stage.call(Happening(Kind.ERROR, 1, text="Provider timeout"), END)
    await rig.run(90)
    signals = await SignalReader(rig.redis, Keys()).read(now=rig.clock.now)
    found = {incident.title: incident.last_error for incident in incidents_of(signals)}
    assert found["Checks bring no results"] == "voice authentication error: Provider timeout"
