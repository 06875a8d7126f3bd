"""The board's pages over a whole callkeeper in virtual time: what they show, and what their forms bring about."""

import asyncio
import html
import re
from dataclasses import replace as with_fields
from typing import NoReturn
from urllib.parse import urlencode

import httpx
import pytest
from msgspec.structs import replace
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import LogCapture

from callkeeper.calls.call_query import NEEDS_PERSON
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.effect_resolution import UNREAD
from callkeeper.calls.notes import SameMember, Verified
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.record import Asked
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.rules import Outcome, Rule
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.pausing import Pausing
from callkeeper.calls.store.rules_in_force import put_in_force
from callkeeper.desk.board.states import StateName
from callkeeper.desk.signed_tokens import FORM_FIELD
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.desk import BoardRig, of
from tests.harness.virtual_time import KEY, PHONE
from tests.integration.whole_calls.test_rejected_meanwhile import Wire
from tests.signed_in import ANN

END = Happening(Kind.END, 300)


async def test_board_shows_live_calls_without_anybody_s_name(rig: BoardRig) -> None:
    """A live call is a line with state, checks, last digits and what comes next; names are on its own page only."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    board, own = await rig.page(), await rig.page(of(call))
    for shown in ("Watching", PHONE[-4:], "of 20 checks used", "First Example Credit Union", "check"):
        assert shown in board
    for hidden in ("Ada", PHONE, "p-1"):
        assert hidden not in board
        assert hidden in own
    assert "Ada Example" in own


async def test_board_counts_states_and_folds_the_many(rig: BoardRig) -> None:
    """Two thousand live calls are counted, the newest of them are lines, the others a link away."""
    calls = [rig.stage.call(END) for _ in range(40)]
    await rig.run(2)
    board, listed = await rig.page(), await rig.page(f"/institutions/{KEY}")
    assert (board.count('class="row of-'), listed.count('class="row of-')) == (24, 40)
    assert "Show all 40" in board
    assert of(calls[0]) in listed


async def test_pages_bring_nothing_inline_and_nothing_from_elsewhere(rig: BoardRig) -> None:
    """Every page lives on files of its own host: no script, style or handler within it, no other address."""
    call = await rig.begin_call(END, run_s=3, is_pushed=False)
    for path in ("", of(call), "/pausing", "/outcomes", "/plots", "/rules", "/incidents", f"/institutions/{KEY}"):
        page = await rig.page(path)
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]*\ssrc=)", page), path
        assert not re.search(r"(?:src|href|action)=\"(?!/|#)", page), path
    for name in set(re.findall(r"/board(/static/[^\"]+)", page)):
        answer = await rig.browser.get(f"/board{name}")
        assert (answer.status_code, "immutable" in answer.headers["cache-control"]) == (200, True)


async def test_pages_show_hostile_text_as_text(rig: BoardRig) -> None:
    """What comes from outside, a name or a policy or a reason, is never markup."""
    person = {"personId": "p-9", "name": "<img src=x onerror=alert(1)>", "firstName": "x", "lastName": "y"}
    call = rig.stage.call(END, persons=[person])
    rig.stage.happen(call, Kind.POLICY, "<script>alert(2)</script>")
    await rig.run(4)
    await rig.fill(f"{of(call)}/distrusted", reason="<b onclick=alert(3)>")
    await rig.run(2)
    page = await rig.page(of(call))
    assert not re.search(r"<img|<script>|<b onclick", page)
    assert "&lt;img src=x" in page


async def test_verified_on_the_page_enrolls_once(rig: BoardRig) -> None:
    """An administrator's word goes the desk's way: one enroll, by that name; the page says what became of it."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    said = await rig.fill(f"{of(call)}/verified", person_id="p-1", validation_type="OneTimePasswordAuth")
    assert said.status_code == 303
    assert "What comes of it is shown here" in await rig.page(said.headers["location"].removeprefix("/board"))
    await rig.run(5)
    assert rig.ledger(call)["enroll"] == 1
    page = await rig.page(said.headers["location"].removeprefix("/board"))
    assert "Done." in page
    assert "(token board)" in page
    assert "&#39;ann&#39; (token board) says" in page


