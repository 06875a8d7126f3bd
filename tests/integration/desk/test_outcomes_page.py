"""The page of outcomes over a whole callkeeper in virtual time: the delivery log, replays, tests."""

import asyncio
import html
import re
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.store.erasing import Eraser, Holds, Whose
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.courier import SECRET, Receiver, deliver, deliveries_of
from tests.harness.desk import BoardRig
from tests.harness.virtual_time import PHONE
from tests.sandbox_fixtures import Asgi
from tests.signed_in import ANN

END = Happening(Kind.END, 60)


class PageRig(BoardRig):
    """A board, a worker that posts outcomes, and a receiver."""

    def __init__(self, stage: Asgi, redis: Redis, jobs: BlockingRedis, log: FilteringBoundLogger) -> None:
        super().__init__(stage, redis, jobs, log, outbox=Keys().outbox)
        self.receiver = Receiver()
        self.deliveries = deliveries_of(self, self.receiver, "https://sink.example/secret-path")

    async def tick(self) -> int:
        """Move calls on, and send due outcomes."""
        return await super().tick() + await deliver(self.deliveries)

    async def press(self, form: str, **fields: str) -> str:
        """Send a form of the page while a worker works; return the page that it leads to."""
        pressed = asyncio.ensure_future(self.fill(f"/outcomes/{form}", **fields))
        while not pressed.done():
            self.stage.advance(0.1)
            await deliver(self.deliveries)
            await asyncio.sleep(0.01)
        answer = await pressed
        assert answer.status_code == 303, answer.text
        return await self.page(answer.headers["location"].removeprefix("/board"))


@pytest.fixture
async def rig(
    sandbox_asgi: Asgi, redis: Redis, blocking_redis: BlockingRedis, log: FilteringBoundLogger
) -> AsyncIterator[PageRig]:
    """Return a board whose workers post outcomes."""
    sandbox_asgi.begin_now()
    rig = PageRig(sandbox_asgi, redis, blocking_redis, log)
    async with rig.http, rig.browser:
        await rig.deliveries.attempts.announce(rig.deliveries.client.place)
        yield rig
    await rig.deliveries.client.aclose()


async def test_page_shows_each_attempt_and_nothing_of_the_member(rig: PageRig) -> None:
    """When, which outcome of which call, the answer, how long, when again; no number, no name, no path of the receiver."""
    rig.receiver.status = lambda: 503
    call = await rig.begin_call(Happening(Kind.GREEN, 5), END, run_s=10, is_pushed=False)
    page = await rig.page("/outcomes")
    for shown in (
        "call.authenticated",
        "not accepted: 503",
        f"/calls/{call.institution_key}/{call.voice_id}",
        "https://sink",
    ):
        assert shown in page
    for hidden in (PHONE, "Ada", "secret-path", SECRET):
        assert hidden not in page
    assert not re.search(rf"\b{PHONE[-4:]}\b", page), "four digits may stand in an id by chance"
    rig.receiver.status = lambda: 204
    await rig.run(80)
    assert "not accepted" in await rig.page("/outcomes?failed=1")
    assert "accepted: 204" not in await rig.page("/outcomes?failed=1")


async def test_replay_on_the_page_posts_one_message_again(rig: PageRig) -> None:
    """The button posts the same message again, and the page says what came of it."""
    await rig.begin_call(Happening(Kind.GREEN, 5), END, run_s=80, is_pushed=False)
    ids = re.findall(r'name="id" value="([^"]+)"', await rig.page("/outcomes"))
    assert len(ids) == 2
    page = await rig.press("replay", id=html.unescape(ids[-1]))
    assert rig.receiver.ids[2:] == [html.unescape(ids[-1])]
    assert "this one" in page
    assert "replay" in page


