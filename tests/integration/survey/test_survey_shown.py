"""The survey as people see it: on the page, at the command line, in the file; and that it holds nothing of a person."""

import asyncio
import json
import re
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner, Result
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from callkeeper.app.cli import main
from callkeeper.calls.incident import IncidentKind
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import COMMAND, Author, FigureWriter
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.store.acknowledging import Acknowledging
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.survey import Survey
from callkeeper.desk.access.required_roles import rule_of
from callkeeper.desk.access.rights import Person, Role
from callkeeper_sandbox.service.variants import choose
from tests.harness.desk import BoardRig
from tests.sandbox_fixtures import CREDENTIALS, KEY
from tests.survey_traffic import LAST, Traffic

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
async def test_no_personal_value_reaches_redis_page_command_or_file(
    redis: Redis, redis_url: str, blocking_redis: BlockingRedis, log: FilteringBoundLogger, tmp_path: Path
) -> None:
    """Whatever a service puts where, the survey holds our own words, types and lengths: no value and no unknown name."""
    await redis.flushdb()
    traffic = Traffic([], redis, between=Poisoned)
    await traffic.run()
    board = BoardRig(traffic.stage, redis, blocking_redis, log)
    async with board.http, board.browser:
        page = await board.page("/survey")
    file = tmp_path / "service.toml"
    shown = {
        "Redis": repr(await redis.hgetall(Keys().survey)),
        "page": page,
        "table": (await asyncio.to_thread(survey, redis_url, "--all")).output,
        "json": (await asyncio.to_thread(survey, redis_url, "--json", "--export", str(file))).output,
        "file": file.read_text(encoding="utf-8"),
    }
    canaries = _canaries(traffic)
    assert len(canaries) > 80
    assert [(place, word) for place, text in shown.items() for word in canaries if word in text] == []
    assert "unknown fields" in shown["Redis"], "the poison was not looked at"
    assert "a text of" in shown["table"]


async def seen(redis: Redis, *sights: tuple[str, str, str, str]) -> None:
    """Count what was seen: assumption, answer, institution, shape."""
    figures = Figures()
    for sight in sights:
        figures.see(*sight)
    await FigureWriter(figures, Author.here(COMMAND)).write_async(redis, is_last=True)


CONTRADICTED = ("assign-replaces-person", "assign-over-refused", KEY, "refused over another person")
USUAL = ("token-life", "usual", "", "+30 minutes from now")


async def test_counts_first_and_last_time_shape_and_places_are_kept(redis: Redis) -> None:
    """Two processes add up; the last shape stays; no more than eight institutions are kept; nothing shows as a process.

    Where eight are named, there may be others.
    """
    await seen(redis, USUAL, USUAL)
    await seen(
        redis, ("token-life", "usual", KEY, ""), *(("phone-digits", "numbers-e164", f"cu-{n}", "x") for n in range(12))
    )
    client: Any = redis
    found = Survey.parse(await client.hgetall(Keys().survey))
    usual, others = found.seen["token-life"]["usual"], found.seen["phone-digits"]["numbers-e164"]
    assert (usual.n, usual.shape, usual.at) == (3, "+30 minutes from now", {})
    assert usual.first <= usual.last
    assert (others.n, len(others.at)) == (12, 8)
    assert others.where() == f" at {', '.join(f'cu-{n}' for n in range(8))}, and perhaps at others"
    assert others.where(lambda key: key == "cu-11") == ", and perhaps at others"
    assert await redis.zcard(Keys().processes) == await redis.zcard(Keys().running) == 0
    assert await redis.ttl(Keys().survey) > 86400


async def test_contradiction_is_an_incident_once_until_somebody_acknowledges_it(redis: Redis) -> None:
    """It names its institution; after the acknowledgement it does not come back, but another one does."""
    reader = SignalReader(redis, Keys())

    async def told() -> list[tuple[str, str]]:
        found = incidents_of(await reader.read())
        return [(one.institution_key, one.advice) for one in found if one.kind is IncidentKind.ASSUMPTION_WRONG]

    await seen(redis, USUAL, CONTRADICTED)
    [(key, advice)] = await told()
    assert (key, advice.startswith("It is refused (1 time). ")) == (KEY, True)
    await Acknowledging(redis, Keys()).acknowledge(
        IncidentKind.ASSUMPTION_WRONG, KEY, operator="ann", lasts=timedelta(hours=1)
    )
    await seen(redis, CONTRADICTED)
    assert await told() == []
    await seen(redis, ("login-keeps-earlier", "login-ends-earlier", KEY, ""))
    assert [key for key, _ in await told()] == [KEY]


