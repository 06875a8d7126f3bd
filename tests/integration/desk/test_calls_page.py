"""The list of calls on the board and in the desk API: filters, pages, roles, CSV, the audit log."""

import csv
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.call_query import CallQuery
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call, Candidate, Phase, Reason
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import SCAN_LIMIT, Lookup
from callkeeper.calls.trail import Entry, encode_entry
from callkeeper.desk.access.rights import Rights, Role
from callkeeper.desk.board.calls_page import EXPORTED, SHOWN
from callkeeper.desk.call_list import WHOLE, CallList
from tests.harness.desk import BoardRig
from tests.harness.virtual_time import SHIPPED
from tests.signed_in import ANN
from tests.unit.calls.specimens import call, reading

ADMIN = Rights(role=Role.ADMIN)


async def keep(redis: Redis, record: Call, at: int, *trail: Entry) -> None:
    """Store a call among the live or the settled ones, with the instant by which those are ordered."""
    keys, member = Keys(), CallId(record.institution_key, record.voice_id).member
    await redis.hset(keys.item(member), "rec", encode_call(record))
    await redis.zadd(keys.settled if record.is_settled else keys.live, {member: at})
    if trail:
        await redis.rpush(keys.trail(member), *map(encode_entry, trail))


async def keep_many(redis: Redis, calls: int) -> None:
    """Store many settled calls."""
    pipe = redis.pipeline(transaction=False)
    for n in range(calls):
        member = CallId("cu-1", f"v-{n}").member
        pipe.hset(Keys().item(member), "rec", encode_call(over(f"v-{n}", Reason.UNDECIDED)))
        pipe.zadd(Keys().settled, {member: n})
    await pipe.execute()


def over(voice_id: str, reason: Reason, **changes: Any) -> Call:
    """Return a settled call."""
    return call(voice_id=voice_id, phase=Phase.SETTLED, reason=reason, **changes)


async def fill(rig: BoardRig) -> None:
    """Store two live and three settled calls of two institutions."""
    now, ada = rig.clock.now, (Candidate(person_id="p-1", name="Ada Example"),)
    began = {"started_at": now - timedelta(minutes=20), "saved_at": now}
    red = reading(policies=("Red Risky Caller",))
    decided = Entry(at=now, what="decided", rule="verified", kind="enroll")
    said = Entry(at=now, what="said", operator="agent-7")
    await keep(rig.redis, call(voice_id="v-watched", candidates=ada, phone_number="5550104711", **began), 1)
    await keep(rig.redis, call(institution_key="cu-2", voice_id="v-red", reading=red, red_seen=True, **began), 2)
    at = rig.now_ms()
    await keep(rig.redis, over("v-old", Reason.UNDECIDED, started_at=now - timedelta(days=2)), at - 86_400_000)
    enroll = Effect(state=EffectState.CONFIRMED, person_id="p-1", rule="verified", sent_at=now)
    await keep(rig.redis, over("v-enrolled", Reason.ENROLLED, enroll=enroll, **began), at - 2, decided, said)
    await keep(rig.redis, over("v-lost", Reason.LOST, institution_key="cu-2", **began), at - 1)


ALL = ["v-red", "v-watched", "v-lost", "v-enrolled", "v-old"]
FILTERED = [
    ({}, ALL),
    ({"state": "open"}, ["v-red", "v-watched"]),
    ({"state": "settled"}, ["v-lost", "v-enrolled", "v-old"]),
    ({"state": "red"}, ["v-red"]),
    ({"state": "Red policy"}, ["v-red"]),
    ({"outcome": "enrolled"}, ["v-enrolled"]),
    ({"rule": "verified"}, ["v-enrolled"]),
    ({"operator": "agent-7"}, ["v-enrolled"]),
    ({"policy": "red risky caller"}, ["v-red"]),
    ({"since": "1h"}, ["v-red", "v-watched", "v-lost", "v-enrolled"]),
    ({"until": "1h"}, ["v-old"]),
    ({"institution": "cu-2", "since": "1h"}, ["v-red", "v-lost"]),
    ({"rule": "nobody"}, []),
]


