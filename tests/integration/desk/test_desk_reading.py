"""What the desk shows, and to whom; and what it does with requests that are none."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Listed
from callkeeper.calls.record import Call, Phase
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.attempt_limiter import ALLOWED
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.desk import DeskRig
from tests.harness.virtual_time import KEY
from tests.records import with_stored

END = Happening(Kind.END, 60)


@pytest.mark.parametrize("name", [None, "stranger"])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/calls"), ("GET", "/stream"), ("POST", "/tickets"), ("GET", "/calls/cu-1/v")]
)
async def test_desk_lets_nobody_in_without_a_token(desk: DeskRig, name: str | None, method: str, path: str) -> None:
    """Every address asks for the token first, whatever else is wrong, and answers everybody alike."""
    headers = {"Authorization": "Bearer nobody's"} if name else {}
    async with desk.client(None) as http:
        answer = await http.request(method, path, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_desk_refuses_unknown_parameters(desk: DeskRig) -> None:
    """A parameter that an address does not have, or one twice, is refused: a misspelt filter would show everything."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    path = f"/calls/{KEY}/{call.voice_id}"
    for method, address in (
        *(("GET", each) for each in ("/calls", "/stream", path, f"{path}/actions/x")),
        *(("POST", each) for each in ("/tickets", f"{path}/check")),
    ):
        body = {"operator": "x"} if address.endswith("check") else None
        answer = await desk.http.request(method, address, params={"institutions": KEY}, json=body)
        assert (answer.status_code, "institutions: is no parameter" in answer.text) == (400, True), address
        takes = "did you mean institution?" if address in {"/calls", "/stream"} else "which takes"
        assert takes in answer.json()["detail"], address
    assert (await desk.http.get("/calls?phase=live&phase=settled")).status_code == 400


async def test_get_of_an_actions_address_is_told_to_post(desk: DeskRig) -> None:
    """An action is sent with POST; what is no action, or is quoted into an id, is a call that does not exist."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    path = f"/calls/{KEY}/{call.voice_id}"
    answer = await desk.http.get(f"{path}/verified")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["code"] == "method_not_allowed"
    for other in (f"{path}/verify", f"{path}%2Fverified"):
        assert (await desk.http.get(other)).status_code == 404, other


async def test_desk_ignores_strangers_and_never_a_token(desk: DeskRig) -> None:
    """Beyond ten failures an address is told to wait; whoever brings a token from there is answered all the while."""
    async with desk.client(None) as http:
        answers = [await http.get("/calls", headers={"Authorization": f"Bearer {n}"}) for n in range(ALLOWED + 2)]
    assert [answer.status_code for answer in answers] == [401] * ALLOWED + [429] * 2
    assert (answers[-1].json()["code"], int(answers[-1].headers["retry-after"]) > 0) == ("too_often", True)
    assert (await desk.http.get("/calls")).status_code == 200


@pytest.mark.parametrize("voice_id", ["x/actions/y", "x/verified", "a?b=c#d", "%2e%2e", "..x/y", "100%", "ü/ß"])
async def test_desk_finds_a_call_by_whatever_id(desk: DeskRig, voice_id: str) -> None:
    """A11: a quoted id is one part of the address whatever it holds: it chooses no other endpoint, its call is found."""
    await desk.store.note(CallId(KEY, voice_id), Listed(listed_at=desk.clock.now, started_at=desk.clock.now))
    await desk.run(1)
    address = f"/calls/{KEY}/{quote(voice_id, safe='')}"
    assert (await desk.http.get(address)).json()["call"]["voice_id"] == voice_id
    said = await desk.http.post(f"{address}/check", json={"operator": "x"})
    assert said.json()["watch"].startswith(f"/desk{address}/actions/")


async def test_desk_hides_other_institutions(desk: DeskRig) -> None:
    """For a token that is limited to other institutions a call does not exist, in any list and under any address."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    async with desk.client("ivr") as http:
        assert (await http.get("/calls")).json() == {"calls": [], "next": None}
        for path in (f"/calls/{KEY}/{call.voice_id}", f"/calls/{KEY}/{call.voice_id}/actions/w"):
            assert (await http.get(path)).status_code == 404
        said = await http.post(f"/calls/{KEY}/{call.voice_id}/check", json={"operator": "x"})
        assert said.status_code == 404
        assert (await http.get("/stream", params={"institution": KEY})).status_code == 400


async def test_desk_lists_every_call_once_over_pages(desk: DeskRig) -> None:
    """Pages of any size put together are the list, in order, also for calls of the same millisecond."""
    for _ in range(7):
        desk.stage.call(END)
    await desk.run(5)
    whole = [call["voice_id"] for call in (await desk.http.get("/calls")).json()["calls"]]
    assert len(set(whole)) == len(whole) == 7
    paged: list[str] = []
    page: Any = {"next": ""}
    while page["next"] is not None:
        params = {"limit": 2} | ({"after": page["next"]} if page["next"] else {})
        page = (await desk.http.get("/calls", params=params)).json()
        paged += [call["voice_id"] for call in page["calls"]]
    assert paged == whole


