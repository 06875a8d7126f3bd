"""Searches that continue in the archive, by every criterion, and only for people who may see the calls."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta, timezone
from pathlib import Path

import pytest
from redis.asyncio import Redis

from callkeeper.archive.database import Database
from callkeeper.archive.keeping import Keeper
from callkeeper.archive.lines import end_of
from callkeeper.archive.reading import ArchiveReader
from callkeeper.archive.searching import SHIPPED, Sizes
from callkeeper.archive.writing import Writer
from callkeeper.calls.call_query import SETTLED, CallQuery, parse_query
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Lookup
from callkeeper.calls.trail import recorded
from callkeeper.desk.access.desk_tokens import DeskToken
from callkeeper.desk.access.rights import Role
from callkeeper.desk.archived_calls import ArchivedCalls, known_or_archived
from callkeeper.desk.call_list import OF_STATE, WHOLE, CallList
from callkeeper.service.secret import Secret
from tests.harness.archivist import INSTITUTION, START, content, settled, sqlite_archive

BOOK = load_rules(None)
ANYBODY = DeskToken(name="any", secret=Secret("a-token-that-only-tests-know"))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Return an archive that tests only read."""
    with filled(tmp_path_factory.mktemp("archive")) as database:
        yield database


def filled(folder: Path) -> Database:
    """Return an archive with thirty calls of one institution and one of another."""
    database = sqlite_archive(folder)
    writer = Writer(database)
    writer.write(INSTITUTION, [content(n) for n in range(1, 31)])
    writer.write(INSTITUTION, [content(7, lines=4)])
    writer.write("cu-2", [content(99, institution_key="cu-2", started_at=START + timedelta(days=400))])
    return database


@pytest.fixture
def archive(database: Database) -> ArchivedCalls:
    """Return what the desk has of it."""
    return ArchivedCalls(ArchiveReader(database))


async def found(redis: Redis, archive: ArchivedCalls | None, typed: str, **changes: object) -> list[str]:
    """Return the voice ids of what somebody finds who types this."""
    query = replace(parse_query(typed, country="US", zone=UTC), **changes)  # type: ignore[arg-type]
    calls = await CallList(Lookup(redis), archive, BOOK).find(ANYBODY, query)
    return [call.voice_id for call in calls.calls]


SEARCHES = {
    "0007": ["v-7"],
    "+1 (202) 555-0007": ["v-7"],
    "2025550007": ["v-7"],
    "vale7": ["v-7"],
    "marion vale7": ["v-7"],
    "marion 0007": ["v-7"],
    "person:p-7": ["v-7"],
    "0007 P-7": ["v-7"],
    "alt-7": ["v-7"],
    "operator:agent-7 0007": ["v-7"],
    'rule:"distrusted" 0007': ["v-7"],
    "digest:d1gest outcome:enrolled 0007": ["v-7"],
    "outcome:rejected": [],
    "operator:nobody": [],
    "0099 cu-2": ["v-99"],
    "2027-12-26 12:00": ["v-99"],
    "ned 0099": ["v-99"],
    "12:05 0007": ["v-7"],
    "11:55 0007": [],
}
SIZES = {"as shipped": SHIPPED, "every criterion has many lines": Sizes(few=0, page=2, longest=3)}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("typed", SEARCHES)
async def test_call_is_found_by_what_is_known_of_it(redis: Redis, database: Database, typed: str, sizes: Sizes) -> None:
    """A call is found by digits, numbers, names, ids, terms, times and combinations: once, in its last version."""
    assert await found(redis, ArchivedCalls(ArchiveReader(database, sizes)), typed) == SEARCHES[typed]


@pytest.mark.parametrize(("stored", "typed"), [("089 123456", "+49 89 123456"), ("+49 89 123456", "089/123456")])
def test_short_number_is_found_in_the_other_notation(tmp_path: Path, stored: str, typed: str) -> None:
    """With or without its country code, as in Redis: also if the number has fewer than ten digits."""
    with sqlite_archive(tmp_path) as database:
        Writer(database).write(INSTITUTION, [content(1, phone_number=stored), content(2, phone_number="089 654321")])
        query = parse_query(typed, country="DE", zone=UTC)
        calls = ArchiveReader(database).find(query, matches=query.matches, most=5).calls
    assert [call.voice_id for call in calls] == ["v-1"]