def shown(page: str) -> list[str]:
    """Return the voice ids of the calls on a page of the list, in their order."""
    lines = page.partition("<tbody>")[2].partition("</tbody>")[0]
    return [part.partition('"')[0].rpartition("/")[2] for part in lines.split('class="to" href="')[1:]]


@pytest.mark.parametrize(("filters", "expected"), FILTERED, ids=str)
async def test_page_api_and_file_show_the_same(rig: BoardRig, filters: dict[str, str], expected: list[str]) -> None:
    """Live calls come first, then the calls settled last, by whichever way one asks."""
    await fill(rig)
    page = await rig.browser.get("/board/calls", params=filters)
    listed = await rig.http.get("/calls", params={"phase": "all", **filters})
    file = await rig.browser.get("/board/calls.csv", params=filters)
    assert (page.status_code, shown(page.text)) == (200, expected)
    assert [each["voice_id"] for each in listed.json()["calls"]] == expected
    assert [row["voice_id"] for row in csv.DictReader(StringIO(file.text))] == expected


async def test_state_of_an_address_may_be_the_word_that_the_page_shows(rig: BoardRig) -> None:
    """The form then shows that state as chosen."""
    await fill(rig)
    for word in ("red", "Red policy", "red-policy"):
        page = (await rig.browser.get("/board/calls", params={"state": word})).text
        assert (shown(page), '<option value="red" selected>' in page) == (["v-red"], True)


async def test_needs_person_is_a_state(rig: BoardRig) -> None:
    """A call that workers have marked for a person is found by that, whatever its own state."""
    await fill(rig)
    await rig.redis.hset(Keys().attention, CallId("cu-1", "v-old").member, "reject unresolved")
    assert shown((await rig.browser.get("/board/calls?state=needs-person")).text) == ["v-old"]


async def test_line_says_what_a_shift_leader_asks(rig: BoardRig) -> None:
    """State, last digits, name, institution, checks, policy and the rule that decided; no whole number."""
    await fill(rig)
    page = (await rig.browser.get("/board/calls")).text
    for words in ("Red policy", "4711", "Ada Example", "cu-2", "Red Risky Caller", ">verified<"):
        assert words in page, words
    assert "5550104711" not in page


async def test_list_shows_how_long_a_live_call_had_lasted_when_it_was_read(rig: BoardRig) -> None:
    """A clock that goes on beside a state that does not change would say that the line is up to date."""
    await fill(rig)
    page = (await rig.browser.get("/board/calls?state=open")).text
    assert page.count('<span class="live">live</span> 20:00') == 2
    assert "data-since" not in page


async def test_viewer_sees_neither_numbers_nor_names_nor_who_acted(rig: BoardRig) -> None:
    """Their list has no callers, they cannot filter by an operator, and the page offers no file."""
    await fill(rig)
    rig.visitor.person = replace(ANN, role=Role.VIEWER)
    page = (await rig.browser.get("/board/calls")).text
    assert shown(page) == ALL
    for hidden in ("4711", "Ada Example", "calls.csv", 'name="operator"'):
        assert hidden not in page, hidden
    refused = await rig.browser.get("/board/calls?operator=agent-7")
    assert (refused.status_code, "not for your role" in refused.text, shown(refused.text)) == (400, True, [])


async def test_person_of_one_institution_sees_only_its_calls(rig: BoardRig) -> None:
    """Another institution is not even suggested."""
    await fill(rig)
    rig.visitor.person = replace(ANN, institutions=frozenset({"cu-2"}))
    page = (await rig.browser.get("/board/calls")).text
    assert shown(page) == ["v-red", "v-lost"]
    assert "cu-1" not in page
    assert (await rig.browser.get("/board/calls?institution=cu-1")).status_code == 400


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("state=blue", "The state must be one of"),
        ("outcome=maybe", "The outcome must be one of"),
        ("since=yesterday", "“Began since” must be a time such as"),
        ("until=yesterday", "“and before” must be a time such as"),
        ("institution=CU-1", "did you mean cu-1"),
        ("after=nonsense", "This page of the list does not exist"),
        ("after=settled:x:y", "This page of the list does not exist"),
    ],
)
async def test_wrong_filter_is_named_and_shows_nothing(rig: BoardRig, query: str, words: str) -> None:
    """A misspelt filter is an error with the values that there are, never an empty or a whole list."""
    await fill(rig)
    page = await rig.browser.get(f"/board/calls?{query}")
    assert (page.status_code, words in page.text, shown(page.text)) == (400, True, [])


