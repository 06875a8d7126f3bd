"""The page of incidents: acknowledgements with an end, and the button that tries the service again."""

import asyncio
import html
import time
from datetime import timedelta

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from callkeeper.app import acknowledgement_watch
from callkeeper.app.acknowledgement_watch import AcknowledgementWatch
from callkeeper.app.alert_sender import AlertSender
from callkeeper.app.alert_watch import AlertWatch
from callkeeper.app.cli import main
from callkeeper.app.parsing import alert_addresses
from callkeeper.calls.acknowledgement import LONGEST, Acknowledgement
from callkeeper.calls.alerts import alerts_of
from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.store.acknowledging import Acknowledging
from callkeeper.calls.store.audit_log import AuditEvent
from callkeeper.calls.store.breakers import breakers_of
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_errors import ErrorArea, ErrorNotes
from callkeeper.desk.access.required_roles import rule_of
from callkeeper.desk.access.rights import Role
from callkeeper.desk.prometheus_page import read_everything
from tests.harness.desk import BoardRig
from tests.harness.virtual_time import KEY
from tests.signed_in import ANN
from tests.waiting import until_async

AWAY = {"kind": "institution_fails", "institution": KEY}


@pytest.fixture
async def rig(board_rig: BoardRig, redis: Redis) -> BoardRig:
    """Return a board beside an institution whose requests fail, with a living worker."""
    await board_rig.run(1)
    await board_rig.writer.write_async(redis)
    now_ms = int(time.time() * 1000)
    await redis.hset(Keys().breakers, KEY, f"5 {now_ms} {now_ms + 60_000} failure")
    await ErrorNotes(redis, Keys()).note(ErrorArea.CALLS, KEY, "status 503: upstream down")
    return board_rig


async def known(redis: Redis) -> list[Acknowledgement]:
    """Return what is acknowledged."""
    return await Acknowledging(redis, Keys()).all()


async def test_acknowledged_incident_stays_on_the_board_and_is_told_to_nobody(rig: BoardRig) -> None:
    """The card says by whom and until when; messages, metrics and the count of what needs a person leave it out."""
    page = html.unescape(await rig.page())
    assert "Last error: status 503: upstream down." in page
    assert (await rig.fill("/incidents/acknowledge", **AWAY, lasts="2h", note="they know")).status_code == 303
    [one] = await known(rig.redis)
    assert (one.operator, one.note, one.until - one.at) == ("ann", "they know", timedelta(hours=2))
    page = html.unescape(await rig.page())
    assert f"Acknowledged by ann until {one.until:%Y-%m-%d %H:%M} UTC (they know)." in page
    assert 'class="alarm warn known"' in page
    signals = await SignalReader(rig.redis, Keys()).read()
    [alert] = [each for each in alerts_of(incidents_of(signals), {}) if each.key == f"institution_fails:{KEY}"]
    assert alert.is_acknowledged
    metrics = {
        (sample.labels["kind"], sample.labels["institution"]): sample.value
        for family in (await read_everything(rig.redis)).collect()
        if family.name == "callkeeper_incident"
        for sample in family.samples
    }
    assert metrics["institution_fails", KEY] == 2.0
    assert 0 < await rig.redis.ttl(Keys().acknowledged) <= LONGEST.total_seconds()


async def test_acknowledgement_is_ended_by_a_form(rig: BoardRig) -> None:
    """Whoever ends it has the incident told again."""
    await rig.fill("/incidents/acknowledge", **AWAY, lasts="30m")
    assert "End the acknowledgement" in await rig.page("/incidents")
    assert '<a href="/board/incidents">Incidents</a>' in await rig.page()
    assert (await rig.fill("/incidents/end", **AWAY)).status_code == 303
    assert await known(rig.redis) == []
    assert (await rig.fill("/incidents/end", **AWAY)).status_code == 409


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"kind": "nothing", "lasts": "2h"}, 400),
        ({**AWAY, "lasts": "9y"}, 400),
        ({"kind": "archive_away", "lasts": "2h"}, 409),
        ({**AWAY, "institution": "typed-by-hand", "lasts": "2h"}, 409),
    ],
    ids=["no such kind", "too long", "no such incident now", "no such institution"],
)
async def test_acknowledgement_that_means_nothing_is_refused(
    fields: dict[str, str], status: int, rig: BoardRig
) -> None:
    """A form that names no incident of now, or no length, changes nothing. Only its own card keeps the note."""
    answer = await rig.fill("/incidents/acknowledge", **fields, note="they know")
    assert (answer.status_code, answer.text.count('value="they know"')) == (status, int(fields.items() >= AWAY.items()))
    assert await known(rig.redis) == []


