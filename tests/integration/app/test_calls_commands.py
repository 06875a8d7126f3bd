"""``callkeeper calls``: lists of calls, and resolving a doubt without sending anything."""

import asyncio
import json
from itertools import takewhile

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from callkeeper.app.cli import main
from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.effect_resolution import DOUBT_READS_S
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Distrusted
from callkeeper.calls.record import Reason
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.delivery_log import DeliveryLog
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import KEY, PHONE, Rig

pytestmark = pytest.mark.usefixtures("begun_now")


async def callkeeper(redis_url: str, *arguments: str) -> Result:
    """Run a command as the command line does, beside the loop of the test."""
    runner = CliRunner(env={"REDIS_URL": redis_url})
    return await asyncio.to_thread(runner.invoke, main, list(arguments))


async def doubtful(rig: Rig) -> Call:
    """Return a call whose reject nobody can prove: its answer was lost and its status overwritten."""
    call = await rig.begin_call(Happening(Kind.END, 120), run_s=3, is_pushed=False)
    rig.stage.sandbox.faults.add(Fault(target="reject_voice", action=Action.RESET, applied=False, times=1))
    await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now))
    await rig.run(2)
    rig.stage.happen(call, Kind.VIEWED)
    await rig.run(DOUBT_READS_S[-1])
    assert (await rig.record(call)).ledger.reject.state is EffectState.UNRESOLVED
    return call


async def test_calls_list_shows_a_call_and_what_needs_a_person(rig: Rig, redis_url: str) -> None:
    """A live call is a line; an effect that nothing could prove is named as needing a person. No name is shown."""
    call = await doubtful(rig)
    told = await callkeeper(redis_url, "calls", "list")
    assert told.exit_code == 0, told.output
    assert "needs a person" in told.output
    assert call.voice_id in told.output
    assert "Ada" not in told.output
    rows = await callkeeper(redis_url, "calls", "list", "--json")
    row = json.loads(rows.output.splitlines()[0])
    assert row["voice_id"] == call.voice_id
    assert row["phone_last4"] == call.phone_number[-4:]


async def test_calls_list_shows_whole_ids(rig: Rig, redis_url: str) -> None:
    """The voice id can be copied into the other commands; where the output is piped, a call is one line."""
    call = await rig.begin_call(Happening(Kind.END, 120), run_s=3, is_pushed=False)
    assert len(call.voice_id) == 36
    for words in ((), (KEY,)):
        told = await callkeeper(redis_url, "calls", "list", *words)
        assert [call.voice_id in line for line in told.output.splitlines()] == [False, True]


async def test_calls_are_filtered_in_one_language(rig: Rig, redis_url: str) -> None:
    """Words and filters mean the same, and all output formats show the same calls."""
    live = await rig.begin_call(Happening(Kind.END, 120), run_s=3, is_pushed=False)
    # The rig's clock runs ahead of the machine's, which the commands go by.
    for fits in (("watching",), (PHONE[-4:], "ada"), ("--institution", KEY), ("--since", "1h"), (live.voice_id[:7],)):
        told = await callkeeper(redis_url, "calls", "list", *fits)
        assert (told.exit_code, live.voice_id in told.output) == (0, True), (fits, told.output)
        assert json.loads((await callkeeper(redis_url, "calls", "list", *fits, "--json")).output)["state"] == "watched"
        lines = (await callkeeper(redis_url, "calls", "list", *fits, "--csv")).output.splitlines()
        assert (lines[0].split(",")[2], lines[1].split(",")[2]) == ("voice_id", live.voice_id)
    for filters in (("--state", "watched"), ("--state", "Watching"), ("--state", "open", "--until", "2100-01-01")):
        assert live.voice_id in (await callkeeper(redis_url, "calls", "list", *filters)).output
    for other in (
        ("rejected",),
        ("0000", "bob"),
        ("--institution", "cu-2"),
        ("--state", "red"),
        ("--rule", "verified"),
        ("--policy", "red"),
        ("--operator", "agent-7"),
        ("--outcome", "enrolled"),
        ("--until", "1h"),
    ):
        assert live.voice_id not in (await callkeeper(redis_url, "calls", "list", *other)).output
    mistyped = await callkeeper(redis_url, "calls", "list", "--institution", "CU-1")
    assert (mistyped.exit_code, "did you mean cu-1" in mistyped.output) == (1, True)
    for wrong in (("--since", "yesterday"), ("--state", "blue"), ("outcome:enroled",)):
        assert (await callkeeper(redis_url, "calls", "list", *wrong)).exit_code == 2
    term = (await callkeeper(redis_url, "calls", "list", "outcome:foo")).output
    assert ("Error: outcome:foo: an outcome must be one of authenticated, " in term, "--outcome" in term) == (
        True,
        False,
    )
    assert "'left-alone'" in (await callkeeper(redis_url, "calls", "list", "--state", "blue")).output