async def test_form_without_a_token_does_nothing(rig: BoardRig) -> None:
    """A foreign page can send the login along, never the token: nothing is said, and the page tells why."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    old = rig.tokens.issue()
    rig.clock.advance(13 * 3600)
    for token in ("", "1.00", old):
        fields = {FORM_FIELD: token, "operator": "ann", "reason": "x"}
        answer = await rig.browser.post(f"/board{of(call)}/distrusted", data=fields)
        assert answer.status_code == 403
        assert "open for too long" in answer.text
        answer = await rig.browser.post("/board/pause", data={**fields, "because": "x", "scope": "all"})
        assert answer.status_code == 403
    assert not (await rig.queries.load((await rig.queries.find(call.voice_id))[0])).statements.distrusted  # type: ignore[union-attr]
    assert await rig.redis.hgetall(Keys().pause) == {}


async def test_form_that_cannot_be_done_says_why_and_keeps_what_was_typed(rig: BoardRig) -> None:
    """What the law forbids is refused with its meaning; a missing field is named; nobody speaks in another's name."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    held = await rig.fill(f"{of(call)}/verified", person_id="p-other", validation_type="Other", notes="seen")
    assert held.status_code == 303
    await rig.run(5)
    told = (await rig.browser.get(held.headers["location"])).text
    assert "Recorded, and held:" in told
    assert "must be the same" in told
    other = await rig.fill(f"{of(call)}/verified", person_id="p-1", validation_type="Other", operator="zoe")
    assert (other.status_code, "no field operator" in other.text) == (400, True)
    for kind in ("NoAuth", "VoiceAuth"):
        refused = await rig.fill(f"{of(call)}/verified", person_id="p-1", validation_type=kind)
        assert (refused.status_code, "Choose how the caller was verified" in refused.text) == (400, True)
        assert f"<option>{kind}" not in refused.text
    for reason in ({}, {"reason": "   "}):
        missing = await rig.fill(f"{of(call)}/distrusted", **reason)
        assert (missing.status_code, "Say why" in missing.text) == (400, True)
    long = await rig.fill(f"{of(call)}/verified", person_id="p-1", validation_type="Other", notes="n" * 501)
    assert (long.status_code, "in at most 500 characters" in long.text) == (400, True)
    rig.visitor.person = replace(ANN, operator="")
    again = await rig.fill(f"{of(call)}/assign", person_id="p-1")
    assert (again.status_code, "no core username" in again.text) == (403, True)


@pytest.mark.parametrize(
    "path", ["/pause", "/resume", "/find", "/outcomes/test", "/outcomes/replay", "/outcomes/replay-failed"]
)
async def test_form_with_an_unknown_field_is_refused(path: str, rig: BoardRig) -> None:
    """A field that a form does not have is named; nothing is done. Neither is anything if a field occurs twice."""
    fields = {"scope": "all", "institution": "*", "because": "x"} if path in {"/pause", "/resume"} else {}
    answer = await rig.fill(path, **fields, everything="yes")
    assert (answer.status_code, "no field everything" in answer.text) == (400, True)
    assert await rig.redis.hgetall(Keys().pause) == {}
    twice = urlencode([(FORM_FIELD, rig.tokens.issue()), *fields.items(), *fields.items(), ("q", "a"), ("q", "b")])
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await rig.browser.post(f"/board{path}", content=twice, headers=form)).status_code == 400


async def test_form_too_large_or_of_another_kind_is_refused(rig: BoardRig) -> None:
    """A body is bounded and of one kind."""
    call = await rig.begin_call(END, run_s=3, is_pushed=False)
    big = await rig.fill(f"{of(call)}/distrusted", reason="x" * 9000)
    other = await rig.browser.post(f"/board{of(call)}/distrusted", json={"operator": "ann"})
    assert (big.status_code, other.status_code) == (413, 415)


async def test_pause_on_the_page_holds_and_resumes(rig: BoardRig) -> None:
    """A pause by form holds the enroll, the board says so and by whom, and after the resumption it is decided again."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    assert (await rig.fill("/pause", scope="effects", because="drill", institution=KEY)).status_code == 303
    word = Verified(person_id="p-1", validation_type="Other", operator="teller", said_at=rig.clock.now)
    assert await rig.note(call, word)
    await rig.run(10)
    board = await rig.page()
    assert ("drill" in board, "Held" in board, rig.ledger(call).get("enroll", 0)) == (True, True, 0)
    assert (await rig.fill("/resume", because="over", institution=KEY)).status_code == 303
    await rig.run(10)
    assert rig.ledger(call)["enroll"] == 1
    assert (await rig.fill("/resume", because="again", institution=KEY)).status_code == 409


@pytest.mark.parametrize("newest", ["", "soon", "9" * 5000], ids=["nothing", "words", "too long"])
async def test_resume_by_a_form_that_does_not_say_what_was_shown(rig: BoardRig, newest: str) -> None:
    """It lifts the pause: whoever writes forms can write any time."""
    await rig.run(1)
    await rig.fill("/pause", scope="effects", because="drill", institution=KEY)
    assert (await rig.fill("/resume", because="over", institution=KEY, newest=newest)).status_code == 303


async def test_institution_page_enqueues_a_listing(rig: BoardRig) -> None:
    """The button on an institution's page enqueues the job that lists its queue; only for one that exists, only by form."""
    await rig.run(1)
    assert "List the queue now" in await rig.page(f"/institutions/{KEY}")
    done = await rig.fill(f"/institutions/{KEY}/reconcile")
    assert (done.status_code, done.headers["location"]) == (303, f"/board/institutions/{KEY}")
    assert await rig.redis.llen(Keys().queue) == 1
    assert (await rig.fill("/institutions/nowhere/reconcile")).status_code == 404
    assert (await rig.browser.post(f"/board/institutions/{KEY}/reconcile", data={"operator": "x"})).status_code == 403
    assert await rig.redis.llen(Keys().queue) == 1