async def test_person_of_one_institution_acknowledges_only_its_incidents(rig: BoardRig) -> None:
    """What concerns others is neither shown nor silenced."""
    rig.visitor.person = replace(ANN, role=Role.SUPERVISOR, institutions=frozenset({"cu-9"}))
    assert "The service fails for an institution" not in await rig.page("/incidents")
    for institution in (KEY, ""):
        fields = {"kind": "institution_fails", "institution": institution, "lasts": "2h"}
        assert (await rig.fill("/incidents/acknowledge", **fields)).status_code == 403
    assert await known(rig.redis) == []


@pytest.mark.parametrize("path", ["acknowledge", "end", "retry"])
async def test_forms_need_a_token_and_a_role(path: str, rig: BoardRig) -> None:
    """Only supervisors and administrators get through, each with an audit entry; only from a page of ours."""
    assert (await rig.browser.post(f"/board/incidents/{path}", data={**AWAY, "lasts": "2h"})).status_code == 403
    assert await known(rig.redis) == []
    rule, parts = rule_of("POST", f"/board/incidents/{path}")
    assert (rule.role, parts["detail"]) == (Role.SUPERVISOR, path)
    assert rule.event is (AuditEvent.RETRIED if path == "retry" else AuditEvent.ACKNOWLEDGED)
    assert rule.for_all is (path == "retry")
    assert rule_of("GET", "/board/incidents")[0].role is Role.AGENT


async def test_button_tries_the_service_again_at_once(rig: BoardRig) -> None:
    """It does what `callkeeper service retry` does: everything that is stopped is tried now, also a refused login."""
    await rig.redis.hset(Keys().login_gate, mapping={"shut": "x", "refused:a": "1"})
    done = await rig.fill("/incidents/retry")
    assert (done.status_code, done.headers["location"]) == (303, "/board/incidents?retried=1")
    stored = await rig.redis.hgetall(Keys().breakers)
    assert all(breaker.tried_at.timestamp() <= time.time() + 1 for breaker in breakers_of(stored).values())
    assert not {b"shut", b"refused:a"} & set(await rig.redis.hkeys(Keys().login_gate))
    assert "Workers try everything again now" in await rig.page("/incidents?retried=1")