async def test_page_replays_everything_that_failed(rig: PageRig) -> None:
    """Undelivered messages are tried now, without waiting for their next attempt."""
    rig.receiver.status = lambda: 400
    await rig.begin_call(Happening(Kind.GREEN, 5), END, run_s=80, is_pushed=False)
    rig.receiver.status = lambda: 204
    page = await rig.press("replay-failed", since="24h")
    assert "of 1 call are tried now" in page
    rig.stage.advance(1)
    await deliver(rig.deliveries)
    assert [message["type"] for message in rig.receiver.taken] == ["call.authenticated", "call.settled"]


async def test_page_sends_a_test(rig: PageRig) -> None:
    """A test is posted at once, and its line is marked."""
    page = await rig.press("test")
    assert [message["type"] for message in rig.receiver.taken] == ["callkeeper.test"]
    assert "accepted: 204" in page
    assert "this one" in page


async def test_forms_of_the_page_refuse_what_they_must(rig: PageRig) -> None:
    """Without a token nothing is posted; nor a message that nobody knows, nor where nobody posts: the page says why."""
    foreign = await rig.browser.post("/board/outcomes/test", data={"x": "y"})
    assert foreign.status_code == 403
    for name in ("nonsense", "c:cu-1:v-none.0.settled", "c::test.0.settled", "<script>"):
        refused = await rig.fill("/outcomes/replay", id=name)
        assert (refused.status_code, "<script>alert" in refused.text) == (404, False)
    assert (await rig.fill("/outcomes/replay-failed", since="1y")).status_code == 400
    await rig.redis.delete(Keys().outbox.receiver)
    assert (await rig.fill("/outcomes/test")).status_code == 409
    assert "CALLKEEPER_OUTCOME_URL" in await rig.page("/outcomes")
    assert rig.receiver.seen == 0


async def test_page_shows_what_was_answered(rig: PageRig) -> None:
    """The beginning of each answer, without secrets and as text; nothing of the payload, the caller or the address."""
    rig.receiver.status, rig.receiver.text = lambda: 503, "busy <b>now</b>, key whsec_Y2FuYXJ5LXdvcmtlci0wMTIz"
    await rig.begin_call(Happening(Kind.GREEN, 5), END, run_s=20, is_pushed=False)
    rig.receiver.status, rig.receiver.text = lambda: 200, "taken"
    await rig.run(60)
    raw = await rig.page("/outcomes")
    page = html.unescape(raw)
    for shown in ("not accepted: 503", "busy <b>now</b>, key ***", "accepted: 200", "taken"):
        assert shown in page
    assert "<b>now" not in raw
    for hidden in ("whsec_", "v1,", SECRET, PHONE, "Ada", "secret-path"):
        assert hidden not in page


async def test_attempts_of_another_institution_are_not_shown(rig: PageRig) -> None:
    """Nor are tests, to who does not see all institutions."""
    await rig.begin_call(Happening(Kind.GREEN, 5), END, run_s=80, is_pushed=False)
    await rig.press("test")
    rig.visitor.person = replace(ANN, institutions=frozenset({"cu-2"}))
    assert "Nothing was posted" in await rig.page("/outcomes")


async def test_erasing_a_person_deletes_what_was_answered(rig: PageRig) -> None:
    """A receiver may answer anything, also a name: what it said about the erased person's calls goes, the attempts stay."""
    rig.receiver.text = "unknown member Ada"
    rig.receiver.status = lambda: 200
    await rig.begin_call(Happening(Kind.GREEN, 5), END, run_s=80, is_pushed=False)
    before = await rig.deliveries.attempts.read()
    assert {attempt.answer for attempt in before} == {"unknown member Ada"}
    eraser = Eraser(rig.redis, keys=Keys())
    for person_id, answers in (("p-2", {"unknown member Ada"}), ("p-1", {""})):
        await eraser.erase(Whose("cu-1", person_id), holds=Holds())
        after = await rig.deliveries.attempts.read()
        assert {attempt.answer for attempt in after} == answers
        assert [attempt.id for attempt in after] == [attempt.id for attempt in before]