@pytest.mark.parametrize(
    ("institution", "said"),
    [
        ("CU-1", "did you mean cu-1 (First Example Credit Union)?"),
        ("First Example", "did you mean cu-1 (First Example Credit Union)?"),
        ("zebra", "there are cu-1"),
        ("<b>", "&lt;b&gt;"),
        (" ", "Choose an institution, or all institutions."),
        (None, "Choose an institution, or all institutions."),
    ],
    ids=["wrong-case", "display-name", "unknown", "markup", "blank", "missing"],
)
async def test_pause_on_the_page_refuses_an_institution_that_does_not_exist(
    rig: BoardRig, institution: str | None, said: str
) -> None:
    """The page says what the command line says, keeps the other fields, chooses nothing by itself, and writes nothing."""
    await rig.run(1)
    where = {} if institution is None else {"institution": institution}
    refused = await rig.fill("/pause", scope="all", because="core migration", **where)
    assert refused.status_code == 400
    assert html.unescape(said) in html.unescape(refused.text)
    assert not re.search(r"<b>(?!in force)", refused.text)
    assert 'value="core migration"' in refused.text
    assert 'value="all" checked' in refused.text
    assert " selected" not in refused.text
    assert await rig.redis.hgetall(Keys().pause) == {}
    assert await rig.redis.llen(Keys().pause_history) == 0


async def test_pause_on_the_page_needs_no_list_for_all_institutions(rig: BoardRig) -> None:
    """Before anything is known every institution can be paused; a single one cannot, and the page says why."""
    refused = await rig.fill("/pause", scope="all", because="x", institution=KEY)
    assert (refused.status_code, "callkeeper knows no institution yet" in refused.text) == (400, True)
    assert (await rig.fill("/pause", scope="all", because="x", institution="*")).status_code == 303
    assert set(await rig.redis.hgetall(Keys().pause)) == {b"*"}


async def test_pause_on_the_page_does_not_weaken_another(rig: BoardRig) -> None:
    """A pause of everything is not replaced by one of effects; the page says whose it is."""
    assert (await rig.fill("/pause", scope="all", because="storm", institution="*")).status_code == 303
    refused = await rig.fill("/pause", scope="effects", because="drill", institution="*")
    assert (refused.status_code, "paused there already (by ann: storm)" in refused.text) == (409, True)


async def test_pausing_page_has_the_history(rig: BoardRig) -> None:
    """The page shows who paused what, when and why, and who resumed it; a resumption of nothing names what is paused."""
    await rig.run(1)
    await rig.fill("/pause", scope="effects", because="drill", institution=KEY)
    begun = f"{rig.clock.now:%Y-%m-%d %H:%M:%S} UTC"
    page = await rig.page("/pausing")
    assert "in force" in page
    assert page.count(begun) == 2, "beside the pause and in the history, each with its year"
    wrong = await rig.fill("/resume", because="over", institution="CU-1")
    assert (wrong.status_code, "did you mean cu-1 (First Example Credit Union)?" in wrong.text) == (409, True)
    rig.visitor.person = replace(ANN, operator="zoe")
    await rig.fill("/resume", because="all well", institution=KEY)
    page = await rig.page("/pausing")
    history = page[page.index("history-name") :]
    for told in ("cu-1 (First Example Credit Union)", "enrolls and rejects", "drill", "resumed by zoe: all well"):
        assert told in history
    assert "in force" not in history


async def test_pausing_page_resumes_the_pause_whose_link_was_followed(rig: BoardRig) -> None:
    """Of several pauses none is lifted by accident: the link beside one chooses it, without a link one has to choose."""
    await rig.run(1)
    await rig.fill("/pause", scope="effects", because="drill", institution=KEY)
    await rig.fill("/pause", scope="all", because="storm", institution="*")
    links = re.findall(r'href="/board(/pausing\?resume=[^"]+)"', await rig.page())
    assert links == ["/pausing?resume=%2A", f"/pausing?resume={KEY}"]
    assert f'<option value="{KEY}" selected>' in await rig.page(links[1])
    page = await rig.page("/pausing")
    assert " selected" not in page
    assert page.count('<option value="">choose …</option>') == 2


async def test_board_does_not_say_that_a_pause_of_nobody_holds_anything(rig: BoardRig) -> None:
    """A pause of an institution that does not exist is shown as one that holds no call; a real one with its live calls."""
    await rig.begin_call(END, run_s=3, is_pushed=False)
    asked = Pause(scope=PauseScope.EFFECTS, operator="jane", because="drill", at=rig.clock.now)
    await Pausing(rig.redis).pause("CU-1", asked)
    board = html.unescape(await rig.page())
    assert "A pause of CU-1 holds no call" in board
    assert "did you mean cu-1" in board
    assert "are paused" not in board
    await Pausing(rig.redis).pause("cu-1", asked)
    assert "Enrolls and rejects are paused</b>, cu-1 (First Example Credit Union), 1 live call." in await rig.page()