async def test_next_page_names_no_call_of_another_institution(desk: DeskRig) -> None:
    """Where the next page begins tells nothing of others' calls that were passed, and no call is lost or twice for it."""
    keys = desk.store.keys
    at_ms = int(desk.clock.now.timestamp() * 1000)
    ours = [CallId("cu-2", f"v-{n:04d}") for n in range(4000)]
    theirs = [CallId(KEY, f"v-{n:04d}") for n in range(4000)]
    times = {each.member: at_ms + n // 2 for each_of in (ours, theirs) for n, each in enumerate(each_of)}
    await desk.redis.zadd(keys.live, times)
    wanted = {call_id.voice_id for call_id in ours[::200]}
    for call_id in ours[::200]:
        record = with_stored(Call(institution_key="cu-2", voice_id=call_id.voice_id), phase=Phase.LIVE)
        await desk.redis.hset(keys.item(call_id.member), "rec", encode_call(record))
    found: list[str] = []
    async with desk.client("ivr") as http:
        for order in ({"phase": "all"}, {}):
            page: Any = {"next": ""}
            found, pages = [], 0
            while page["next"] is not None:
                after = {"after": page["next"]} if page["next"] else {}
                page = (await http.get("/calls", params={"limit": 500} | order | after)).json()
                assert KEY not in (page["next"] or "")
                found += [call["voice_id"] for call in page["calls"]]
                pages += 1
            assert (sorted(found), pages > 1) == (sorted(wanted), True), order


async def test_desk_filters(desk: DeskRig) -> None:
    """Calls are found by either id, by number, by institution and by phase."""
    call = desk.stage.call(Happening(Kind.END, 8))
    other = desk.stage.call(END, phone_number="5550109999")
    await desk.push(call)
    await desk.run(20)

    async def found(**params: str) -> list[str]:
        answer = await desk.http.get("/calls", params=params)
        return [each["voice_id"] for each in answer.json()["calls"]]

    assert await found() == await found(phase="live") == await found(phone="5550109999") == [other.voice_id]
    assert await found(phase="settled", id=call.alternate_id) == [call.voice_id]
    (reason,) = {each["reason"] for each in (await desk.http.get("/calls?phase=settled")).json()["calls"]}
    assert await found(outcome=reason) == await found(state="settled") == [call.voice_id]
    assert (await desk.http.get("/calls?phone=x")).status_code == 400
    assert await found(institution=KEY) == [other.voice_id]


async def test_revision_tells_which_view_is_newer(desk: DeskRig) -> None:
    """However a call changes, a later view has a higher revision, and equal revisions are equal views."""
    call = desk.stage.call(Happening(Kind.MISMATCH, 4), Happening(Kind.GREEN, 12), Happening(Kind.END, 20))
    views = []
    for second in range(30):
        if second == 6:
            await desk.say(call, "distrusted", reason="x")
        await desk.run(1)
        listed = [
            each for page in ("/calls", "/calls?phase=settled") for each in (await desk.http.get(page)).json()["calls"]
        ]
        shown = await desk.show(call)
        assert listed == [shown]
        views.append(shown)
    revisions = [view["revision"] for view in views]
    assert revisions == sorted(revisions)
    assert len({json.dumps(view) for view in views}) == len(set(revisions)) > 3
    assert views[-1]["phase"] == "settled"


async def test_desk_refuses_to_filter_by_an_institution_that_does_not_exist(desk: DeskRig) -> None:
    """A mistyped institution is an error with the nearest that the token may see, never an empty list."""
    assert (await desk.http.get("/calls", params={"institution": "CU-1"})).status_code == 200, "no list is stored yet"
    await desk.run(1)
    for path in ("/calls", "/stream"):
        refused = await desk.http.get(path, params={"institution": "CU-1"})
        told = refused.json()
        assert (refused.status_code, told["code"]) == (400, "invalid")
        assert told["detail"] == "institution: is none of this token's; did you mean cu-1?"
    async with desk.client("ivr") as http:
        answers = [
            await http.get(path, params={"institution": key})
            for path in ("/calls", "/stream")
            for key in ("cu-1", "cu-9", "CU-1")
        ]
    assert {answer.json()["detail"] for answer in answers} == {"institution: is none of this token's"}


async def test_desk_refuses_an_institution_that_is_not_the_tokens_before_any_list_is_stored(desk: DeskRig) -> None:
    """That it is not the token's is known on a new installation, too: it is refused there in the same words."""
    async with desk.client("ivr") as http:
        answers = [await http.get(path, params={"institution": KEY}) for path in ("/calls", "/stream")]
    told = [(answer.status_code, answer.json()["detail"]) for answer in answers]
    assert told == [(400, "institution: is none of this token's")] * 2


async def test_desk_tells_the_story_in_words(desk: DeskRig) -> None:
    """A call is shown with everything that happened to it, and nothing of a caller that is kept nowhere."""
    call = await desk.begin_call(Happening(Kind.GREEN, 10), END, run_s=80, is_pushed=False)
    answer = await desk.http.get(f"/calls/{KEY}/{call.voice_id}")
    told = answer.json()
    assert (told["call"]["green"], told["call"]["reason"]) == (True, "authenticated")
    assert any("check" in line["text"] for line in told["story"])
    assert not {"ssn", "birth", "licence", "password"} & set(json.dumps(told).lower().split('"'))


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", {}, 400),
        (b"null", {}, 400),
        (b"[" * 100_000, {}, 413),
        (b"[" * 5000, {}, 400),
        (b'{"operator": " "}', {}, 400),
        (b'{"operator": "a\\n"}', {}, 400),
        (b'{"operator": ""}', {}, 400),
        (b'{"operator": "a", "more": 1}', {}, 400),
        (b'{"operator": "a", "operator": "b"}', {}, 400),
        (b'{"operator": "\xff"}', {}, 400),
        (b'{"operator": "a"}', {"Content-Type": "text/plain"}, 415),
        (b'{"operator": "a"}', {"Content-Encoding": "gzip"}, 415),
        (b'{"operator": "a"}', {"Idempotency-Key": "k" * 129}, 400),
    ],
)
async def test_desk_refuses_malformed_bodies(
    desk: DeskRig, content: bytes, headers: dict[str, str], status: int
) -> None:
    """What cannot be read exactly is refused with a fixed shape, and nothing of it is repeated."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    path = f"/calls/{KEY}/{call.voice_id}/check"
    answer = await desk.http.post(path, content=content, headers={"Content-Type": "application/json"} | headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


async def test_stream_has_only_the_calls_that_are_asked_for(desk: DeskRig) -> None:
    """A stream of one number or one id has that call's changes, and tells that it is gone only to whoever was told of it."""
    one, other = desk.stage.call(END), desk.stage.call(END, phone_number="5550109999")
    await desk.push(one)
    await desk.run(5)
    gone = CallId(KEY, "announced")
    await desk.redis.xadd(desk.store.keys.changes, {"member": gone.member})
    desk.desk.leave()  # so that the streams end once they have sent what was missed
    asked = {
        f"id={one.voice_id}": {one.voice_id},
        f"id={(one.alternate_id or '').upper()}": {one.voice_id},
        "phone=5550109999": {other.voice_id},
        "phone=555010999": set(),
        "id=announced": {"announced"},
        f"institution={KEY}": {one.voice_id, other.voice_id, "announced"},
    }
    for filters, expected in asked.items():
        stream = await desk.http.get(f"/stream?{filters}", headers={"Last-Event-ID": "0-0"})
        told = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: ")]
        assert {each["voice_id"] for each in told} == expected, filters


