"""``callkeeper pause``, ``resume`` and ``pauses`` as they are typed, also by somebody who mistypes."""

import asyncio
import json
from collections.abc import Mapping

import pytest
from click.testing import CliRunner, Result
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from callkeeper.app.cli import main
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_listing import Listings, Standing
from callkeeper.calls.store.push_intake import Intake
from callkeeper.service.push_event import PushEvent

WHY = ("--reason", "drill", "--operator", "jane")
NAMES = {"cu-1": "Harbour Example Credit Union", "cu-2": "Meadow Example Credit Union", "bank-1": "First Example Bank"}


def type_in(*arguments: str, redis_url: str) -> Result:
    """Run a command as the command line does."""
    return CliRunner(env={"REDIS_URL": redis_url}).invoke(main, list(arguments))


def listed(redis_url: str, names: Mapping[str, str] = NAMES) -> None:
    """Store the service's list of institutions, as a worker does."""

    async def write() -> None:
        async with Redis.from_url(redis_url) as redis:
            standings = [Standing(key=key, name=name, status="Active") for key, name in names.items()]
            await Listings(redis).save_standings(standings)

    asyncio.run(write())


def stored(redis_url: str) -> dict[bytes, bytes]:
    """Return everything that Redis holds about pauses."""
    with BlockingRedis.from_url(redis_url) as redis:
        keys = Keys()
        pauses: dict[bytes, bytes] = redis.hgetall(keys.pause)
        return {**pauses, b"history": b"|".join(redis.lrange(keys.pause_history, 0, -1))}


MISTYPED = {
    "wrong case": ("CU-1", "did you mean cu-1 (Harbour Example Credit Union)?"),
    "no dash": ("cu1", "did you mean cu-1 (Harbour Example Credit Union)?"),
    "a blank behind": ("cu-2 ", "did you mean cu-2 (Meadow Example Credit Union)?"),
    "display name": ("Meadow Example Credit Union", "did you mean cu-2 (Meadow Example Credit Union)?"),
    "part of a display name": ("meadow", "did you mean cu-2 (Meadow Example Credit Union)?"),
    "unknown": ("zebra", "there are bank-1, cu-1, cu-2"),
    "blank": (" ", "the institution's key is blank"),
    "empty": ("", "the institution's key is blank"),
    "the sign for all": ("*", "there are bank-1, cu-1, cu-2"),
    "two in one": ("cu-1,cu-2", "did you mean cu-"),
    "control characters": ("\x1b[2Jcu-1", r"'\x1b[2Jcu-1'"),
}


@pytest.mark.parametrize("scope", [(), ("--all",)], ids=["effects", "all"])
@pytest.mark.parametrize(("typed", "said"), MISTYPED.values(), ids=MISTYPED)
def test_pause_of_an_institution_that_does_not_exist_is_refused(
    redis_url: str, typed: str, said: str, scope: tuple[str, ...]
) -> None:
    """An unknown institution is an error with the nearest one, exit code 2, and nothing is written."""
    listed(redis_url)
    result = type_in("pause", "--institution", typed, *scope, *WHY, redis_url=redis_url)
    assert (result.exit_code, result.stdout, said in result.stderr) == (1, "", True), result.output
    assert "Nothing was paused." in result.stderr
    assert stored(redis_url) == {b"history": b""}


def test_pause_of_two_institutions_is_refused_whole(redis_url: str) -> None:
    """Where one of two institutions is unknown neither is paused; where both exist, both are."""
    listed(redis_url)
    both = ("pause", "--institution", "cu-1", "--institution")
    assert type_in(*both, "CU-2", *WHY, redis_url=redis_url).exit_code == 1
    assert stored(redis_url) == {b"history": b""}
    assert type_in(*both, "cu-2", *WHY, redis_url=redis_url).exit_code == 0
    assert {b"cu-1", b"cu-2"} < stored(redis_url).keys()