async def test_board_names_the_rules_in_force_and_since_when(rig: BoardRig, blocking_redis: BlockingRedis) -> None:
    """The digest that trails and the doctor name, as the workers noted it."""
    assert "<dt>Rules</dt>" not in await rig.page()
    noted = put_in_force(blocking_redis, Keys(), "0123456789ab", "rules.toml")
    assert f'">0123456789ab</a></b> since <time datetime="{noted.since.isoformat()}"' in html.unescape(await rig.page())


async def test_page_of_an_unknown_institution_names_the_nearest(rig: BoardRig) -> None:
    """An address with an institution that does not exist leads to the one that was meant."""
    await rig.run(1)
    assert "Did you mean cu-1" in await rig.page("/institutions/CU-1", 404)
    assert "Did you mean cu-1" in await rig.page("/calls/CU-1/v-1", 404)
    assert "Did you mean" not in await rig.page("/calls/cu-1/v-none", 404)


async def test_unresolved_effect_stands_on_top_and_is_closed_by_a_form(rig: BoardRig) -> None:
    """What nothing can prove is shown first, with what to do; a person's word closes it.

    "I have seen it" on a page that was opened before closes nothing, and answers no question in the form that is shown then.
    """
    call = await rig.begin_call(END, run_s=3, is_pushed=False)
    record = await rig.record(call)
    [call_id] = await rig.queries.find(call.voice_id)
    keys = Keys()
    unresolved = replace(
        record, ledger=replace(record.ledger, reject=Effect(state=EffectState.UNRESOLVED, sent_at=rig.clock.now))
    )
    await rig.redis.hset(keys.item(call_id.member), "rec", encode_call(unresolved))
    await rig.redis.hset(keys.attention, call_id.member, "reject unresolved")
    board = await rig.page()
    assert board.index("Reject unresolved") < board.index("Live calls of")
    seen = await rig.fill(f"{of(call)}/resolve", applied="false", seen="0")
    assert (seen.status_code, NOT_SHOWN in seen.text, 'value="false" checked' in seen.text) == (409, True, False)
    assert (await rig.fill(f"{of(call)}/resolve", applied="false", effect="reject")).status_code == 303
    await rig.run(5)
    assert (await rig.record(call)).ledger.reject.state is EffectState.ABSENT
    assert "Reject unresolved" not in await rig.page()


DESPITE = "voice_mismatch,high_risk_device"
NOT_SHOWN = "what needs a person here is not what this page showed"


async def see(rig: BoardRig, call: Call) -> httpx.Response:
    """Open a call's page and press "I have seen it"."""
    return await rig.fill(f"{of(call)}/resolve", applied="false", seen=shown_on(await rig.page(of(call))))


def shown_on(page: str) -> str:
    """Return what a call's page sends with "I have seen it"."""
    found = re.search(r'name="seen" value="([^"]+)"', page)
    assert found is not None
    return found[1]


async def test_word_against_evidence_is_asked_again(rig: BoardRig) -> None:
    """The page shows what is known before the click, and asks for it after the click; the audit log has both words."""
    script = Happening(Kind.MISMATCH, 2), Happening(Kind.HIGH_RISK, 2), Happening(Kind.END, 900)
    call = await rig.begin_call(*script, run_s=20, is_pushed=False)
    assert "Known of the caller: the voice does not match" in await rig.page(of(call))
    fields = {"person_id": "p-1", "validation_type": "OneTimePasswordAuth"}
    asked = await rig.fill(f"{of(call)}/verified", **fields)
    assert (asked.status_code, f'name="despite" value="{DESPITE}"' in asked.text) == (409, True)
    assert (await rig.fill(f"{of(call)}/verified", **fields, despite=DESPITE)).status_code == 303
    await rig.run(10)
    assert call.manual_person_id == "p-1"
    assert [entry.detail for entry in await rig.audited()] == [
        f"verified; refused for {DESPITE.replace(',', ', ')}",
        f"verified; despite {DESPITE.replace(',', ', ')}",
    ]


async def test_acknowledgement_closes_only_what_its_page_showed(rig: BoardRig) -> None:
    """The page showed a rule's question. Since then the service refused an enroll, which nobody has seen.

    A form that does not say what its page showed closes nothing either, and the answer shows the refusal.
    """
    rig.stage.sandbox.faults.add(Fault(target="enroll", action=Action.REFUSED))
    script = Happening(Kind.MISMATCH, 2), Happening(Kind.HIGH_RISK, 2), Happening(Kind.END, 900)
    call = await rig.begin_call(*script, run_s=20, is_pushed=False)
    question = shown_on(await rig.page(of(call)))
    await rig.fill(f"{of(call)}/verified", person_id="p-1", validation_type="OneTimePasswordAuth", despite=DESPITE)
    await rig.run(60)
    refused = await rig.queries.attention()
    assert list(refused.values()) == ["enroll refused by the service: … by a …."]
    for seen in ({"seen": question}, {}):
        answer = await rig.fill(f"{of(call)}/resolve", applied="false", **seen)
        assert (answer.status_code, NOT_SHOWN in answer.text) == (409, True)
        assert "Enroll refused by the service" in answer.text
        await rig.run(5)
        assert await rig.queries.attention() == refused
    assert (await see(rig, call)).status_code == 303
    await rig.run(5)
    assert await rig.queries.attention() == {}