@pytest.mark.parametrize(("hours", "typed"), [(-9, "03:00"), (13, "01:00"), (12, "23:58"), (12, "00:04")])
def test_time_of_day_is_that_of_the_zone(database: Database, hours: int, typed: str) -> None:
    """Calls at 12:00 UTC are found by the local time, also around midnight."""
    query = parse_query(typed, country="US", zone=timezone(timedelta(hours=hours)))
    calls = ArchiveReader(database).find(query, matches=query.matches, most=100).calls
    assert len(calls) == 31
    late = replace(query, at=(datetime.combine(START, query.at or time()) + timedelta(minutes=11)).time())
    assert ArchiveReader(database).find(late, matches=lambda _: True, most=100).calls == ()


def test_rarest_criterion_leads(database: Database) -> None:
    """Of two criteria with many lines the one with fewer leads, in whatever order they are typed."""
    sizes = Sizes(few=0, page=1, longest=1, many=2)
    for typed in ("outcome:enrolled person:p-7", "person:p-7 outcome:enrolled"):
        query = parse_query(typed, country="US", zone=UTC)
        found = ArchiveReader(database, sizes).find(query, matches=lambda _: True, most=5)
        assert [call.voice_id for call in found.calls] == ["v-7"]


def test_long_search_ends_and_goes_on_from_there(database: Database) -> None:
    """After many tested lines or parsed calls the answer is partial, and its position continues the search."""
    for sizes in (Sizes(many=4, page=2), Sizes(read=4, page=3)):
        reader, seen, after = ArchiveReader(database, sizes), list[str](), ""
        while True:
            page = reader.find(CallQuery(), matches=lambda call: int(call.voice_id[2:]) % 5 == 0, most=3, after=after)
            seen += [call.voice_id for call in page.calls]
            if page.next is None:
                break
            after = page.next
            assert page.is_partial
        assert seen == [f"v-{n}" for n in range(30, 0, -5)]


async def test_newest_come_first_and_an_institution_can_be_named(redis: Redis, archive: ArchivedCalls) -> None:
    """An empty query returns the newest calls."""
    assert (await found(redis, archive, "ned"))[:3] == ["v-99", "v-30", "v-29"]
    assert (await found(redis, archive, "", institution_key=INSTITUTION))[:2] == ["v-30", "v-29"]
    assert await found(redis, archive, "", since=START + timedelta(days=1)) == ["v-99"]


async def test_call_that_redis_has_is_shown_as_redis_has_it(redis: Redis, archive: ArchivedCalls) -> None:
    """A call in Redis and in the archive is returned once, from Redis."""
    call, _ = settled(7, person_id="p-7")
    member, keys = CallId(INSTITUTION, "v-7").member, Keys()
    await redis.hset(keys.item(member), mapping={"rec": encode_call(call), "settled": "1"})
    await redis.zadd(keys.settled, {member: 1})
    assert await found(redis, archive, "0007") == ["v-7"]
    assert await found(redis, None, "0007") == ["v-7"]


async def test_story_of_an_archived_call_is_whole(redis: Redis, archive: ArchivedCalls) -> None:
    """By either id, in its last version; another institution's does not exist."""
    known = await known_or_archived(Lookup(redis), archive, CallId(INSTITUTION, "alt-7"))
    assert known is not None
    assert recorded(known.call, known.trail) == recorded(*settled(7, lines=4))
    assert known.call.names.phone_number == "+12025550007"
    assert await known_or_archived(Lookup(redis), archive, CallId("cu-2", "v-7")) is None


