"""The survey of traffic: what is contradicted, as people see it; and that it holds nothing of a person."""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner, Result
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from callkeeper.app.cli import main
from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import COMMAND, Author, FigureWriter
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.store.acknowledging import Acknowledging
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.survey import Survey, contradictions
from tests.sandbox_fixtures import CREDENTIALS, KEY
from tests.survey_traffic import Traffic, surveyed

NAME, FIELD, WORD = "Canaria Featherstone", "canariaField", "canary-word"


class Poisoned(httpx.AsyncBaseTransport):
    """Puts data about people into every place of an answer that the document leaves open, and into the others."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.answers = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on, and poison every third answer."""
        answer = await self._inner.handle_async_request(request)
        body = await answer.aread()
        self.answers += 1
        if self.answers % 3 or not body.startswith(b"{"):
            return httpx.Response(answer.status_code, headers=_without_length(answer), content=body)
        content = msgspec.json.encode(_poisoned(msgspec.json.decode(body)))
        return httpx.Response(answer.status_code, headers=_without_length(answer), content=content)


def _without_length(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.lower() != "content-length"}


def _poisoned(value: Any) -> Any:
    if isinstance(value, list):
        return [_poisoned(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: _poisoned(each) for name, each in value.items()}
    if found.get("success") is False:
        found |= {"error": f"{NAME} is not known", "code": WORD, "errors": [NAME]}
    if "vendorPolicies" in found:
        found["vendorPolicies"] = [*(found["vendorPolicies"] or []), f"Mauve {NAME}"]
    for name in ("researchStatus", "classification", "confirmStatus"):
        if name in found:
            found[name] = f"{WORD} {NAME}"
    if found.get("status") == "CheckRiskAndAuthentication":
        found["status"] = f"{WORD} {NAME}"
    return {FIELD: NAME, NAME: {"fullSsn": WORD}, **found}


def _canaries(traffic: Traffic) -> set[str]:
    """Return what must be shown nowhere: everything about members, calls and the login."""
    world = traffic.stage.world
    words = {NAME, NAME.lower(), FIELD, WORD, CREDENTIALS.email, CREDENTIALS.password, CREDENTIALS.access_token}
    for call in world.state.calls.values():
        words |= {call.voice_id, call.alternate_id, call.phone_number}
    words |= set(_texts(msgspec.to_builtins(world.state, str_keys=True)))
    return {word for word in words if len(word) > 5}


_PERSONAL = frozenset(
    {
        *("person_id", "personId", "value_for_core", "valueForCore", "fullSsn", "full_ssn", "support_password"),
        *("supportPassword", "date_of_birth", "dateOfBirth", "phones", "last_name", "lastName"),
    }
)


def _texts(value: Any, name: str = "") -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from _texts(inner, key)
        case list():
            for inner in value:
                yield from _texts(inner, name)
        case str() if name in _PERSONAL:
            yield value


def survey(redis_url: str, *arguments: str) -> Result:
    """Run ``callkeeper service survey``."""
    return CliRunner(env={"REDIS_URL": redis_url}).invoke(main, ["service", "survey", *arguments])


@pytest.mark.timeout(300)
async def test_no_personal_value_reaches_redis_or_the_command(redis: Redis, redis_url: str) -> None:
    """Whatever a service puts where, the survey holds our own words, types and lengths: no value and no unknown name."""
    await redis.flushdb()
    traffic = Traffic([], redis, between=Poisoned)
    await traffic.run()
    shown = {
        "Redis": repr(await redis.hgetall(Keys().survey)),
        "table": (await asyncio.to_thread(survey, redis_url, "--all")).output,
        "json": (await asyncio.to_thread(survey, redis_url, "--json")).output,
    }
    canaries = _canaries(traffic)
    assert len(canaries) > 80
    assert [(place, word) for place, text in shown.items() for word in canaries if word in text] == []


CONTRADICTING = (
    *("starts-in-future", "assign-over-refused", "assign-over-ignored", "unenrolled-silently"),
    *("effects-after-end-refused", "dates-local-west", "dates-local-east", "login-ends-earlier"),
)
"""Variants of the sandbox that contradict an assumption, and that a few minutes of traffic show."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["", *(pytest.param(name, marks=pytest.mark.night) for name in CONTRADICTING)])
async def test_traffic_tells_what_is_contradicted_and_nothing_else(name: str, redis: Redis) -> None:
    """The usual service contradicts nothing; with one variant that one is told."""
    found = await surveyed([name] if name else [], redis)
    told = {one.answer.name for one in contradictions(found)}
    assert told == ({name} if name else set())


async def seen(redis: Redis, *sights: tuple[str, str, str, str]) -> None:
    """Count what was seen: assumption, answer, institution, shape."""
    figures = Figures()
    for sight in sights:
        figures.see(*sight)
    await FigureWriter(figures, Author.here(COMMAND)).write_async(redis, is_last=True)


CONTRADICTED = ("assign-replaces-person", "assign-over-refused", KEY, "refused over another person")
ODD_ID = ("voice-id-alphabet", "odd-id")


async def test_counts_first_and_last_time_shape_and_places_are_kept(redis: Redis) -> None:
    """Two processes add up; the last shape stays; no more than eight institutions are kept; nothing shows as a process.

    Where eight are named, there may be others.
    """
    await seen(redis, CONTRADICTED, CONTRADICTED)
    await seen(redis, CONTRADICTED, *((*ODD_ID, f"cu-{n}", "x") for n in range(12)))
    client: Any = redis
    found = Survey.parse(await client.hgetall(Keys().survey))
    one, others = found.seen["assign-replaces-person"]["assign-over-refused"], found.seen[ODD_ID[0]][ODD_ID[1]]
    assert (one.n, one.shape, list(one.at)) == (3, "refused over another person", [KEY])
    assert one.first <= one.last
    assert (others.n, len(others.at)) == (12, 8)
    assert others.where() == f" at {', '.join(f'cu-{n}' for n in range(8))}, and perhaps at others"
    assert await redis.zcard(Keys().processes) == await redis.zcard(Keys().running) == 0
    assert await redis.ttl(Keys().survey) > 86400


async def test_contradiction_is_an_incident_once_until_somebody_acknowledges_it(redis: Redis) -> None:
    """It names its institution; after the acknowledgement it does not come back, but another one does."""
    reader = SignalReader(redis, Keys())

    async def told() -> list[tuple[str, str]]:
        found = incidents_of(await reader.read())
        return [(one.institution_key, one.advice) for one in found if one.kind is IncidentKind.ASSUMPTION_WRONG]

    await seen(redis, CONTRADICTED)
    [(key, advice)] = await told()
    assert (key, advice.startswith("It is refused (1 time). ")) == (KEY, True)
    await Acknowledging(redis, Keys()).acknowledge(
        IncidentKind.ASSUMPTION_WRONG, KEY, operator="ann", lasts=timedelta(hours=1)
    )
    await seen(redis, CONTRADICTED)
    assert await told() == []
    await seen(redis, ("login-keeps-earlier", "login-ends-earlier", KEY, ""))
    assert [key for key, _ in await told()] == [KEY]


def test_command_shows_what_is_contradicted(redis_url: str) -> None:
    """It exits with 1 if something is, and says what callkeeper does and which setting answers it."""
    clean = survey(redis_url)
    assert (clean.exit_code, clean.output.count("\n")) == (0, 1), clean.output
    assert ": 0 contradicted." in clean.output
    with BlockingRedis.from_url(redis_url) as redis:
        figures = Figures()
        figures.see(*CONTRADICTED)
        FigureWriter(figures, Author.here(COMMAND)).write(redis, is_last=True)
    table = survey(redis_url)
    assert table.exit_code == 1
    assert ": 1 contradicted." in table.output
    assert "contradicted: it is refused (assign-over-refused), 1 time at cu-1" in table.output
    assert "setting: [assign] automatic of the rules file" in table.output
    assert len(survey(redis_url, "--all").output) > len(table.output)
    [row] = json.loads(survey(redis_url, "--json").stdout)
    assert (row["id"], row["contradicted_by"][0]["count"]) == ("assign-replaces-person", 1)


def test_command_refuses_a_dry_run_of_nothing(redis_url: str) -> None:
    """``--dry-run`` belongs to ``--ask``."""
    assert survey(redis_url, "--dry-run").exit_code == 2