async def test_acknowledgement_closes_nothing_that_a_worker_finds_meanwhile(rig: BoardRig) -> None:
    """The form is sent while a worker reads that the service has refused an enroll. The page says that it closed nothing."""
    rig.stage.sandbox.faults.add(Fault(target="enroll", action=Action.REFUSED))
    script = Happening(Kind.MISMATCH, 2), Happening(Kind.HIGH_RISK, 2), Happening(Kind.END, 900)
    call = await rig.begin_call(*script, run_s=20, is_pushed=False)
    fields, last = {"applied": "false", "seen": shown_on(await rig.page(of(call)))}, httpx.Response(0)

    async def look(request: httpx.Request) -> httpx.Response | None:
        nonlocal last
        enroll = (await rig.record(call)).ledger.enroll
        is_second = enroll.state is EffectState.UNKNOWN and enroll.attempts == 2
        if request.url.path.endswith("/details") and is_second:
            last = await rig.fill(f"{of(call)}/resolve", **fields)
        return None

    rig.mixed_up.inner = Wire(rig.mixed_up.inner, look)
    await rig.fill(f"{of(call)}/verified", person_id="p-1", validation_type="OneTimePasswordAuth", despite=DESPITE)
    await rig.run(60)
    assert last.status_code == 303
    assert list((await rig.queries.attention()).values()) == ["enroll refused by the service: … by a …."]
    page = await rig.page(last.headers["location"].removeprefix("/board"))
    assert "something that the page did not show needs a person here" in page


async def test_page_shows_all_that_its_form_closes(rig: BoardRig) -> None:
    """An enroll that was refused, and a rule that asks: what is closed was read."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    record = await rig.record(call)
    asked = Asked(rule="look", because="Is it really her?", asked_at=rig.clock.now)
    refused = Effect(state=EffectState.REFUSED, refusal="no voice", attempts=1, sent_at=rig.clock.now)
    both = replace(
        record,
        ledger=replace(record.ledger, enroll=refused),
        statements=replace(record.statements, asked=asked),
    )
    await rig.redis.hset(Keys().item(rig.call_id(call).member), "rec", encode_call(both))
    page = await rig.page(of(call))
    assert "It was not applied: no voice." in page
    assert "Rule “look” asks a person: Is it really her?" in page


async def test_caller_beside_another_one_stands_on_top_until_a_person_has_seen_it(rig: BoardRig) -> None:
    """The caller of another call is established as the same member: the page names that call."""
    call = await rig.begin_call(Happening(Kind.END, 10), run_s=60)
    assert (await rig.record(call)).is_settled
    await rig.store.note(rig.call_id(call), SameMember(voice_id="v-2"), even_settled=True)
    await rig.run(5)
    assert "same_member_live" in await rig.page()
    assert "The other call is v-2." in await rig.page(of(call))
    assert (await see(rig, call)).status_code == 303
    await rig.run(5)
    assert "same_member_live" not in await rig.page()


async def test_voice_enrolled_as_another_member_stands_on_top_and_is_closed_by_a_form(rig: BoardRig) -> None:
    """Somebody changes the member after the enroll: the page says what to do, until a person has seen it."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    await rig.fill(f"{of(call)}/verified", person_id="p-1", validation_type="OneTimePasswordAuth")
    await rig.run(5)
    rig.stage.happen(call, Kind.CLAIMED, "agent-9", "p-2")
    await rig.run(60)
    assert "Enrolled as another member" in await rig.page()
    page = await rig.page(of(call))
    assert "Voice enrolled as another member&#39;s" in page
    assert "have the voiceprint removed" in page
    assert (await see(rig, call)).status_code == 303
    await rig.run(5)
    assert "Enrolled as another member" not in await rig.page()
    assert "have the voiceprint removed" not in await rig.page(of(call))


@pytest.mark.parametrize("body", [None, '{"success": true, "phoneCall": {"status": 5}}'], ids=["500", "unreadable"])
async def test_call_whose_details_always_fail_stands_on_top(rig: BoardRig, body: str | None) -> None:
    """Those of others can be read. Nobody can decide it, and it costs no check and two or three reads a minute.

    A person's word waits for a read, too: the page does not say that something is about to happen.
    """
    others = [rig.stage.call(Happening(Kind.END, 900)) for _ in range(2)]
    call = await rig.begin_call(Happening(Kind.END, 900), run_s=5, is_pushed=False)
    status = 200 if body else 500
    failing = Fault(target="details", action=Action.ANSWER, voice_id=call.voice_id, status=status, body=body)
    rig.stage.sandbox.faults.add(failing)
    await rig.fill(f"{of(call)}/distrusted", reason="impostor")
    await rig.run(30)
    assert "Details cannot be read" not in await rig.page()
    await rig.run(90)
    assert "Details cannot be read" in await rig.page()
    assert of(call) in await rig.page(f"/calls?state={NEEDS_PERSON}")
    assert await rig.redis.hvals(Keys().attention) == [UNREAD.encode()]
    used, met = (await rig.record(call)).plan.checks_used, failing.met
    await rig.run(300)
    assert ((await rig.record(call)).plan.checks_used, failing.met - met <= 14) == (used, True)
    assert all([(await rig.record(other)).plan.reads_failed == 0 for other in others])
    rig.stage.sandbox.faults.clear()
    await rig.run(40)
    assert "Details cannot be read" not in await rig.page()
    assert not await rig.redis.hvals(Keys().attention)
    assert rig.ledger(call)["reject_voice"] == 1