async def test_desk_pages_go_on_in_the_archive(redis: Redis, archive: ArchivedCalls) -> None:
    """Every settled call comes once, whatever is in Redis too; a token sees its institutions only."""
    keys = Keys()
    for n in (29, 30):
        member = CallId(INSTITUTION, f"v-{n}").member
        await redis.hset(keys.item(member), mapping={"rec": encode_call(settled(n)[0]), "settled": "1"})
        await redis.zadd(keys.settled, {member: n})

    async def pages(token: DeskToken, typed: str = "") -> list[str]:
        listing, seen, after = CallList(Lookup(redis), archive, BOOK), [], None
        for _ in range(20):
            page = await listing.page(token, asked(typed), OF_STATE[SETTLED], after, 7)
            seen += [call.voice_id for call in page.calls]
            after = page.next
            if after is None:
                return seen
        raise AssertionError("no end")

    assert await pages(ANYBODY) == ["v-30", "v-29", "v-99", *(f"v-{n}" for n in range(28, 0, -1))]
    limited = DeskToken(name="one", secret=Secret("a-token-that-only-tests-know"), institutions=frozenset({"cu-2"}))
    assert await pages(limited) == ["v-99"]
    assert await pages(ANYBODY, "2025550004") == ["v-4"]
    assert await pages(ANYBODY, "rule:distrusted vale4") == ["v-4"]


def asked(typed: str) -> CallQuery:
    """Return what somebody looks for."""
    return parse_query(typed, country="US", zone=UTC)


async def test_viewer_finds_nothing_by_what_a_viewer_does_not_see(redis: Redis, archive: ArchivedCalls) -> None:
    """A viewer cannot search by numbers and names, only by ids and outcomes."""
    viewer = DeskToken(name="v", secret=Secret("a-token-that-only-tests-know"), role=Role.VIEWER)
    listing = CallList(Lookup(redis), archive, BOOK)
    assert len((await listing.page(ANYBODY, asked("operator:agent-7"), WHOLE, None, 5)).calls) > 0
    for typed, count in (
        ("outcome:enrolled 0007", 0),
        ("outcome:enrolled vale7", 0),
        ("operator:agent-7", 0),
        ("person:p-7", 1),
    ):
        page = await listing.page(viewer, asked(typed), WHOLE, None, 5)
        assert len(page.calls) == count, typed
    for typed in ("0007", "operator:agent-7"):
        assert (await listing.find(viewer, asked(typed))).calls == ()


async def test_erased_person_is_found_no_more(redis: Redis, tmp_path: Path) -> None:
    """After an erasure, no erased value finds the call; its id still does."""
    with filled(tmp_path) as database:
        archive = ArchivedCalls(ArchiveReader(database))
        Keeper(database, "dpo").erase(INSTITUTION, person_id="p-7", reason="asked for it")
        assert await found(redis, archive, "0007") == []
        assert await found(redis, archive, "vale7") == []
        assert await found(redis, archive, "person:p-7") == ["v-7"]


def test_stream_has_every_call_once(database: Database) -> None:
    """Replay and report read each call once in its last version, oldest first, with the number of lines read."""
    reader, read = ArchiveReader(database), list[int]()
    calls = list(reader.stream(progress=read.append))
    assert [call.voice_id for call in calls] == [*(f"v-{n}" for n in range(1, 31)), "v-99"]
    assert calls[6] == recorded(*settled(7, lines=4))
    assert sum(read) == reader.count() == 32
    assert [call.voice_id for call in reader.stream(institution_key="cu-2")] == ["v-99"]
    assert reader.count(institution_key="cu-2") == 1


ODD = [
    "abc\U0010ffff",
    "abc\ud7ff",
    "abc\x00",
    "\U0010ffff" * 4,
    "9999-12-31 23:59",
    "0001-01-01 00:00",
    "1970-01-01 00:00",
]


@pytest.mark.parametrize("typed", ODD, ids=ascii)
@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))], ids=str)
async def test_odd_text_finds_nothing_and_breaks_nothing(
    redis: Redis, archive: ArchivedCalls, typed: str, zone: timezone
) -> None:
    """The last code points, those before surrogates, NUL, and dates at the ends of the calendar."""
    query = parse_query(typed, country="US", zone=zone)
    assert (await CallList(Lookup(redis), archive, BOOK).find(ANYBODY, query)).calls == ()


@pytest.mark.parametrize("beginning", ["abc", "ab\ud7ff", "ab\U0010ffff", "\U0010ffff"], ids=ascii)
def test_range_holds_what_begins_so(beginning: str) -> None:
    """What has the prefix lies between it and its end, byte by byte."""
    for inside in (beginning, beginning + "a", beginning + "\uffff"):
        assert beginning.encode() <= inside.encode() < end_of(beginning).encode()
    assert end_of("abc") == "abd"
