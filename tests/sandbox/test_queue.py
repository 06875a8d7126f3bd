"""The queue: what it lists, how it is searched and paged."""

import datetime as dt

import pytest

from callkeeper_sandbox.service.state import Happening, Kind
from tests.sandbox_fixtures import PHONE, START, Asgi

BASE_FIELDS = {"success", "error", "errors", "messages", "code"}


async def test_queue_lists_live_calls_only(sandbox_asgi: Asgi) -> None:
    """A call is listed from its start until its end.

    Spec: Queue query; What the service does.
    """
    call = sandbox_asgi.call(Happening(Kind.END, 10))
    assert [entry["voiceId"] for entry in await sandbox_asgi.queue()] == [call.voice_id]
    sandbox_asgi.advance(10)
    assert await sandbox_asgi.queue() == []


async def test_queue_entry_carries_exactly_its_fields(sandbox_asgi: Asgi) -> None:
    """An entry has the fields of the table, in camel case, and the answer those of the base response.

    Spec: Queue entry; Base response; Resources and their fields.
    """
    sandbox_asgi.call()
    answer = await sandbox_asgi.ask("GET", "/calls/queue", continueFrom=0, pageSize=1)
    assert set(answer) == BASE_FIELDS | {"phoneCalls"}
    entry = answer["phoneCalls"][0]
    assert set(entry) == {"phoneNumber", "voiceId", "personId", "coreUsername", "startDateTime", "persons"}
    assert (entry["phoneNumber"], entry["startDateTime"]) == (PHONE, "2026-11-21T12:00:00Z")


async def test_queue_entry_carries_candidates_with_sensitive_fields(sandbox_asgi: Asgi) -> None:
    """Candidates are the institution's members with the call's number, with all that the core system knows of them.

    Spec: Person match; Queue query.
    """
    sandbox_asgi.world.add_institution("cu-2")
    sandbox_asgi.world.add_member("cu-2", "stranger", [PHONE])
    sandbox_asgi.world.add_member("cu-1", "p-2", [PHONE], first_name="Joint")
    sandbox_asgi.call()
    persons = (await sandbox_asgi.queue())[0]["persons"]
    assert [person["personId"] for person in persons] == ["p-1", "p-2"]
    assert set(persons[0]) == {
        "firstName",
        "lastName",
        "personId",
        "name",
        "last4Ssn",
        "fullSsn",
        "driverLicense",
        "valueForCore",
        "dateOfBirth",
        "supportPassword",
        "personType",
    }
    assert set(persons[0]["driverLicense"]) == {"number", "issuer", "expirationDate"}
    assert persons[0]["fullSsn"].startswith("000-")


async def test_queue_entry_of_a_stranger_has_no_candidates(sandbox_asgi: Asgi) -> None:
    """A number that no member has gives null.

    Spec: Queue entry.
    """
    sandbox_asgi.call(phone_number="5559999999")
    assert (await sandbox_asgi.queue())[0]["persons"] is None


async def test_queue_entry_can_carry_scripted_candidates(sandbox_asgi: Asgi) -> None:
    """A script can put any candidates there: the same one twice, one without an id.

    Spec: Queue entry.
    """
    persons = [{"personId": "p-1"}, {"personId": "p-1"}, {"lastName": "Nobody"}]
    sandbox_asgi.call(persons=persons)
    assert (await sandbox_asgi.queue())[0]["persons"] == persons


async def test_queue_omits_ignored_numbers(sandbox_asgi: Asgi) -> None:
    """A number on the institution's ignore list is never listed.

    Spec: Queue query.
    """
    sandbox_asgi.call()
    sandbox_asgi.world.state.institutions["cu-1"].ignored = [PHONE]
    assert await sandbox_asgi.queue() == []


async def test_queue_shows_one_institution_only(sandbox_asgi: Asgi) -> None:
    """The header decides whose calls are listed.

    Spec: Authentication, rule 2; Queue query.
    """
    sandbox_asgi.world.add_institution("cu-2")
    sandbox_asgi.call(key="cu-2")
    assert await sandbox_asgi.queue() == []


@pytest.mark.parametrize(("text", "found"), [("010000", 1), ("ada ex", 1), ("EXAMPLE", 1), ("nobody", 0)])
async def test_search_string_matches_number_or_member(sandbox_asgi: Asgi, text: str, found: int) -> None:
    """The search string is looked for in the number and in the names of the matched members.

    Spec: Queue query.
    """
    sandbox_asgi.call()
    assert len(await sandbox_asgi.queue(searchString=text)) == found


@pytest.mark.parametrize(
    ("bounds", "found"),
    [
        ({"startDate": START + dt.timedelta(seconds=10)}, [1, 2]),
        ({"endDate": START + dt.timedelta(seconds=10)}, [0, 1]),
        ({"startDate": START + dt.timedelta(seconds=1), "endDate": START + dt.timedelta(seconds=19)}, [1]),
        ({"startDate": "2026-11-21T12:00:20"}, [2]),
        ({"startDate": "2026-11-21T07:00:20-05:00"}, [2]),
    ],
    ids=["start", "end", "both", "without zone", "offset"],
)
async def test_dates_bound_the_start_of_calls(sandbox_asgi: Asgi, bounds: dict[str, object], found: list[int]) -> None:
    """Both bounds are on the start of a call and inclusive; without a zone they are UTC.

    Spec: Queue query.
    """
    calls = []
    for _ in range(3):
        calls.append(sandbox_asgi.call().voice_id)
        sandbox_asgi.advance(10)
    assert [calls.index(entry["voiceId"]) for entry in await sandbox_asgi.queue(**bounds)] == found


async def test_pages_cover_the_queue_once_and_in_order(sandbox_asgi: Asgi) -> None:
    """``continueFrom`` skips entries and ``pageSize`` bounds them, oldest call first.

    Spec: Queue query.
    """
    calls = []
    for _ in range(5):
        calls.append(sandbox_asgi.call().voice_id)
        sandbox_asgi.advance(1)
    pages = [await sandbox_asgi.queue(continueFrom=skip, pageSize=2) for skip in (0, 2, 4, 6)]
    assert [[calls.index(entry["voiceId"]) for entry in page] for page in pages] == [[0, 1], [2, 3], [4], []]


@pytest.mark.parametrize(
    "query",
    [
        {"continueFrom": 0},
        {"pageSize": 1},
        {"continueFrom": -1, "pageSize": 1},
        {"continueFrom": 0, "pageSize": 0},
        {"continueFrom": 0, "pageSize": 1001},
        {"continueFrom": "x", "pageSize": 1},
        {"continueFrom": 0, "pageSize": 1, "startDate": "yesterday"},
    ],
    ids=str,
)
async def test_malformed_query_is_refused(sandbox_asgi: Asgi, query: dict[str, object]) -> None:
    """Both paging parameters are required integers within their bounds; dates are dates.

    Spec: Queue query; Errors 1.
    """
    answer = await sandbox_asgi.ask("GET", "/calls/queue", **query)
    assert (answer["success"], "phoneCalls" in answer) == (False, False)


async def test_queue_shows_claim_and_person(sandbox_asgi: Asgi) -> None:
    """Once assigned, an entry names the person and the operator who claimed the call.

    Spec: Queue entry; Rules per operation 1.
    """
    call = sandbox_asgi.call()
    await sandbox_asgi.ask("POST", "/calls/assign", {"voiceId": call.voice_id, "personId": "p-1"})
    entry = (await sandbox_asgi.queue())[0]
    assert (entry["personId"], entry["coreUsername"]) == ("p-1", "bot")