async def test_what_a_rule_asks_stands_on_top_until_somebody_has_seen_it(rig: BoardRig) -> None:
    """The board shows the rule and its sentence, the call's page a form that closes it; nothing is sent."""
    ask = Rule("another voice", (("voice_mismatch", True),), Outcome.ASK, "Is it really her?")
    book = with_fields(rig.book, rules=(ask, *rig.book.rules))
    rig.shift.tools = with_fields(rig.tools, book=book)
    call = await rig.begin_call(Happening(Kind.MISMATCH, 2), END, run_s=20, is_pushed=False)
    board = html.unescape(await rig.page())
    assert "Rule 'another voice' asks a person about a call" in board
    assert "Is it really her? Nothing is sent." in board
    assert "Rule “another voice” asks a person" in await rig.page(of(call))
    assert (await see(rig, call)).status_code == 303
    await rig.run(5)
    assert "Rule 'another voice' asks" not in html.unescape(await rig.page())
    assert "“another voice” asks" not in await rig.page(of(call))
    record = await rig.record(call)
    assert record.statements.asked is not None
    assert record.statements.asked.closed_by == "ann"


async def test_card_of_the_calls_on_which_a_rule_asks_leads_to_the_list_of_these(rig: BoardRig) -> None:
    """Two calls on which it asks are one card; the list behind it has both of them, and not the one that is only held."""
    ask = Rule("another voice", (("voice_mismatch", True),), Outcome.ASK, "Is it really her?")
    rig.shift.tools = with_fields(rig.tools, book=with_fields(rig.book, rules=(ask, *rig.book.rules)))
    asked = [await rig.begin_call(Happening(Kind.MISMATCH, 2), END, run_s=1, is_pushed=False) for _ in range(2)]
    other = await rig.begin_call(END, run_s=20, is_pushed=False)
    board = await rig.page()
    found = re.search(
        r'<a href="/board/(calls\?[^"]+)">Rule &#39;another voice&#39; asks a person about 2 calls', board
    )
    assert found is not None
    listed = await rig.page("/" + html.unescape(found[1]))
    assert [of(call) in listed for call in (*asked, other)] == [True, True, False]


async def test_sample_is_shown_at_once(rig: BoardRig) -> None:
    """A sample from the service's dashboard proves that the endpoint works; the board says so, and touches nothing."""
    assert "Push endpoint" not in await rig.page()
    await rig.push(rig.stage.call(), is_test=True)
    page = await rig.page()
    assert "sample received at" in page
    assert "Push endpoint" in page


async def find(rig: BoardRig, text: str) -> httpx.Response:
    """Send what is typed into the field on top of every page."""
    return await rig.browser.post("/board/find", data={"q": text, "zone": "0"})


async def test_find_leads_to_a_call_by_either_id(rig: BoardRig) -> None:
    """Either id leads to the call's page, another one is answered in words."""
    call = await rig.begin_call(END, run_s=3)
    for voice_id in (call.voice_id, call.alternate_id):
        answer = await find(rig, str(voice_id))
        assert (answer.status_code, answer.headers["location"]) == (303, f"/board{of(call)}")
    nobody = await find(rig, "nobody-at-all")
    assert (nobody.status_code, "No call is known" in nobody.text) == (404, True)