async def test_desk_names_a_wrong_filter(rig: BoardRig) -> None:
    """The same in the API; and a viewer's token does not filter by an operator."""
    refused = await rig.http.get("/calls", params={"state": "blue"})
    assert (refused.status_code, refused.json()["detail"].partition(":")[0]) == (400, "state")
    refused = await rig.http.get("/calls", params={"q": "outcome:foo"})
    assert refused.json()["detail"].startswith("q: outcome:foo: an outcome must be one of authenticated, ")


async def test_pages_are_the_whole_list(rig: BoardRig) -> None:
    """Pages follow each other over live and settled calls; none is missing, none comes twice."""
    for n in range(SHOWN + 7):
        await keep(rig.redis, call(voice_id=f"v-live-{n}"), n)
        await keep(rig.redis, over(f"v-over-{n}", Reason.UNDECIDED), n)
    seen: list[str] = []
    address = "/board/calls"
    for _ in range(4):
        page = (await rig.browser.get(address)).text
        seen += shown(page)
        if 'rel="next"' not in page:
            break
        address = page.partition('class="next-page" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert seen == [f"v-{kind}-{n}" for kind in ("live", "over") for n in reversed(range(SHOWN + 7))]


async def test_page_reads_a_bounded_number_of_records(redis: Redis) -> None:
    """A filter that matches nothing reads `SCAN_LIMIT` records, says so, and the next page goes on there."""
    await keep_many(redis, SCAN_LIMIT + 30)
    listed = CallList(Lookup(redis), None, SHIPPED)
    nothing = CallQuery(policy="no such policy")
    first = await listed.page(ADMIN, nothing, WHOLE, None, SHOWN)
    assert first.next is not None
    second = await listed.page(ADMIN, nothing, WHOLE, first.next, SHOWN)
    assert (first.calls, first.searched + second.searched, second.next) == ((), SCAN_LIMIT + 30, None)


async def test_records_of_other_institutions_are_not_read(redis: Redis) -> None:
    """Whoever asks for one institution, or is limited to it, waits only for its own calls."""
    await keep_many(redis, 200)
    await keep(redis, over("v-x", Reason.UNDECIDED, institution_key="cu-2"), 7)
    listed = CallList(Lookup(redis), None, SHIPPED)
    asked = await listed.page(ADMIN, CallQuery(institution_key="cu-2"), WHOLE, None, SHOWN)
    limited = await listed.page(replace(ADMIN, institutions=frozenset({"cu-2"})), CallQuery(), WHOLE, None, SHOWN)
    assert [(len(page.calls), page.searched) for page in (asked, limited)] == [(1, 1), (1, 1)]


async def test_list_stops_reading_at_the_time_that_is_asked_for(rig: BoardRig) -> None:
    """Calls that were settled before cannot have begun since: they are not read."""
    now_ms = rig.now_ms()
    for n in range(100):
        began = rig.clock.now - timedelta(hours=n)
        await keep(rig.redis, over(f"v-{n}", Reason.UNDECIDED, started_at=began), int(now_ms - n * 3_600_000))
    query = CallQuery(since=rig.clock.now - timedelta(hours=3))
    page = await CallList(Lookup(rig.redis), None, SHIPPED).page(ADMIN, query, WHOLE, None, SHOWN)
    assert ([each.voice_id for each in page.calls], page.searched < 10) == (["v-0", "v-1", "v-2", "v-3"], True)


async def test_file_is_named_as_incomplete_if_it_is(rig: BoardRig) -> None:
    """A file of all calls is called so; one with the first of them says how many."""
    await fill(rig)
    whole = await rig.browser.get("/board/calls.csv")
    await keep_many(rig.redis, EXPORTED)
    cut = await rig.browser.get("/board/calls.csv")
    assert [each.headers["content-disposition"].partition("=")[2] for each in (whole, cut)] == [
        '"calls.csv"',
        f'"calls-first-{EXPORTED}.csv"',
    ]
