"""Why Redis refuses writes is named, wherever the refusal is met."""

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from callkeeper.app.cli import main
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.writable import REFUSALS, WriteRefusal, refusal_of
from tests.waiting import until_async

COMMANDS = {"full": ("CONFIG", "SET", "maxmemory", "1"), "rights": ("ACL", "SETUSER", "default", "-evalsha")}
"""What makes Redis refuse."""


@pytest.fixture(params=COMMANDS)
def refusing(request: pytest.FixtureRequest, redis_url: str) -> Iterator[WriteRefusal]:
    """Let the server refuse what we write, for one reason."""
    with BlockingRedis.from_url(redis_url) as redis:
        client: Any = redis
        client.execute_command(*COMMANDS[request.param])
        try:
            yield WriteRefusal(request.param)
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+@all")
            client.config_set("maxmemory", 0)


@pytest.fixture
def kept_busy(redis_url: str) -> Iterator[None]:
    """Let a script run on the server until the test ends."""
    with BlockingRedis.from_url(redis_url) as redis, BlockingRedis.from_url(redis_url) as other:
        redis.config_set("lua-time-limit", 10)
        connection: Any = other.connection_pool.get_connection()
        connection.send_command("EVAL", "while true do end", 0)
        try:
            yield
        finally:
            redis.script_kill()
            with pytest.raises(ResponseError):  # the script has ended
                connection.read_response()
            redis.config_set("lua-time-limit", 5000)


@pytest.mark.usefixtures("kept_busy")
async def test_script_of_somebody_else_is_named_as_the_cause(redis: Redis) -> None:
    """F3: BUSY is not *its log says why*; the remedy ends the script."""
    await until_async(lambda: refusal_of(redis, Keys()))  # None until the script has begun
    assert await refusal_of(redis, Keys()) is WriteRefusal.BUSY


async def test_refusal_is_named(refusing: WriteRefusal, redis: Redis) -> None:
    """C3: a full Redis, and a user without the right to run our scripts: readiness, board and doctor say so."""
    assert await refusal_of(redis, Keys()) is refusing


def test_command_names_the_refusal(refusing: WriteRefusal, redis_url: str) -> None:
    """A command that Redis refuses says why, and what to do."""
    command = ["pause", "--reason", "a test", "--operator", "ops"]
    result = CliRunner().invoke(main, command, env={"REDIS_URL": redis_url})
    words = REFUSALS[refusing]
    assert (result.exit_code, f"{words.what}. {words.advice}" in result.output) == (1, True), result.output


def test_command_with_a_wrong_password_names_the_setting(redis_url: str) -> None:
    """Redis is running and refuses the login: what is wrong is the password in ``REDIS_URL``."""
    url = redis_url.replace("redis://", "redis://nobody:wrong-password@")
    result = CliRunner().invoke(main, ["calls", "list"], env={"REDIS_URL": url})
    assert "refuses the login. Correct user and password in REDIS_URL" in result.output
    assert "wrong-password" not in result.output
