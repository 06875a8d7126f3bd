"""Queries to Redis from the command line. Wrong settings and connection errors become one line, not a traceback."""

import asyncio
import os
import platform
import pwd
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import click
from msgspec.structs import replace
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.exceptions import RedisError

from callkeeper.app.connections import blocking_redis, worker_redis
from callkeeper.app.environment import SettingsWrong
from callkeeper.app.redis_failure import redis_failure
from callkeeper.app.settings import StoreSettings
from callkeeper.app.terminal import Failed, say
from callkeeper.calls.call_query import parse_span
from callkeeper.calls.record_storage import NewerRecord
from callkeeper.calls.store.audit_log import AuditEntry, AuditEvent, AuditLog
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.migrating import Migration, NotMigrated
from callkeeper.calls.store.queries import Queries

T = TypeVar("T")

COMMAND: Final = "command"
"""The user name of commands in the audit log."""


def query_redis(question: Callable[[Redis, Keys], Awaitable[T]]) -> T:
    """Run a query; ``question`` gets a client and the names of our keys.

    Raises:
        SettingsWrong: The settings that lead to Redis are incomplete or wrong.
        Failed: Redis does not answer, has data of an older release, or a newer release wrote the call's record.
    """
    settings = StoreSettings.load(os.environ)
    query_jobs(lambda _redis, _keys: None)

    async def ask() -> T:
        async with worker_redis(settings.redis) as redis:
            return await question(redis, settings.keys)

    try:
        return asyncio.run(ask())
    except NewerRecord as error:
        raise Failed(f"the call's record cannot be read: {error}") from None
    except RedisError as error:
        raise _unanswered(settings, error) from None


async def redis_now(redis: Redis) -> datetime:
    """Return the present by Redis's clock."""
    seconds, microseconds = await redis.time()
    return datetime.fromtimestamp(int(seconds), UTC).replace(microsecond=int(microseconds))


def query_jobs(question: Callable[[BlockingRedis, Keys], T], *, is_migrating: bool = False) -> T:
    """Run a query over a blocking connection that answers in bytes, as RQ needs it.

    Args:
        question: What is asked.
        is_migrating: Redis may have data of an older release.

    Raises:
        SettingsWrong: The settings that lead to Redis are incomplete or wrong.
        Failed: Redis does not answer, or has data of an older release.
    """
    settings = StoreSettings.load(os.environ)
    try:
        with blocking_redis(settings.redis) as redis:
            if not is_migrating:
                Migration(redis, settings.keys).require()
            return question(redis, settings.keys)
    except NotMigrated as error:
        raise Failed(*error.args) from None
    except RedisError as error:
        raise _unanswered(settings, error) from None


def _unanswered(settings: StoreSettings, error: RedisError) -> Failed:
    """Return the failure of a command whose Redis did not answer, or refused."""
    failure = redis_failure(settings.redis, error)
    return Failed(f"Redis at {settings.redis.address} {failure.what}. {failure.advice}")


async def note_command(
    redis: Redis, keys: Keys, event: AuditEvent, results: int | None = None, /, **parts: str
) -> None:
    """Write into the audit log what was done at the command line, and how many lines were exported.

    ``parts``: ``operator``, ``institution``, ``voice_id``, ``detail``: ids, fixed words, and reasons that must name nobody.
    """
    entry = AuditEntry(event=event, who=COMMAND, origin=_origin(), results=results)
    await AuditLog(redis, keys=keys).write(replace(entry, **parts))


def record_command(event: AuditEvent, results: int | None = None, /, **parts: str) -> None:
    """Write into the audit log as `note_command` does, over a connection of its own. Errors as in `query_redis`."""
    query_redis(lambda redis, keys: note_command(redis, keys, event, results, **parts))


def record_or_warn(event: AuditEvent, /, **parts: str) -> None:
    """Write as `record_command` does, for a command that needs no Redis: a warning tells if it is away."""
    try:
        record_command(event, **parts)
    except (SettingsWrong, Failed):
        say("This is not recorded in the audit log: Redis cannot be reached by REDIS_URL.", err=True)


def _origin() -> str:
    """Return the system's user and the host of this command: what ``--operator`` says may be anything.

    The user is the one that the system knows, not the one of ``LOGNAME`` or ``USER``, which anybody can set.
    """
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container the user may have no name
        user = str(os.getuid())
    return f"{user}@{platform.node()}"


FORCE_HELP: Final = "Take an institution that callkeeper cannot know yet."
"""Help of ``--force``, which skips `refuse_unknown_institutions`."""


def refuse_unknown_institutions(institutions: Iterable[str]) -> None:
    """Refuse institutions that do not exist.

    Raises:
        Failed: There is no institution with such a key.
    """
    wanted = list(institutions)
    if not wanted:
        return
    known = query_redis(lambda redis, keys: Queries(redis, keys=keys).institutions())
    problems = [problem for key in wanted if (problem := known.problem(key))]
    if problems:
        raise Failed(*problems, "--force takes a key that callkeeper cannot know yet.")


class Span(click.ParamType[timedelta]):
    """A length of time on the command line: ``30m``, ``24h``, ``7d``."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if (found := value if isinstance(value, timedelta) else parse_span(str(value))) is None:
            self.fail(f"{value!r} is no span: write for example 30m, 24h or 7d", param, ctx)
        return found
