"""``callkeeper migrate``: continue with the data of an older release."""

import click
from redis import Redis

from callkeeper.app.redis_query import query_jobs
from callkeeper.app.terminal import Failed, Misused, say, say_table
from callkeeper.calls.quantity import quantity
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.migrating import Migration


@click.command()
@click.option("--check", is_flag=True, help="Say what would be copied, and what prevents it. Writes nothing.")
@click.option("--finish", is_flag=True, help="Delete the old data. Then the older release cannot be started again.")
@click.option(
    "--discard",
    is_flag=True,
    help="If both releases have worked: drop what this one wrote; with --finish, the older one.",
)
def migrate(*, check: bool, finish: bool, discard: bool) -> None:
    """Continue with the data of a release up to 0.4.0: copy it, and leave the original to that release.

    Stop web and workers first. Run it again if it was interrupted; if there is nothing to do, it does nothing. The older
    release can be started again until you run it with --finish. docs/operations.md has the steps.
    """
    if check and finish:
        raise Misused("--check and --finish exclude each other")

    def run(redis: Redis, keys: Keys) -> None:
        migration = Migration(redis, keys)
        if finish:
            say(f"{quantity(migration.finish(discard=discard), 'old key')} deleted.")
        elif not migration.is_needed(discard=discard):
            say("There is nothing to copy.")
        elif check:
            _say_what_would_be_done(migration)
        else:
            say(f"{quantity(migration.copy(), 'key')} copied. Start web and workers of this release.")

    query_jobs(run, is_migrating=True)


def _say_what_would_be_done(migration: Migration) -> None:
    """Print what would be copied and left out.

    Raises:
        Failed: Something prevents it.
    """
    found = migration.count()
    rows = [(kind, n, "copied") for kind, n in sorted(found.copied.items())]
    rows += [(kind, n, "left out: made anew") for kind, n in sorted(found.left_out.items())]
    say_table(("kind", "keys", "what happens"), rows)
    hindrances = [f"alive: {process}" for process in migration.alive()]
    if migration.lacks_memory():
        hindrances.append("Redis has no room for a copy of its data: raise maxmemory")
    if hindrances:
        raise Failed("Stop web and workers first, and make room:", *hindrances)