async def test_acknowledgement_ends_with_its_incident(rig: BoardRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next incident of the same kind is told again. A gap of a moment ends nothing."""
    await Acknowledging(rig.redis, Keys()).acknowledge(
        IncidentKind.INSTITUTION_FAILS, KEY, operator="ann", lasts=timedelta(hours=2)
    )
    watch = AcknowledgementWatch(rig.redis, Keys())
    await watch.poll()
    await rig.redis.delete(Keys().breakers)
    await watch.poll()
    assert len(await known(rig.redis)) == 1
    monkeypatch.setattr(acknowledgement_watch, "OVER_AFTER", timedelta())
    await watch.poll()
    assert await known(rig.redis) == []


async def test_card_of_many_acknowledges_each_of_them_and_none_that_fails_later(rig: BoardRig) -> None:
    """Who presses the button knows of those that the card names. One form ends it for all of them."""
    now_ms = int(time.time() * 1000)
    away = f"5 {now_ms} {now_ms + 60_000} failure"
    await rig.redis.hset(Keys().breakers, mapping={"cu-7": away, "cu-8": away})
    many = {"kind": "institution_fails", "institution": ""}
    assert (await rig.fill("/incidents/acknowledge", **many, lasts="2h")).status_code == 303
    assert [one.institution_key for one in await known(rig.redis)] == sorted([KEY, "cu-7", "cu-8"])
    [words] = {one.words for one in await known(rig.redis)}
    await rig.redis.hset(Keys().breakers, "cu-9", away)
    found = incidents_of(await SignalReader(rig.redis, Keys()).read())
    assert {one.institution_key for one in found if one.kind == "institution_fails" and not one.known} == {"cu-9"}
    assert (await rig.fill("/incidents/end", **many)).status_code == 409
    assert (await rig.fill("/incidents/end", **many, known=words)).status_code == 303
    assert await known(rig.redis) == []


async def test_symptom_stays_acknowledged_while_its_cause_hides_it(
    rig: BoardRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the service is away, nobody can tell whether one institution's trouble is over."""
    await Acknowledging(rig.redis, Keys()).acknowledge(
        IncidentKind.INSTITUTION_FAILS, KEY, operator="ann", lasts=timedelta(hours=2)
    )
    now_ms = int(time.time() * 1000)
    away = f"5 {now_ms} {now_ms + 60_000} failure"
    monkeypatch.setattr(acknowledgement_watch, "OVER_AFTER", timedelta())
    watch = AcknowledgementWatch(rig.redis, Keys())
    for breakers in ({KEY: away, "": away}, {"": away}):
        await rig.redis.delete(Keys().breakers)
        await rig.redis.hset(Keys().breakers, mapping=breakers)
        kinds = {one.kind for one in incidents_of(await SignalReader(rig.redis, Keys()).read())}
        assert kinds & {"service_away", "institution_fails"} == {"service_away"}
        await watch.poll()
        assert len(await known(rig.redis)) == 1
    await rig.redis.delete(Keys().breakers)
    await watch.poll()
    assert await known(rig.redis) == []


async def test_acknowledgement_that_has_ended_is_not_kept(redis: Redis) -> None:
    """Its operator's name goes with the next acknowledgement, at the latest after seven days."""
    acknowledging, hour = Acknowledging(redis, Keys()), timedelta(hours=1)
    await acknowledging.acknowledge(IncidentKind.LATE, "", operator="ann", lasts=timedelta(milliseconds=1))
    await asyncio.sleep(0.005)
    await acknowledging.acknowledge(IncidentKind.NO_PUSH, "cu-1", "cu-2", operator="ben", lasts=hour)
    assert sorted(await redis.hkeys(Keys().acknowledged)) == [b"no_push cu-1", b"no_push cu-2"]
    assert LONGEST.total_seconds() - 5 < await redis.ttl(Keys().acknowledged) <= LONGEST.total_seconds()


async def test_process_that_sends_alerts_ends_acknowledgements(
    redis: Redis, redis_url: str, log: FilteringBoundLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation without a web process forgets them too: the next incident of the same name is told."""
    monkeypatch.setattr(acknowledgement_watch, "OVER_AFTER", timedelta())
    await Acknowledging(redis, Keys()).acknowledge(
        IncidentKind.ARCHIVE_AWAY, "", operator="ann", lasts=timedelta(hours=2)
    )
    sender = AlertSender(alert_addresses("json://127.0.0.1:9/"))
    watch = AlertWatch(lambda: Redis.from_url(redis_url), sender, log, keys=Keys())

    async def are_forgotten() -> bool:
        return await known(redis) == []

    watch.start()
    try:
        await until_async(are_forgotten)
    finally:
        await asyncio.to_thread(watch.stop)


def command(redis_url: str, *arguments: str) -> Result:
    """Run ``callkeeper alerts acknowledge``."""
    return CliRunner(env={"REDIS_URL": redis_url}).invoke(main, ["alerts", "acknowledge", *arguments])


def test_command_acknowledges_and_ends(redis_url: str) -> None:
    """By kind, with an end; what is not there is refused, and each change is in the audit log."""
    with BlockingRedis.from_url(redis_url) as redis:
        done = command(redis_url, "no_worker", "--for", "2h", "--operator", "ann", "--reason", "deploying")
        assert done.output.startswith("no_worker: acknowledged by ann until "), done.output
        wrong = command(redis_url, "late", "--for", "2h", "--operator", "ann")
        assert (wrong.exit_code, "there are: no_web, no_worker" in wrong.output) == (1, True), wrong.output
        for arguments in (["--for", "8d"], [], ["--for", "1h", "--end"]):
            assert command(redis_url, "no_worker", *arguments, "--operator", "ann").exit_code == 2
        ended = command(redis_url, "no_worker", "--end", "--operator", "ann")
        assert ended.output == "no_worker: no longer acknowledged\n"
        assert command(redis_url, "no_worker", "--end", "--operator", "ann").exit_code == 1
        entries: list[tuple[bytes, dict[bytes, bytes]]] = redis.xrange(Keys().audit)
    assert [fields[b"detail"] for _, fields in entries] == [b"acknowledge no_worker", b"end no_worker"]


def test_retry_of_the_command_is_in_the_audit_log(redis_url: str) -> None:
    """Who made the workers try again is known, whether by the button or the command."""
    CliRunner(env={"REDIS_URL": redis_url}).invoke(main, ["service", "retry"])
    with BlockingRedis.from_url(redis_url) as redis:
        [(_, fields)] = redis.xrange(Keys().audit)
    assert fields[b"event"] == b"retried"
