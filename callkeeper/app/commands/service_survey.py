"""``callkeeper service survey``: which assumptions about the service are contradicted; ask the questions that are free."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click
from redis.asyncio import Redis

from callkeeper.app.redis_query import note_command, query_redis, redis_now
from callkeeper.app.terminal import Failed, safe, say, say_json
from callkeeper.calls.assumptions import Assumption, OtherAnswer, assumptions
from callkeeper.calls.item_names import CallId, owner_of
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import COMMAND, Author, FigureWriter
from callkeeper.calls.quantity import quantity
from callkeeper.calls.store.audit_log import AuditEvent
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.survey import Sight, Survey
from callkeeper.service.errors import ResellerError
from callkeeper.service.survey_questions import MOST, PLAN, Asking, Ended

Seen = Sequence[tuple[OtherAnswer, Sight]]

PACE_S = 0.2
"""The least time between two questions, in seconds."""


@click.command()
@click.option("--json", "wants_json", is_flag=True, help="As JSON.")
@click.option("--all", "shows_all", is_flag=True, help="Also the assumptions that nothing has contradicted.")
@click.option("--ask", is_flag=True, help="Ask the service the questions that are free, then show the table.")
@click.option("--dry-run", is_flag=True, help="With --ask: list the requests, and send none.")
def survey(*, wants_json: bool, shows_all: bool, ask: bool, dry_run: bool) -> None:
    """Show which assumptions about the service its answers have contradicted. Exits with 1 if there is one.

    --ask sends at most 20 requests, all of them logins or reads: never a check, an assign, an enroll or a reject. Have
    some calls live, and pause everything before: `callkeeper pause --all --operator YOU --reason survey`.
    """
    if dry_run and not ask:
        raise click.UsageError("--dry-run is about --ask")
    if dry_run:
        _say_plan()
        return
    if ask:
        _ask()
    found = query_redis(_read_survey)
    rows = [(one, found.contradicting(one)) for one in assumptions().values()]
    if wants_json:
        say_json([_as_json(one, seen) for one, seen in rows if seen or shows_all])
    else:
        wrong = sum(bool(seen) for _, seen in rows)
        say(f"{len(rows)} assumptions that an answer can contradict: {wrong} contradicted.")
        say(*(line for one, seen in rows if seen or shows_all for line in _lines(one, seen)))
    if any(seen for _, seen in rows):
        raise SystemExit(1)


def _say_plan() -> None:
    number = 0
    for planned in PLAN:
        for _ in range(planned.most):
            number += 1
            say(f"{number:2}. {planned.request}: {planned.shows}")
    say(f"At most {MOST} requests. None is a check, and none changes anything.")


def _ask() -> None:
    """Ask the questions, and count the answers like those of traffic."""
    from callkeeper.app.settings import WorkerSettings  # noqa: PLC0415  (only this needs the service's settings)
    from callkeeper.app.wiring import service_config  # noqa: PLC0415
    from callkeeper.calls.store.claims import Store  # noqa: PLC0415
    from callkeeper.calls.store.request_budget import Permit  # noqa: PLC0415
    from callkeeper.service.aiohttp_transport import reads_transport  # noqa: PLC0415

    settings = WorkerSettings.load(os.environ)
    config = service_config(settings.service)

    async def asked(redis: Redis, keys: Keys) -> tuple[int, str]:
        figures, store = Figures(), Store(redis, keys=keys, rps=settings.service_rps)
        ahead = datetime.now(UTC) - await redis_now(redis)

        async def permit(institution_key: str) -> None:
            await asyncio.sleep(PACE_S)
            wait_s = await store.budget.wait_s(Permit.READ, "survey", institution_key) if institution_key else 0.0
            while wait_s:
                await asyncio.sleep(wait_s)
                wait_s = await store.budget.wait_s(Permit.READ, "survey", institution_key)

        transport = reads_transport(config)
        asking = Asking(
            config,
            figures.see,
            operators=settings.service.requested_by.for_institution,
            transport=transport,
            permit=permit,
            now=lambda: datetime.now(UTC) - ahead,
            only=frozenset(settings.institutions) if settings.institutions is not None else None,
            ended=await _ended(redis, keys),
        )
        problem = ""
        try:
            await asking.run()
        except ResellerError as error:
            problem = str(error)
        finally:
            await transport.aclose()
            await FigureWriter(figures, Author.here(COMMAND), keys=keys).write_async(redis, is_last=True)
        await note_command(redis, keys, AuditEvent.SAID, detail=f"survey: {len(asking.sent)} requests to the service")
        return len(asking.sent), problem

    count, problem = query_redis(asked)
    say(f"{quantity(count, 'request was', 'requests were')} sent.", err=True)
    if problem:
        raise Failed(f"the service was not asked everything: {safe(problem)}")


async def _ended(redis: Redis, keys: Keys) -> Ended | None:
    """Return a call that has ended, if there is one."""
    client = in_bytes(redis)
    members = await client.zrevrange(keys.settled, 0, 0)
    owner = owner_of(members[0].decode()) if members else None
    return Ended(owner.institution_key, owner.voice_id) if isinstance(owner, CallId) else None


async def _read_survey(redis: Redis, keys: Keys) -> Survey:
    client = in_bytes(redis)
    return Survey.parse(await client.hgetall(keys.survey))


def _lines(one: Assumption, seen: Seen) -> list[str]:
    lines = [f"{one.id}: {one.text}."]
    lines += [f"  contradicted: {answer.words} ({answer.name}), {_times(sight)}" for answer, sight in seen]
    if seen:
        lines += [f"  what callkeeper does: {one.otherwise}"] if one.otherwise else []
        lines += [f"  setting: {one.setting}"] if one.setting else []
    return lines


def _times(sight: Sight) -> str:
    shape = f": {safe(sight.shape)}" if sight.shape else ""
    lasted = sight.last_at - sight.first_at > timedelta(seconds=1)
    last = f", last {sight.last_at:%Y-%m-%d %H:%M:%S}" if lasted else ""
    return f"{sight.times}{safe(sight.where())}, first {sight.first_at:%Y-%m-%d %H:%M:%S}{last} UTC{shape}"


def _as_json(one: Assumption, seen: Seen) -> dict[str, object]:
    return {
        "id": one.id,
        "text": one.text,
        "otherwise": one.otherwise or None,
        "setting": one.setting or None,
        "contradicted_by": [
            {"answer": answer.name, "words": answer.words, **_sight_json(sight)} for answer, sight in seen
        ],
    }


def _sight_json(sight: Sight) -> dict[str, object]:
    return {
        "count": sight.n,
        "first": sight.first_at.isoformat(),
        "last": sight.last_at.isoformat(),
        "institutions": sorted(sight.at),
        "shape": sight.shape,
    }
