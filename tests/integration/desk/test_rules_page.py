"""The page of rules over a whole callkeeper: text, hits, history, and what changed."""

import html

import pytest
from msgspec.structs import replace
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.rules_in_force import put_in_force
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.desk import BoardRig
from tests.signed_in import ANN

OLD, NEW = load_rules("watch-only"), load_rules("default")


@pytest.fixture
def rig(begun_now: None, board_rig: BoardRig, blocking_redis: BlockingRedis) -> BoardRig:
    """Return a board after the rules were changed once."""
    put_in_force(blocking_redis, Keys(), OLD.digest, "rules/old.toml", OLD.text, host="worker-1", release="0.3.9")
    put_in_force(blocking_redis, Keys(), NEW.digest, "rules/new.toml", NEW.text, host="worker-2", release="0.4.0")
    return board_rig


async def test_rules_in_force_are_shown_with_their_hits(rig: BoardRig) -> None:
    """The text, who started first with it and when, and how often each rule decided today."""
    await rig.begin_call(Happening(Kind.GREEN, 5), Happening(Kind.END, 60), run_s=90, is_pushed=False)
    await rig.counted()
    page = html.unescape(await rig.page("/rules"))
    for shown in (NEW.digest, "rules/new.toml", "worker-2", "0.4.0", OLD.digest, "worker-1", NEW.text.decode()):
        assert shown in page
    row = page[page.index("<b>authenticated</b>") :]
    assert row[row.index('<td class="n first">') :].startswith('<td class="n first">1</td>')


async def test_rules_of_a_digest_are_a_link_away(rig: BoardRig) -> None:
    """The board's digest leads to the page; earlier rules are shown as not in force; an unknown digest is no page."""
    assert f'href="/board/rules">{NEW.digest}</a>' in await rig.page()
    old = html.unescape(await rig.page(f"/rules?digest={OLD.digest}"))
    assert "These are not in force." in old
    assert OLD.text.decode() in old
    await rig.page("/rules?digest=%3Cscript%3E", 404)


async def test_rules_that_this_release_cannot_read_are_shown_as_text(
    rig: BoardRig, blocking_redis: BlockingRedis
) -> None:
    """A text of another release is shown; a digest without a text says so."""
    put_in_force(blocking_redis, Keys(), "ffff", "later.toml", b'[later]\n<b>new</b> = "1"\n')
    page = await rig.page("/rules")
    assert "cannot read these rules" in page
    assert "&lt;b&gt;new" in page
    put_in_force(blocking_redis, Keys(), "eeee", "lost.toml")
    assert "text of these rules is not kept" in await rig.page("/rules")


async def test_processes_with_other_rules_are_named(rig: BoardRig, redis: Redis) -> None:
    """A process that uses other rules than those in force is named with its machine."""
    author = Author("worker-7-123-abcd", "worker", "0.3.9", OLD.digest)
    await FigureWriter(Figures(), author, now_ms=rig.now_ms).write_async(redis)
    page = await rig.page("/rules")
    assert "1 process uses other rules" in page
    assert "worker on worker-7" in page


async def test_rules_before_the_first_worker_are_the_web_process_s(rig: BoardRig, redis: Redis) -> None:
    """A new installation shows the rules that the web process has read, and that no worker has started."""
    await redis.delete(Keys().rules, Keys().rules_history, Keys().rules_texts)
    page = await rig.page("/rules")
    assert "No worker has started with rules yet" in page
    assert NEW.digest in page


async def test_board_of_a_limited_person_does_not_link_to_the_rules(rig: BoardRig) -> None:
    """Rules name institutions: who is limited to some gets the digest without a link."""
    rig.visitor.person = replace(ANN, institutions=frozenset({"cu-1"}))
    page = await rig.page()
    assert NEW.digest in page
    assert "/board/rules" not in page