async def test_list_shows_what_needs_a_person_of_the_calls_asked_for(rig: Rig, redis_url: str) -> None:
    """A search is not answered with troubles; an institution's own show in its list, also of calls not live."""
    first, second = rig.stage.call(Happening(Kind.END, 120)), rig.stage.call(Happening(Kind.END, 120))
    await rig.run(3)
    for member in (CallId(KEY, first.voice_id).member, CallId(KEY, second.voice_id).member, "c:cu-2:v-9", "i:cu-2"):
        await rig.redis.hset(Keys().attention, member, "a trouble")

    async def troubles(*filters: str) -> int:
        return (await callkeeper(redis_url, "calls", "list", *filters)).output.count("a trouble")

    assert [await troubles(), await troubles("--institution", KEY)] == [4, 2]
    assert [await troubles(first.voice_id), await troubles("--state", "rejected")] == [0, 0]


async def test_list_is_oldest_first(rig: Rig, redis_url: str) -> None:
    """As its help says: by when calls began, not by when they became known."""
    for _ in range(3):
        rig.stage.call(Happening(Kind.END, 120))
        await rig.run(2)
    members = await rig.redis.zrange(Keys().live, 0, -1)
    await rig.redis.zadd(Keys().live, {member: -n for n, member in enumerate(members)})
    told = (await callkeeper(redis_url, "calls", "list", "--json")).output.splitlines()
    began = [json.loads(line)["started_at"] for line in told]
    assert len(began) == 3
    assert began == sorted(began)


async def test_calls_resolve_closes_a_doubt_and_sends_nothing(rig: Rig, redis_url: str) -> None:
    """A person's resolution closes the effect and is in the trail; no request is sent."""
    call = await doubtful(rig)
    before = rig.ledger(call)["reject_voice"]
    told = await callkeeper(redis_url, "calls", "resolve", call.voice_id, "--absent", "--operator", "ann")
    assert told.exit_code == 0, told.output
    await rig.run(1)
    record = await rig.record(call)
    assert record.ledger.reject.state is EffectState.ABSENT
    assert await rig.queries.attention() == {}
    assert any(entry.operator == "ann" and entry.what == "established" for entry in await rig.trail(call))
    [said] = [entry for entry in await rig.trail(call) if entry.what == "said" and entry.kind == "resolved"]
    assert said.wish, "without an id the Redis client's repetition of it would be heard again"
    await rig.run(130)
    assert rig.ledger(call)["reject_voice"] == before
    assert (await rig.record(call)).life.reason is not Reason.UNRESOLVED


async def test_calls_resolve_names_the_effect_where_two_are_in_doubt(rig: Rig, redis_url: str) -> None:
    """One answer closes one effect: without a name nothing is written, and the name of another one is refused."""
    call = await doubtful(rig)
    record = await rig.record(call)
    item = rig.store.keys.item(rig.call_id(call).member)
    await rig.redis.hset(
        item, "rec", encode_call(replace(record, ledger=replace(record.ledger, enroll=record.ledger.reject)))
    )
    resolve = ("calls", "resolve", call.voice_id, "--operator", "ann")
    unnamed = await callkeeper(redis_url, *resolve, "--applied")
    assert (unnamed.exit_code, "enroll and reject" in unnamed.output, "--effect" in unnamed.output) == (1, True, True)
    named = await callkeeper(redis_url, *resolve, "--absent", "--effect", "enroll")
    assert (named.exit_code, named.output) == (0, f"{call.voice_id}: enroll: absent, by ann\n")
    await rig.run(1)
    record = await rig.record(call)
    assert (record.ledger.enroll.state, record.ledger.reject.state) == (EffectState.ABSENT, EffectState.UNRESOLVED)
    again = await callkeeper(redis_url, *resolve, "--absent", "--effect", "enroll")
    assert (again.exit_code, "no enroll of" in again.output) == (1, True)
    assert (await callkeeper(redis_url, *resolve, "--applied")).exit_code == 0
    await rig.run(1)
    assert (await rig.record(call)).ledger.reject.state is EffectState.CONFIRMED


async def test_calls_resolve_refuses_where_nothing_is_in_doubt(rig: Rig, redis_url: str) -> None:
    """Resolving a call without an unresolved effect changes nothing and says so; so does an unknown id."""
    call = await rig.begin_call(Happening(Kind.END, 60), run_s=3, is_pushed=False)
    for voice_id, words in ((call.voice_id, "no effect"), ("no-such-call", "nothing is known")):
        told = await callkeeper(redis_url, "calls", "resolve", voice_id, "--applied", "--operator", "ann")
        assert told.exit_code == 1
        assert words in told.output
    await rig.redis.hset(Keys().attention, rig.call_id(call).member, "parked")
    seen = await callkeeper(redis_url, "calls", "resolve", call.voice_id, "--seen", "--operator", "ann")
    assert (seen.exit_code, "can be marked as seen" in seen.output) == (1, True), "a parked call does need a person"
    undecided = await callkeeper(redis_url, "calls", "resolve", call.voice_id, "--operator", "ann")
    assert undecided.exit_code == 2
    assert "--applied" in undecided.output