def test_pause_says_what_is_held(redis_url: str) -> None:
    """After a pause its institutions are printed by name and key, with their live calls."""
    listed(redis_url)
    with BlockingRedis.from_url(redis_url) as redis:
        redis.zadd(Keys().live, {"c:cu-1:v-1": 1, "c:cu-1:v-2": 2, "c:cu-2:v-1": 3})
    one = type_in("pause", "--institution", "cu-1", *WHY, redis_url=redis_url).output.splitlines()
    assert one[:2] == [
        "Paused: enrolls and rejects of 1 institution, 2 live calls",
        "  cu-1 (Harbour Example Credit Union): 2 live calls",
    ]
    everybody = type_in("pause", "--all", *WHY, redis_url=redis_url).output.splitlines()
    assert everybody[:4] == [
        "Paused: everything automatic of all institutions, 3 live calls",
        "  bank-1 (First Example Bank): 0 live calls",
        "  cu-1 (Harbour Example Credit Union): 2 live calls",
        "  cu-2 (Meadow Example Credit Union): 1 live call",
    ]


def test_pause_warns_if_no_worker_obeys_it(redis_url: str) -> None:
    """The pause of a wrong Redis or prefix stops nobody; that of a right one, with a worker alive, says nothing of it."""
    warned = type_in("pause", *WHY, redis_url=redis_url)
    assert (warned.exit_code, "No worker is alive" in warned.stderr) == (0, True)
    with BlockingRedis.from_url(redis_url) as redis:
        redis.zadd(Keys().processes, {"host/worker-1": 1})
        redis.hset(Keys().process("host/worker-1"), mapping={"kind": "worker", "since": 1})
    assert type_in("pause", *WHY, redis_url=redis_url).stderr == ""


def test_pause_on_a_fresh_installation_says_that_nothing_is_known(redis_url: str) -> None:
    """Without a stored list no name can be checked: the error says so; --force and all institutions work."""
    refused = type_in("pause", "--institution", "cu-1", *WHY, redis_url=redis_url)
    assert (refused.exit_code, stored(redis_url)) == (1, {b"history": b""})
    assert "callkeeper knows no institution yet" in refused.stderr
    assert "--force" in refused.stderr
    forced = type_in("pause", "--institution", "cu-1", "--force", *WHY, redis_url=redis_url)
    assert (forced.exit_code, "cu-1: not known yet; its calls are paused once there are any" in forced.output) == (
        0,
        True,
    )
    assert type_in("pause", "--all", *WHY, redis_url=redis_url).exit_code == 0
    assert {b"cu-1", b"*"} < stored(redis_url).keys()


@pytest.mark.parametrize("typed", [" ", "", "*", "cu 9", "a/b"])
def test_pause_cannot_be_forced_onto_what_is_no_key(redis_url: str, typed: str) -> None:
    """--force takes only what can be an institution's key: the sign for all institutions is none."""
    listed(redis_url)
    result = type_in("pause", "--institution", typed, "--force", *WHY, redis_url=redis_url)
    assert (result.exit_code, stored(redis_url)) == (1, {b"history": b""})


def test_pause_cannot_be_forced_onto_a_known_key_in_other_letters(redis_url: str) -> None:
    """--force does not take a key that differs from a known one in upper and lower case only: it would hold nothing."""
    listed(redis_url)
    result = type_in("pause", "--institution", "CU-1", "--force", *WHY, redis_url=redis_url)
    assert (result.exit_code, stored(redis_url)) == (1, {b"history": b""})
    assert "did you mean cu-1 (Harbour Example Credit Union)?" in result.stderr
    assert "--force does not take" in result.stderr