async def test_ticket_opens_one_stream(desk: DeskRig) -> None:
    """A ticket is good once: whoever finds it in a log later finds it worthless."""
    ticket = (await desk.http.post("/tickets")).json()["ticket"]
    desk.desk.leave()  # so that the stream ends at once
    async with desk.client(None) as http:
        first = await http.get("/stream", params={"ticket": ticket})
        assert (first.status_code, first.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert (await http.get("/stream", params={"ticket": ticket})).status_code == 401
        assert (await http.get("/stream", params={"ticket": "../x"})).status_code == 401


async def test_browsers_of_listed_origins_only_may_read(desk: DeskRig) -> None:
    """A page of a listed origin may use the desk; another one's browser is not told that it may."""
    for origin, allowed in (("https://agents.example", "https://agents.example"), ("https://evil.example", None)):
        answer = await desk.http.get("/calls", headers={"Origin": origin})
        assert answer.headers.get("access-control-allow-origin") == allowed


async def test_member_who_stood_on_a_call_for_a_while_finds_it(desk: DeskRig) -> None:
    """A fraudster tried p-1 before he was p-2. Whoever asks what he did as p-1 must find the call."""
    call = await desk.begin_call(Happening(Kind.END, 100), run_s=5, phone_number="5559999999", persons=[])
    for person_id in ("p-1", "p-2"):
        desk.stage.happen(call, Kind.CLAIMED, "zed", person_id)
        await desk.run(30)
    for phase in ("live", "settled"):
        for person_id in ("p-1", "p-2"):
            found = await desk.http.get("/calls", params={"phase": phase, "q": f"person:{person_id}"})
            assert [one["voice_id"] for one in found.json()["calls"]] == [call.voice_id], (phase, person_id)
        await desk.run(100)