async def test_page_shows_the_table_and_only_institutions_of_the_visitor(board_rig: BoardRig, redis: Redis) -> None:
    """Contradicted first, with what callkeeper does and the setting; agents may see it, viewers may not."""
    await seen(redis, USUAL, CONTRADICTED, ("phone-digits", "numbers-e164", LAST, "phoneNumber a text of 12"))
    page = await board_rig.page("/survey")
    board_rig.visitor.person = Person(id="bo", operator="bo", role=Role.AGENT, institutions=frozenset({KEY}))
    limited = await board_rig.page("/survey")
    contradicted = page.partition('id="contradicted"')[2].partition("</section>")[0]
    for words in ("assign-over-refused", "1 time at cu-1", "the refusal is recorded", "[assign] automatic"):
        assert words in contradicted, words
    assert "assign-over-refused" not in page.partition('id="holds"')[2]
    assert re.search(r"numbers-e164\), 1 time at cu-2: phoneNumber a text of 12", page)
    assert "cu-2" not in limited.partition("<main")[2]
    rule, _ = rule_of("GET", "/board/survey")
    assert rule.role is Role.AGENT
    assert rule_of("POST", "/board/survey")[0].role is Role.ADMIN


async def test_page_shows_names_of_the_document_as_code(board_rig: BoardRig) -> None:
    """Assumptions are written for a document; on the page their names are set as code, without its marks."""
    page = await board_rig.page("/survey")
    assert "<code>phoneCall</code>" in page
    assert "`" not in page


def test_command_shows_table_json_and_file(redis_url: str, tmp_path: Path) -> None:
    """It exits with 1 if something is contradicted; the file names the variants for the sandbox, and nothing else."""
    clean = survey(redis_url)
    assert clean.exit_code == 0, clean.output
    summary, *_ = clean.output.splitlines()
    assert re.fullmatch(r"\d+ assumptions: 0 contradicted, 0 hold, \d+ not yet seen, \d+ cannot be seen .+", summary)
    assert re.findall(r"(?m)^([A-Z].+): \d+ of \d+$", clean.output) == ["Not yet seen"]
    with BlockingRedis.from_url(redis_url) as redis:
        figures = Figures()
        for sight in (USUAL, CONTRADICTED, ("queue-page-size", "page-refused-100", KEY, "")):
            figures.see(*sight)
        FigureWriter(figures, Author.here(COMMAND)).write(redis, is_last=True)
    table = survey(redis_url)
    assert table.exit_code == 1
    assert " assumptions: 1 contradicted, 2 hold, " in table.output
    assert "contradicts: it is refused (assign-over-refused), 1 time at cu-1" in table.output
    assert "setting: [assign] automatic of the rules file" in table.output
    file = tmp_path / "service.toml"
    listed = survey(redis_url, "--json", "--export", str(file))
    rows = {row["id"]: row for row in json.loads(listed.stdout)}
    assert rows["assign-replaces-person"]["verdict"] == "contradicted"
    assert rows["token-life"]["seen_so"]["count"] == 1
    assert rows["identifier-length"]["verdict"] == "cannot be seen"
    written = tomllib.loads(file.read_text(encoding="utf-8"))
    assert written == {
        "format": 1,
        "variants": {"seen": ["assign-over-refused", "page-refused-100"], "usual": ["token-life"]},
    }
    choose(written["variants"]["seen"])


def test_export_is_answered_with_a_summary(redis_url: str, tmp_path: Path) -> None:
    """What was asked for is the file: what the command says of it is not buried under the whole table."""
    file = tmp_path / "service.toml"
    written = survey(redis_url, "--export", str(file))
    assert re.fullmatch(r"\d+ assumptions: [^\n]+ \(--all lists them\)\.\n", written.stdout)
    assert (written.stderr, file.exists()) == (f"Written: {file}\n", True)
    assert survey(redis_url, "--all", "--export", str(file)).stdout == survey(redis_url, "--all").stdout


def test_command_refuses_a_dry_run_of_nothing(redis_url: str) -> None:
    """``--dry-run`` belongs to ``--ask``."""
    assert survey(redis_url, "--dry-run").exit_code == 2
