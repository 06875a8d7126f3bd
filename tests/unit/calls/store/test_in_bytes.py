"""The commands that we type are redis-py's, with its parameters."""

from inspect import Parameter, signature

import pytest
from redis.asyncio import Redis

from callkeeper.calls.store.in_bytes import RedisInBytes, in_bytes

COMMANDS = [name for name, value in vars(RedisInBytes).items() if callable(value) and not name.startswith("_")]


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_one_of_the_library_with_its_parameters(name: str) -> None:
    """What may be passed by name is called so there. An overloaded command shows only what it does at run time."""
    ours, theirs = signature(getattr(RedisInBytes, name)), signature(getattr(Redis, name))
    takes_any = any(one.kind is Parameter.VAR_KEYWORD for one in theirs.parameters.values())
    named = {one.name for one in ours.parameters.values() if one.kind is Parameter.KEYWORD_ONLY}
    assert takes_any or named <= theirs.parameters.keys()


def test_typed_client_is_the_same_object() -> None:
    """Typing costs nothing at run time."""
    redis = Redis()
    assert in_bytes(redis) is redis  # type: ignore[comparison-overlap]