def test_pause_knows_an_institution_by_its_calls_but_not_by_a_push(redis_url: str) -> None:
    """Institutions of live calls exist also when the list is gone; a key that only a push has named does not."""
    with BlockingRedis.from_url(redis_url) as redis:
        redis.zadd(Keys().live, {"c:cu-1:v-1": 1})

    async def push() -> None:
        async with Redis.from_url(redis_url) as redis:
            event = PushEvent(type="CallStart", institution_key="CU-1", voice_id="v-1")
            await Intake(redis).record(event, event_id="ev-1")

    asyncio.run(push())
    refused = type_in("pause", "--institution", "CU-1", *WHY, redis_url=redis_url)
    assert (refused.exit_code, "did you mean cu-1?" in refused.stderr) == (1, True)
    assert "not in Redis" in refused.stderr
    assert type_in("pause", "--institution", "cu-1", *WHY, redis_url=redis_url).exit_code == 0


def test_pause_with_an_unreadable_list_entry_still_works(redis_url: str) -> None:
    """An entry of the stored list that cannot be read costs its name, never the pause."""
    with BlockingRedis.from_url(redis_url) as redis:
        redis.hset(Keys().standings, "cu-1", "{broken")
    assert type_in("pause", "--institution", "cu-1", *WHY, redis_url=redis_url).exit_code == 0


def test_pause_does_not_weaken_another_by_default(redis_url: str) -> None:
    """A pause of everything is not replaced by one of effects, unless --effects asks for that."""
    listed(redis_url)
    assert type_in("pause", "--all", *WHY, redis_url=redis_url).exit_code == 0
    weaker = type_in("pause", *WHY, redis_url=redis_url)
    assert (weaker.exit_code, "everything automatic is paused there already (by jane: drill)" in weaker.output) == (
        1,
        True,
    )
    assert b'"scope":"all"' in stored(redis_url)[b"*"]
    assert type_in("pause", "--effects", *WHY, redis_url=redis_url).exit_code == 0
    assert b'"scope":"effects"' in stored(redis_url)[b"*"]
    assert type_in("pause", "--effects", "--all", *WHY, redis_url=redis_url).exit_code == 2


def test_resume_lifts_whatever_is_paused(redis_url: str) -> None:
    """What is paused can be resumed, known or not; anything else is an error with the nearest pause there is."""
    listed(redis_url)
    assert type_in("pause", "--institution", "cu-9", "--force", *WHY, redis_url=redis_url).exit_code == 0
    wrong = type_in("resume", "--institution", "CU-9", *WHY, redis_url=redis_url)
    assert (wrong.exit_code, "there is no pause of 'CU-9'; did you mean cu-9?" in wrong.stderr) == (1, True)
    everybody = type_in("resume", *WHY, redis_url=redis_url)
    assert (everybody.exit_code, "no pause of all institutions; paused now: cu-9" in everybody.stderr) == (1, True)
    lifted = type_in("resume", "--institution", "cu-9", *WHY, redis_url=redis_url)
    assert lifted.output == "resumed: cu-9\nnothing is paused\n"
    again = type_in("resume", *WHY, redis_url=redis_url)
    assert (again.exit_code, "nothing is paused" in again.stderr) == (1, True)


def test_resume_leads_from_a_display_name_to_the_paused_key(redis_url: str) -> None:
    """A display name leads to the key of the pause."""
    listed(redis_url)
    type_in("pause", "--institution", "cu-2", *WHY, redis_url=redis_url)
    wrong = type_in("resume", "--institution", "Meadow Example", *WHY, redis_url=redis_url)
    assert "did you mean cu-2 (Meadow Example Credit Union)?" in wrong.stderr


def test_resume_of_an_institution_that_is_not_paused_suggests_no_other(redis_url: str) -> None:
    """A key that exists is not mistyped: the error lists what is paused, and suggests no other institution."""
    listed(redis_url)
    type_in("pause", "--institution", "cu-1", *WHY, redis_url=redis_url)
    wrong = type_in("resume", "--institution", "cu-2", *WHY, redis_url=redis_url)
    assert (wrong.exit_code, "there is no pause of 'cu-2'; paused now: cu-1\n" in wrong.stderr) == (1, True)


