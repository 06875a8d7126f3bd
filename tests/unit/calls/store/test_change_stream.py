"""The stream of changes."""

import pytest
from fakeredis import FakeAsyncRedis

from callkeeper.calls.store.change_stream import START, Changes, is_position, order
from callkeeper.calls.store.keys import Keys


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("0-0", True), ("12-3", True), ("12", False), ("1-2-3", False), ("\u0661-1", False)],
)
def test_position_has_its_form(text: str, is_one: bool) -> None:
    """It comes from a client."""
    assert is_position(text) is is_one


def test_positions_are_compared_as_numbers() -> None:
    """Not as texts."""
    assert order("9-10") > order("9-9") > order("8-99")


async def test_entries_after_a_position_are_read_in_order(fake_redis: FakeAsyncRedis) -> None:
    """And it is known whether any are missing."""
    changes = Changes(fake_redis)
    assert await changes.last() == START
    assert await changes.holds_all_since(START)
    assert not await changes.holds_all_since("1-0"), "Redis lost what there was"
    for n in range(1, 4):
        await fake_redis.xadd(Keys().changes, {"member": f"c:cu-1:v-{n}"}, id=f"{n}-0")
    assert await changes.last() == "3-0"
    assert await changes.between("1-0", "3-0") == [("2-0", "c:cu-1:v-2"), ("3-0", "c:cu-1:v-3")]
    assert await changes.wait("2-0", for_ms=1) == [("3-0", "c:cu-1:v-3")]
    assert await changes.holds_all_since("3-0")
    assert not await changes.holds_all_since("4-0")