async def test_find_lists_calls_by_what_an_operator_has(rig: BoardRig) -> None:
    """Digits, a number in any notation, a name, a person id, a beginning, an institution, a time, a state: also together."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    record = await rig.find(call.voice_id)
    assert record is not None
    began = record.life.started_at
    assert began is not None
    at = f"{began:%H:%M}"
    digits = PHONE[-4:]
    whole = f"+1 ({PHONE[:3]}) {PHONE[3:6]}-{PHONE[6:]}"
    known = (digits, whole, PHONE, "ada", "p-1", call.voice_id[:6], "first example", KEY, f"around {at}", "watching")
    for text in (*known, f"{digits} {KEY} {at}"):
        answer = await find(rig, text)
        assert (answer.status_code, of(call) in answer.text) == (200, True), text
        assert f'value="{text}"' in answer.text, "the query is kept"
        assert "Ada Example" in answer.text, "calls of the same digits are told apart by the member"
    for text in (
        "9999",
        "+44 20 7946 0958",
        "bob",
        "p-77",
        "around 03:33" if at[:2] != "03" else "around 12:33",
        "rejected",
    ):
        assert (await find(rig, text)).status_code == 404, text
    opened = await rig.browser.get("/board/find")
    assert (opened.status_code, 'class="problem"' in opened.text) == (200, False), "nobody has typed anything wrong yet"
    assert "Type what you know of the call." in (await find(rig, "")).text


NO_PAGE, NO_CALL = "There is no such page.", "No call of this institution has this id."


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/calls/cu-1/nobody", NO_CALL),
        ("/calls/x%0a/yyyy", NO_CALL),
        ("/institutions/nowhere", NO_PAGE),
        ("/static/..%2fboard.py", NO_PAGE),
        ("/static/xyzzy", NO_PAGE),
        ("/xyzzy", NO_PAGE),
    ],
)
async def test_board_has_nothing_by_another_name(path: str, words: str, rig: BoardRig) -> None:
    """What does not exist is a 404 that says nothing of it, and leads back; of a call it says how to find it."""
    page = await rig.page(path, 404)
    assert words in page
    assert ("Search for it above" in page) == (words == NO_CALL)
    assert path.rpartition("/")[2] not in page.partition("<main")[2].replace("nothing", "")


async def test_refused_form_names_the_address_of_its_page(rig: BoardRig) -> None:
    """The page's script shows it in place of the form's, which answers only to a form."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    for path, own in (
        (f"{of(call)}/distrusted", f"{of(call)}?do=distrusted"),
        ("/pause", "/pausing"),
        ("/outcomes/replay", "/outcomes"),
        ("/incidents/acknowledge", "/incidents"),
    ):
        refused = await rig.fill(path)
        assert refused.is_client_error
        assert f'data-own="/board{own}"' in refused.text
        assert "data-own" not in await rig.page(own)


async def test_address_of_a_form_says_where_its_call_is(rig: BoardRig) -> None:
    """Without the page's script a refused form leaves its address in the browser: it says to leave out the action."""
    answer = await rig.browser.get("/board/calls/cu-1/v-1/verified")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "without its last part" in answer.text


async def test_settled_calls_are_listed_with_what_they_came_to(rig: BoardRig) -> None:
    """The last calls that were closed can be looked up from the board."""
    call = await rig.begin_call(Happening(Kind.END, 5), run_s=20, is_pushed=False)
    assert 'href="/board/calls?state=settled"' in await rig.page()
    settled = await rig.page("/calls?state=settled")
    assert "Undecided" in settled.partition("<tbody>")[2]
    assert of(call) in settled


async def test_no_worker_is_an_alarm(rig: BoardRig) -> None:
    """Without workers nothing moves: that stands above all calls."""
    assert "No worker is alive" in await rig.page()
    await rig.redis.sadd("rq:workers:calls:2", "rq:worker:w1")
    await rig.redis.hset("rq:worker:w1", "state", "busy")
    assert "No worker is alive" in await rig.page(), "RQ keeps workers that were killed for minutes"
    await rig.writer.write_async(rig.redis)
    page = await rig.page()
    assert ("No worker is alive" in page, "<b>1</b> alive" in page) == (False, True)


async def test_frames_is_kept_up_to_date_while_somebody_looks(rig: BoardRig, logged: LogCapture) -> None:
    """Frames follow the feed while a page is open, and stop when nobody looks."""
    rig.desk.feed.start()
    call = await rig.begin_call(END, run_s=2, is_pushed=False)
    async with rig.frames.watching():
        frame = await rig.frames.next(0, 5)
        assert frame is not None
        assert frame.live == 1
        rig.stage.happen(call, Kind.GREEN)
        while not any(live.state.name is StateName.GREEN for group in frame.groups for live in group.calls):
            await rig.run(2)
            frame = await rig.frames.next(frame.n, 5) or frame
    rested = rig.frames.is_broken
    rig.frames.close()
    await rig.desk.feed.stop()
    assert rested
    assert [entry for entry in logged.entries if entry["event"] == "board_failed"] == []


async def test_frames_that_many_ask_for_are_made_once(rig: BoardRig) -> None:
    """Whoever asks while a frame is made gets the next one, all of them the same: hundreds cost as much as two."""
    await rig.begin_call(END, run_s=5, is_pushed=False)
    first = asyncio.create_task(rig.frames.frame())
    for _ in range(2):  # no longer, or the frame may be made meanwhile
        await asyncio.sleep(0)
    assert rig.frames._turn.locked()
    later = [asyncio.create_task(rig.frames.frame()) for _ in range(50)]
    await asyncio.sleep(0)
    later[0].cancel()
    assert (await first).n == 1
    assert {frame.n for frame in await asyncio.gather(*later[1:])} == {2}
    assert (await rig.frames.frame()).n == 3


async def test_frames_goes_on_where_no_call_is_live(rig: BoardRig) -> None:
    """Before the first call a sample is all there is to see, and it is seen."""
    async with rig.frames.watching():
        frame = await rig.frames.next(0, 5)
        assert frame is not None
        assert frame.live == 0
        await rig.push(rig.stage.call(), is_test=True)
        while frame.context.pushes.last_sample is None:
            following = await rig.frames.next(frame.n, 5)
            assert following is not None, "no further frame"
            frame = following


