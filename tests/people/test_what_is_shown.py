"""What the board's pages, streams and search show to viewers and to people limited to some institutions."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from callkeeper.calls.pause import EVERYWHERE, Pause, PauseScope
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_listing import Standing
from callkeeper.calls.store.pausing import Pausing
from callkeeper.desk.access.rights import Role
from callkeeper.desk.signed_tokens import FORM_FIELD
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.desk import BoardRig, of
from tests.harness.virtual_time import KEY, PHONE
from tests.signed_in import ANN

END = Happening(Kind.END, 300)
VIEWER = replace(ANN, id="vera", operator="", role=Role.VIEWER)
ELSEWHERE = replace(ANN, institutions=frozenset({"cu-2"}))


@pytest.fixture
def rig(board_rig: BoardRig) -> BoardRig:
    """Return a board with the shipped rules."""
    return board_rig


async def streamed(rig: BoardRig, path: str) -> str:
    """Return the first events of a stream."""
    events = rig.board._streams.of_board(path or None, rig.visitor.person)
    found = b""
    async for event in events:
        found += event
        if b"event: updates" in found:
            break
    await events.aclose()
    return found.decode()


async def find(rig: BoardRig, text: str) -> int:
    """Search for calls; return the status."""
    return (await rig.browser.post("/board/find", data={"q": text})).status_code


async def test_viewer_sees_no_names_and_no_numbers(rig: BoardRig) -> None:
    """Pages, streams and search show a viewer no caller's name or number, and no operator's name or reason."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    await rig.fill(f"{of(call)}/distrusted", reason="the voice of Mrs Canary")
    pause = Pause(scope=PauseScope.EFFECTS, operator="ann", because="asked by Mrs Canary", at=rig.clock.now)
    await Pausing(rig.redis, keys=Keys()).pause(None, pause)
    await rig.run(2)
    hidden = ("Ada", "Example</", PHONE, PHONE[-4:], "Canary", ">ann", "(ann")
    assert "Ada" in await rig.page(of(call))
    for person, is_hidden in ((ANN, False), (VIEWER, True)):
        rig.visitor.person = person
        shown = [await rig.page(path) for path in ("", f"/institutions/{KEY}", of(call), "/calls")]
        events = [await streamed(rig, path) for path in ("", KEY)]
        seen = "".join([*shown, *events]).replace(call.voice_id, "")
        assert [text for text in hidden if text in seen] == ([] if is_hidden else [t for t in hidden if t in seen])
        assert any(text in seen for text in hidden) is not is_hidden
        statuses = [await find(rig, text) for text in (PHONE, PHONE[-4:], "Ada")]
        assert statuses == ([404] * 3 if is_hidden else [200] * 3)
    assert await find(rig, KEY) == 200


async def test_viewer_has_no_forms(rig: BoardRig) -> None:
    """Pages have only the forms that the role includes."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    rig.visitor.person = VIEWER
    for path in ("", f"/institutions/{KEY}", of(call)):
        page = await rig.page(path)
        assert FORM_FIELD not in page.partition("<main")[2], path
    rig.visitor.person = replace(ANN, role=Role.AGENT)
    assert f'action="/board{of(call)}/verified"' in await rig.page(of(call))
    assert FORM_FIELD not in (await rig.page(f"/institutions/{KEY}")).partition("<main")[2]


async def test_person_of_another_institution_sees_and_finds_nothing(rig: BoardRig) -> None:
    """A person of another institution gets the same answers as if the institution and its calls did not exist."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    await rig.fill("/pause", scope="effects", because="drill", institution=KEY)
    rig.visitor.person = ELSEWHERE
    seen = [await rig.page(path) for path in ("", "/pausing", "/outcomes", "/calls")]
    seen += [await streamed(rig, "")]
    for text in (KEY, "First Example", call.voice_id, "drill"):
        assert [text in each for each in seen] == [False] * 5, text
    for path in (of(call), f"/institutions/{KEY}"):
        hidden, missing = await rig.page(path, 404), await rig.page(path.replace(KEY, "cu-9"), 404)
        assert hidden.partition("<main")[2] == missing.partition("<main")[2]
    for text in (call.voice_id, PHONE, "Ada", KEY):
        assert await find(rig, text) == 404
    for path, fields in (
        (f"{of(call)}/check", {}),
        (f"/institutions/{KEY}/reconcile", {}),
        ("/pause", {"scope": "all", "because": "x", "institution": KEY}),
        ("/pause", {"scope": "all", "because": "x", "institution": EVERYWHERE}),
        ("/resume", {"because": "x", "institution": KEY}),
        ("/resume", {"because": "x", "institution": EVERYWHERE}),
    ):
        assert (await rig.fill(path, **fields)).status_code in {400, 403, 404, 409}, (path, fields)
    assert list((await Pausing(rig.redis, keys=Keys()).pauses()).by_institution) == [KEY]
    for query in (f"institution={KEY}", f"institution={KEY}&call={call.voice_id}"):
        assert (await rig.browser.get(f"/board/stream?{query}")).status_code == 404


async def test_incident_names_no_other_institution(rig: BoardRig) -> None:
    """An incident of several institutions, or of all, names the others to nobody who is limited to one."""
    now = await rig.store.now()
    asked: dict[str, Any] = {
        "status": "Active",
        "has_voice_auth": True,
        "told_at": now - timedelta(hours=1),
        "unanswered_at": now,
    }
    standings = {key: msgspec.json.encode(Standing(key=key, **asked)) for key in ("cu-2", "cu-3", "cu-4")}
    keys = Keys()
    await rig.redis.hset(keys.standings, mapping=standings)
    pause = Pause(scope=PauseScope.EFFECTS, operator="ann", because="drill", at=rig.clock.now)
    await Pausing(rig.redis, keys=keys).pause("cu-3", pause)
    [stored] = await rig.redis.hvals(keys.pause)
    replaced = {"at": now.timestamp() * 1000, "is_empty": "0", "place:cu-4": "", "again:cu-3": stored}
    await rig.redis.hset(keys.pauses_restored, mapping=replaced)
    for person, others in ((ANN, True), (ELSEWHERE, False)):
        rig.visitor.person = person
        shown = [await rig.page(path) for path in ("", "/incidents", "/institutions/cu-2")]
        seen = [*shown, await streamed(rig, ""), await streamed(rig, "cu-2")]
        for each in seen:
            assert "Redis was replaced" in each
            assert "does not say whether an institution is active" in each
        assert [key for key in ("cu-3", "cu-4") if any(key in each for each in seen)] == ["cu-3", "cu-4"] * others
        alarms = await rig.board._incidents.of("cu-2", person.institutions)
        assert ("cu-3" in "".join(alarm.advice for alarm in alarms)) is others


async def test_agent_resolves_nothing(rig: BoardRig) -> None:
    """An agent is not offered to pause, which a supervisor may do."""
    rig.visitor.person = replace(ANN, role=Role.AGENT)
    page = await rig.page("/pausing")
    assert "A supervisor can pause and resume." in page
    assert 'action="/board/pause"' not in page
