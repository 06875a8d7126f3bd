"""Commands packed in C are the same bytes as redis-py's."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Connection, Redis

from callkeeper.app.connections import CommandPacking, with_command_packing

ARGUMENTS: st.SearchStrategy[list[Any]] = st.lists(
    st.text(st.characters(exclude_categories=["Cs"])) | st.binary() | st.integers() | st.floats(allow_nan=False),
    max_size=8,
)


@given(st.sampled_from(["EVALSHA", "SCRIPT LOAD", "CLIENT SETINFO LIB-NAME"]), ARGUMENTS)
def test_packing_writes_what_the_redis_client_writes(name: str, arguments: list[Any]) -> None:
    """Names of one word and of several, and arguments of every kind, become the same bytes."""
    ours, theirs = CommandPacking().pack_command(name, *arguments), Connection().pack_command(name, *arguments)
    assert b"".join(ours) == b"".join(theirs)


def test_packing_makes_one_piece_of_a_pipeline() -> None:
    """Commands of a pipeline leave in their order, in one write."""
    commands = [("SET", "a", 1), ("GET", "a")]
    assert CommandPacking().pack_commands(commands) == [b"".join(Connection().pack_commands(commands))]


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "rediss://127.0.0.1:1/0", "unix:///nowhere"])
async def test_packing_holds_for_every_kind_of_connection(url: str) -> None:
    """A client packs in C over TCP, TLS and sockets, and still is the kind of connection it was."""
    plain: Any = Redis.from_url(url)
    kind = plain.connection_pool.connection_class
    pool: Any = with_command_packing(plain).connection_pool
    connection = pool.make_connection()
    assert isinstance(connection, CommandPacking)
    assert isinstance(connection, kind)
