"""The free questions: what is sent, what is not, and what is seen."""

import asyncio
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import httpx
import pytest
from click.testing import CliRunner
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from callkeeper.app.cli import main
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.survey import Survey, contradictions
from callkeeper.service import Secret, ServiceConfig, ServiceUnavailable
from callkeeper.service.survey_questions import MOST, PLAN, Asking
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.state import Happening, Kind
from tests.sandbox_fixtures import KEY, ServedSandbox
from tests.survey_traffic import Traffic

CONFIG = ServiceConfig(
    base_url="https://service.example",
    access_token=Secret("a-secret-token"),
    email=Secret("bot@bank.example"),
    password=Secret("a-secret-password"),
)


async def asked(names: list[str], redis: Redis, live: int) -> tuple[Traffic, Survey]:
    """Ask beside some live calls, without any worker, and return the survey of that alone."""
    await redis.flushdb()
    traffic = Traffic(names, redis)
    for number in range(live):
        phone = f"55502{number:05}"
        traffic.stage.world.add_member(KEY, f"p-{number + 50}", [phone])
        traffic.stage.call(Happening(Kind.END, 600), phone_number=phone)
        traffic.stage.advance(3)
    gone = traffic.stage.call(Happening(Kind.END, 1))
    traffic.stage.advance(2)
    assert gone.ended_at is not None
    traffic.works = False
    async with traffic.stage.client, traffic.stage.sandbox.client:
        await traffic.ask()
        return traffic, await traffic.survey()


async def test_questions_change_nothing_and_cost_no_check(redis: Redis) -> None:
    """Only logins and reads are sent, 20 at most: no check, no assign, no enroll, no reject, for no call."""
    traffic, _ = await asked([], redis, live=6)
    calls = traffic.stage.world.state.calls.values()
    arrived = Counter(
        arrival.operation for call in calls for arrival in traffic.stage.sandbox.ledger.arrivals(call.voice_id)
    )
    assert set(arrived) == {Operation.READ}
    assert [call.checks_used for call in calls] == [0] * 7
    assert 12 < len(traffic.asked) <= MOST


def named(survey: Survey) -> list[str]:
    """Return the answers that contradict an assumption."""
    return sorted(one.answer.name for one in contradictions(survey))


async def test_usual_service_contradicts_nothing_that_is_asked(redis: Redis) -> None:
    """From the usual service every answer is as assumed, also without calls."""
    for live in (6, 0):
        traffic, survey = await asked([], redis, live=live)
        assert named(survey) == []
        assert len(traffic.asked) <= MOST


async def test_variant_that_contradicts_is_told(redis: Redis) -> None:
    """Only a question shows that a second login ends the first one's token, before traffic suffers from it."""
    _, survey = await asked(["login-ends-earlier"], redis, live=6)
    assert named(survey) == ["login-ends-earlier"]


async def test_requests_that_are_sent_are_those_of_the_plan(redis: Redis) -> None:
    """What ``--dry-run`` lists is all that is sent: as many requests of each endpoint at most."""
    traffic, _ = await asked([], redis, live=6)
    sent = Counter(line.partition(":")[0] for line in traffic.asked)
    planned = Counter[str]()
    for each in PLAN:
        planned[_endpoint(each.request)] += each.most
    assert all(count <= planned[name] for name, count in sent.items()), (sent, planned)
    assert sum(planned.values()) <= MOST


def _endpoint(request: str) -> str:
    path = request.split(" ", 1)[1]
    if "token" in path:
        return "token"
    if "queue" in path:
        return "queue"
    return "details" if "details" in path else "institution" if "{key}" in path else "institutions"


def test_command_asks_the_service_and_counts_the_answers(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """Over real sockets, with the settings of a worker: the answers are in the survey, and the audit log says who asked."""
    sandbox_server.control("PUT", "/variants", ["login-ends-earlier"])
    for number in range(2):
        sandbox_server.control("POST", "/calls", {"institution_key": KEY, "phone_number": f"555010000{number}"})
    credentials = sandbox_server.credentials
    environ = {
        "REDIS_URL": redis_url,
        "CALLKEEPER_SERVICE_URL": sandbox_server.url,
        "CALLKEEPER_ACCESS_TOKEN": credentials.access_token,
        "CALLKEEPER_EMAIL": credentials.email,
        "CALLKEEPER_PASSWORD": credentials.password,
        "CALLKEEPER_REQUESTED_BY": "bot",
        "CALLKEEPER_RULES": "watch-only",
    }
    ran = CliRunner(env=environ).invoke(main, ["service", "survey", "--ask"])
    assert ran.exit_code == 1, ran.output
    assert "requests were sent" in ran.stderr
    assert "(login-ends-earlier), 1 time" in ran.stdout
    with BlockingRedis.from_url(redis_url) as client:
        [(_, fields)] = client.xrange(Keys().audit)
        assert fields[b"detail"].startswith(b"survey: ")
        assert client.zcard(Keys().processes) == 0
    wrong = CliRunner(env=environ | {"CALLKEEPER_PASSWORD": "wrong-password"}).invoke(
        main, ["service", "survey", "--ask"]
    )
    assert wrong.exit_code == 1
    assert "the service was not asked everything: token: no token" in wrong.output


def test_dry_run_lists_each_request_and_needs_no_settings() -> None:
    """``--dry-run`` numbers the requests, and sends none: it runs without Redis and without a service."""
    ran = CliRunner().invoke(main, ["service", "survey", "--ask", "--dry-run"], env={"REDIS_URL": ""})
    assert ran.exit_code == 0, ran.output
    numbers = [int(found[1]) for line in ran.output.splitlines() if (found := re.match(r" ?(\d+)\. ", line))]
    assert numbers == list(range(1, sum(each.most for each in PLAN) + 1))
    assert "checkVoiceAuthentication=true" not in ran.output


class Silent(httpx.AsyncBaseTransport):
    """Never answers."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Wait for ever."""
        await asyncio.Event().wait()
        raise AssertionError(request.url)


def asking(transport: httpx.AsyncBaseTransport, deadline_s: float) -> Asking:
    """Return the questions, sent over a transport."""

    async def permit(_key: str) -> None:
        """Permit it."""

    config = replace(CONFIG, deadline_s=deadline_s)
    now = partial(datetime.now, UTC)
    return Asking(
        config, lambda *_: None, operators=lambda _: "bot", transport=transport, permit=permit, now=now, only=None
    )


async def test_service_that_never_answers_ends_the_questions() -> None:
    """The command does not wait for ever."""
    with pytest.raises(ServiceUnavailable, match="timed out"):
        await asking(Silent(), 0.05).run()