NO_USERNAMES = {
    "empty": "",
    "blank": "  ",
    "escape": "Mary O'Neil\x1b[31m",
    "65 letters": "a" * 65,
    "umlaut": "j\u00fcrgen",
}


@pytest.mark.parametrize("operator", NO_USERNAMES.values(), ids=NO_USERNAMES)
async def test_calls_are_resolved_and_erased_only_under_a_core_username(
    rig: Rig, redis_url: str, operator: str
) -> None:
    """Trail and audit log say who it was, and nobody can be named by a text that is no username. Nothing is changed."""
    call = await doubtful(rig)
    for command in (
        ("resolve", call.voice_id, "--applied"),
        ("erase", "--institution", KEY, "--phone", PHONE, "--reason", "asked for"),
    ):
        told = await callkeeper(redis_url, "calls", *command, "--operator", operator)
        assert (told.exit_code, "must be 1 to 64 printable ASCII characters" in told.output) == (2, True), told.output
    await rig.run(1)
    assert [line.kind for line in await rig.trail(call) if line.what == "said"] == ["distrusted"]
    assert await rig.redis.xlen(Keys().audit) == 0


async def test_call_is_explained_by_its_alternate_id(rig: Rig, redis_url: str) -> None:
    """The story of a call is found under the id that the agent's software happens to have."""
    call = await rig.begin_call(Happening(Kind.END, 60), run_s=3)
    told = await callkeeper(redis_url, "calls", "explain", call.alternate_id)
    assert told.exit_code == 0, told.output
    assert call.voice_id in told.output


async def test_calls_say_in_one_line_that_redis_does_not_answer() -> None:
    """Without Redis the command names its address in one line, without a traceback."""
    told = await callkeeper("redis://127.0.0.1:1/0", "calls", "list")
    assert told.exit_code == 1
    assert "Traceback" not in told.output
    assert "127.0.0.1:1" in told.output


async def test_calls_find_by_what_is_known(rig: Rig, redis_url: str) -> None:
    """Digits and a member's name lead to the call, in columns, as JSON lines and as CSV; what fits no call exits with 1."""
    call = await rig.begin_call(Happening(Kind.END, 120), run_s=3, is_pushed=False)
    digits = PHONE[-4:]
    for words in ((digits,), ("ada", KEY), (call.voice_id,), (call.voice_id[:7],)):
        told = await callkeeper(redis_url, "calls", "list", *words)
        assert (told.exit_code, call.voice_id in told.output) == (0, True), words
        assert PHONE not in told.output
    row = json.loads((await callkeeper(redis_url, "calls", "list", digits, "--json")).output)
    assert row["voice_id"] == call.voice_id
    lines = (await callkeeper(redis_url, "calls", "list", digits, "--csv")).output.splitlines()
    assert (lines[0].split(",")[2], lines[1].split(",")[2]) == ("voice_id", call.voice_id)
    assert (await callkeeper(redis_url, "calls", "list", "nobody-of-this-name")).exit_code == 1


async def test_unknown_call_leads_to_the_search(redis_url: str) -> None:
    """The error about an unknown voice id names the command that searches."""
    told = await callkeeper(redis_url, "calls", "explain", "v-none")
    assert told.exit_code == 1
    assert "nothing is known of v-none; search with callkeeper calls list" in told.output


async def test_commands_take_the_beginning_of_an_id(rig: Rig, redis_url: str) -> None:
    """The beginning of an id selects its call. If several match, the command names them and does nothing."""
    first, second = rig.stage.call(Happening(Kind.END, 120)), rig.stage.call(Happening(Kind.END, 120))
    await rig.run(3)
    pairs = zip(first.voice_id, second.voice_id, strict=False)
    shared = "".join(one for one, other in takewhile(lambda pair: pair[0] == pair[1], pairs))
    own = first.voice_id[: max(4, len(shared) + 1)]
    await DeliveryLog(rig.redis, Keys().outbox).announce("https://outcomes.example")
    shown = await callkeeper(redis_url, "calls", "explain", own)
    assert (shown.exit_code, first.voice_id in shown.output) == (0, True), shown.output
    for command, code, words in (
        (("calls", "explain"), 0, first.voice_id),
        (("calls", "resolve", "--applied", "--operator", "ann"), 1, "no effect of"),
        (("calls", "list"), 0, first.voice_id),
        (("outcomes", "replay"), 0, ""),
    ):
        told = await callkeeper(redis_url, *command, own)
        assert (told.exit_code, words in told.output) == (code, True), (command, told.output)
    if len(shared) >= 4:
        told = await callkeeper(redis_url, "calls", "explain", shared)
        assert (told.exit_code, second.voice_id in told.output) == (1, True)