async def test_frames_ends_when_the_process_does(rig: BoardRig) -> None:
    """Whoever watches is let go when the process is told to end."""
    async with rig.frames.watching():
        assert await rig.frames.next(0, 5) is not None
        rig.frames.close()
        assert await rig.frames.next(99, 5) is None
        assert rig.frames.is_broken


async def test_board_without_redis_says_so(rig: BoardRig, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open board keeps what it knew and says that it is old; a new one is told to come again."""

    async def refused(*_: object) -> NoReturn:
        raise RedisConnectionError

    async def away() -> None:
        monkeypatch.setattr(redis.connection_pool, "get_connection", refused)
        await redis.connection_pool.disconnect()

    call = await rig.begin_call(END, run_s=3, is_pushed=False)
    rig.desk.feed.start()
    async with rig.frames.watching():
        frame = await rig.frames.next(0, 5)
        await away()
        while frame is not None and not frame.is_stale:
            frame = await rig.frames.next(frame.n, 5)
        assert frame is not None
        assert frame.live == 1, "what was known is still shown"
        monkeypatch.undo()
        assert frame.alarms[0].title == "Redis does not answer", "a board that knows nothing says no calm word"
        while frame is not None and frame.is_stale:
            frame = await rig.frames.next(frame.n, 5)
    await rig.desk.feed.stop()
    await away()
    for path in ("/board", f"/board{of(call)}"):
        answer = await rig.browser.get(path)
        assert (answer.status_code, answer.headers["refresh"]) == (503, "5")


async def test_form_cannot_enroll_the_wrong_person(rig: BoardRig) -> None:
    """Of two candidates none is chosen for anybody, somebody else may be named, and how it was verified has to be said."""
    rig.stage.world.add_member(KEY, "p-2", [PHONE], first_name="Bea", last_name="Example")
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    page = await rig.page(of(call))
    assert page.count('<option value="">choose …</option>') == 2 + 1, "the person in two forms, and the method"
    assert "selected" not in page
    refused = await rig.fill(f"{of(call)}/verified", person_id="p-2", notes="by letter")
    assert (refused.status_code, "Choose how the caller was verified" in refused.text) == (400, True)
    assert 'value="p-2" selected' in refused.text
    assert 'value="by letter"' in refused.text
    nobody = await rig.fill(f"{of(call)}/assign", person_id="?")
    assert (nobody.status_code, "Type the person id" in nobody.text) == (400, True)
    both = await rig.fill(f"{of(call)}/assign", person_id="p-1", other_person_id="p-9")
    assert (both.status_code, 'value="p-9"' in both.text) == (400, True)


async def test_verified_assigns_a_caller_whom_nobody_is_assigned_to(rig: BoardRig) -> None:
    """Whoever verified the caller does not have to assign first: one form, one assign, one enroll for that person."""
    rig.stage.world.add_member(KEY, "p-2", [PHONE], first_name="Bea", last_name="Example")
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    said = await rig.fill(f"{of(call)}/verified", person_id="p-2", validation_type="OneTimePasswordAuth")
    assert said.status_code == 303, said.text
    await rig.run(12)
    assert (rig.ledger(call)["assign"], rig.ledger(call)["enroll"]) == (1, 1)
    record = await rig.queries.load((await rig.queries.find(call.voice_id))[0])
    assert record is not None
    assert record.seen.person_id == "p-2"


async def test_distrust_has_to_be_confirmed(rig: BoardRig) -> None:
    """It says what it does, and a submission without the tick changes nothing and keeps the reason."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    assert "their voice is then no longer enrolled" in await rig.page(of(call))
    refused = await rig.browser.post(
        f"/board{of(call)}/distrusted",
        data={FORM_FIELD: rig.tokens.issue(), "reason": "another voice"},
    )
    assert (refused.status_code, 'value="another voice"' in refused.text) == (400, True)
    await rig.run(3)
    assert rig.ledger(call).get("reject", 0) == 0


async def test_institution_page_shows_its_own_alarms(rig: BoardRig) -> None:
    """An alarm of another institution is on the board, not on this one's page; what stops everything is on both."""
    now_ms = rig.now_ms()
    await rig.begin_call(END, run_s=5, is_pushed=False)
    await rig.redis.hset(Keys().breakers, "cu-2", f"5 {now_ms} {now_ms} failure")
    assert "The service fails for an institution" in await rig.page()
    assert "The service fails for an institution" not in await rig.page(f"/institutions/{KEY}")
    assert "No worker is alive" in await rig.page(f"/institutions/{KEY}")


async def test_call_page_says_what_keeps_its_call_from_moving(rig: BoardRig) -> None:
    """What is wrong everywhere, or at its institution, stands on a call's page too: an action would wait for it."""
    now_ms, call = rig.now_ms(), rig.stage.call(END)
    await rig.run(5)
    page = await rig.page(of(call))
    assert "No worker is alive" in page
    assert "Nothing needs a person" not in page
    await rig.redis.hset(Keys().breakers, mapping=dict.fromkeys(("cu-2", KEY), f"5 {now_ms} {now_ms} failure"))
    assert (await rig.page(of(call))).count("The service fails for an institution") == 1