def test_resume_says_what_it_lifted_and_what_still_holds(redis_url: str) -> None:
    """The lifted pause is named; an institution whose calls the pause of all still holds is not reported as free."""
    listed(redis_url)
    type_in("pause", "--institution", "cu-1", *WHY, redis_url=redis_url)
    type_in("pause", *WHY, redis_url=redis_url)
    one = type_in("resume", "--institution", "cu-1", *WHY, redis_url=redis_url).output.splitlines()
    assert one[0] == ("resumed: cu-1 (Harbour Example Credit Union); the pause of all institutions is still in force")
    assert type_in("resume", *WHY, redis_url=redis_url).output == "resumed: all institutions\nnothing is paused\n"


def test_forced_pause_of_a_key_that_is_not_listed_says_that_it_holds_nothing(redis_url: str) -> None:
    """Where the service's list is known, --force names the nearest institution instead of promising to hold calls."""
    listed(redis_url)
    forced = type_in("pause", "--institution", "cu-11", "--force", *WHY, redis_url=redis_url).output.splitlines()
    assert forced[1].startswith("  cu-11: holds no call now: ")
    assert forced[1].endswith("did you mean cu-1 (Harbour Example Credit Union)?")


def test_resume_describes_resuming(redis_url: str) -> None:
    """The help of resume does not speak of stopping."""
    told = type_in("resume", "--help", redis_url=redis_url).output
    assert "Lift the pause of this institution" in told
    assert "Only this institution's calls" not in told
    assert "Assigns and automatic checks as well" not in told


def test_pauses_shows_who_paused_and_who_resumed(redis_url: str) -> None:
    """The history has a pause with scope, place, person and reason, and what ended it; the bound is 200 changes."""
    listed(redis_url)
    type_in("pause", "--institution", "cu-1", *WHY, redis_url=redis_url)
    type_in("resume", "--institution", "cu-1", "--reason", "over", "--operator", "ann", redis_url=redis_url)
    type_in("pause", "--reason", "storm", "--operator", "bob", redis_url=redis_url)
    told = type_in("pauses", redis_url=redis_url).output
    assert "all institutions: enrolls and rejects, by bob: storm\n    in force" in told
    assert "cu-1: enrolls and rejects, by jane: drill\n    until" in told
    assert "resumed, by ann: over" in told
    assert "all institutions: enrolls and rejects, by bob: storm (since" in told
    now, *rows = [json.loads(row) for row in type_in("pauses", "--json", redis_url=redis_url).output.splitlines()]
    assert {name: now["now"][name] for name in ("institution", "scope", "operator", "because")} == {
        "institution": "*",
        "scope": "effects",
        "operator": "bob",
        "because": "storm",
    }
    assert [(row["begun"]["institution"], row["ended"] and row["ended"]["operator"]) for row in rows] == [
        ("*", None),
        ("cu-1", "ann"),
    ]


def test_pauses_in_json_tells_of_a_pause_that_holds_nothing(redis_url: str) -> None:
    """Software is told what is paused now, also of a key that is no institution's, and nothing more once it is resumed."""
    listed(redis_url)
    type_in("pause", "--all", "--institution", "cu-77", "--force", *WHY, redis_url=redis_url)
    [row, _] = [json.loads(row) for row in type_in("pauses", "--json", redis_url=redis_url).output.splitlines()]
    assert (row["now"]["institution"], row["now"]["scope"]) == ("cu-77", "all")
    assert "callkeeper knows no institution with the key 'cu-77'" in row["now"]["problem"]
    type_in("resume", "--institution", "cu-77", *WHY, redis_url=redis_url)
    rows = [json.loads(row) for row in type_in("pauses", "--json", redis_url=redis_url).output.splitlines()]
    assert [set(row) for row in rows] == [{"begun", "ended"}]


def test_pause_says_something_or_is_refused(redis_url: str) -> None:
    """A blank reason or operator is refused, and nothing is written."""
    assert type_in("pause", "--reason", " ", "--operator", "jane", redis_url=redis_url).exit_code == 2
    assert type_in("pause", "--reason", "x", "--operator", "", redis_url=redis_url).exit_code == 2
    assert stored(redis_url) == {b"history": b""}
