"""Every alert that we deliver fires if its fault is present, and not otherwise, on the metrics that we export."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.routing import Route

from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.process_activity import Doing
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter
from callkeeper.calls.notes import Distrusted, Merged, Resolved
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.record import Call, Plan
from callkeeper.calls.rules import Outcome, Rule
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_listing import Standing
from callkeeper.calls.store.pausing import Pausing
from callkeeper.calls.survey import KNOWN_FIELD
from callkeeper.service.push_event import parse_header_settings
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.institutions import InstitutionStatus
from callkeeper_sandbox.service.state import Happening, Kind
from receiver.authentication import PushAuthentication
from receiver.push import PushCounting, PushEndpoint
from tests.faults.alert_watch import Watch
from tests.harness.virtual_time import KEY, Rig
from tests.integration.whole_calls.test_misfortunes import Broken
from tests.promtool import ALERTS, alert_rules, promtool

END = Happening(Kind.END, 400)
SHORT = Happening(Kind.END, 20)


@pytest.fixture
async def watch(rig: Rig) -> Watch:
    """Return a watch over a callkeeper that has handled one ordinary call without an alert."""
    watch = Watch(rig)
    await watch.run(15)
    call = rig.stage.call(Happening(Kind.GREEN, 20), Happening(Kind.END, 40))
    await rig.push(call)
    await watch.run(60)
    assert not watch.fired
    return watch


def test_alerts_are_rules_of_prometheus() -> None:
    """``promtool`` accepts the alert rules."""
    checked = promtool("check", "rules", str(ALERTS))
    assert checked.returncode == 0, checked.stderr


def test_every_alert_has_its_fault() -> None:
    """A test of this file names every alert that is delivered. For the last two their causes' own tests do."""
    source = Path(__file__).read_text(encoding="utf-8")
    unnamed = [rule["alert"] for rule in alert_rules() if f'"{rule["alert"]}"' not in source]
    assert unnamed == ["CallkeeperInstitutionPushesRefused", "CallkeeperClocksApart"][: len(unnamed)]


async def test_no_push_while_the_queue_shows_new_calls(watch: Watch) -> None:
    """After three calls in a row that were not pushed, `CallkeeperNoPush` fires until the next push."""
    for _ in range(3):
        assert "CallkeeperNoPush" not in watch.fired
        watch.rig.stage.call(SHORT)
        await watch.run(30)
    await watch.run(45)
    assert watch.fired["CallkeeperNoPush"] == [{"institution": KEY, "kind": "no_push"}]
    await watch.rig.push(watch.rig.stage.call(END))
    await watch.run(15)
    assert "CallkeeperNoPush" not in watch.fired


async def test_calls_of_a_time_without_web_are_no_alert_afterwards(watch: Watch) -> None:
    """While no web process runs, pushes reach nobody. That is not the fault of their settings once web is back."""
    watch.is_web_alive = False
    for _ in range(4):
        watch.rig.stage.call(SHORT)
        await watch.run(30)
        assert "CallkeeperNoPush" not in watch.fired
    watch.is_web_alive = True
    await watch.run(75)
    assert not watch.fired


async def test_some_lost_pushes_are_no_alert(watch: Watch) -> None:
    """If two of three pushes are lost, `CallkeeperNoPush` does not fire."""
    for n in range(6):
        call = watch.rig.stage.call(SHORT)
        if n % 3 == 0:
            await watch.rig.push(call)
        await watch.run(120)
        assert "CallkeeperNoPush" not in watch.fired


async def test_provider_that_gives_no_results(watch: Watch) -> None:
    """If three calls in a row are still pending after eight checks, `CallkeeperNoResults` fires until one has a result."""
    for _ in range(3):
        watch.rig.stage.call(Happening(Kind.PENDING, 1), END)
    await watch.run(90)
    assert watch.fired["CallkeeperNoResults"] == [{"institution": KEY, "kind": "no_results"}]
    watch.rig.stage.call(Happening(Kind.GREEN, 5), END)
    await watch.run(45)
    assert "CallkeeperNoResults" not in watch.fired


async def test_pushed_calls_that_are_never_listed(watch: Watch) -> None:
    """If the queue leaves out three pushed calls in a row, `CallkeeperNotListed` fires until it lists one."""
    institution = watch.rig.stage.world.state.institutions[KEY]
    institution.ignored = ["5550100009"]
    for _ in range(3):
        await watch.rig.push(watch.rig.stage.call(END, phone_number="5550100009"))
    await watch.run(75)
    assert watch.fired["CallkeeperNotListed"] == [{"institution": KEY, "kind": "not_listed"}]
    await watch.rig.push(watch.rig.stage.call(END))
    await watch.run(15)
    assert "CallkeeperNotListed" not in watch.fired


async def test_half_of_the_requests_fail(watch: Watch) -> None:
    """If half of the requests for details fail, `CallkeeperRequestsFail` fires although others are answered."""
    for _ in range(6):
        await watch.rig.push(watch.rig.stage.call(END))
    await watch.run(15)
    watch.rig.stage.sandbox.faults.add(Fault(target="details", action=Action.ANSWER, status=502, share=0.5))
    await watch.run(60)
    assert watch.fired["CallkeeperRequestsFail"] == [{"kind": "requests_fail"}]
    watch.rig.stage.sandbox.faults.clear()
    await watch.run(60)
    assert "CallkeeperRequestsFail" not in watch.fired


async def test_assigns_that_all_fail(watch: Watch) -> None:
    """If no assign is answered and all reads are, no breaker opens; `CallkeeperRequestsFail` fires until one is."""
    watch.rig.stage.sandbox.faults.add(Fault(target="assign", action=Action.ANSWER, status=503))
    for _ in range(3):
        for _ in range(3):
            await watch.rig.push(watch.rig.stage.call(END))
        await watch.run(15)
    assert watch.fired["CallkeeperRequestsFail"] == [{"kind": "requests_fail"}]
    watch.rig.stage.sandbox.faults.clear()
    await watch.rig.push(watch.rig.stage.call(END))
    await watch.run(15)
    assert "CallkeeperRequestsFail" not in watch.fired


async def test_answers_that_cannot_be_read(watch: Watch) -> None:
    """If no answer to details can be read, no breaker opens; `CallkeeperRequestsFail` fires."""
    for _ in range(3):
        await watch.rig.push(watch.rig.stage.call(END))
    await watch.run(15)
    watch.rig.stage.sandbox.faults.add(Fault(target="details", action=Action.ANSWER, status=200, body="{"))
    await watch.run(60)
    assert "CallkeeperRequestsFail" in watch.fired


async def test_institution_that_is_not_active(watch: Watch) -> None:
    """If an institution with a live call is in review, `CallkeeperNotActive` fires until it is Active."""
    watch.rig.stage.call(END)
    child = watch.rig.stage.world.state.institutions[KEY]
    active, child.record = child.record, msgspec.structs.replace(child.record, status=InstitutionStatus.REVIEW)
    await watch.run(150)
    assert watch.fired["CallkeeperNotActive"] == [{"institution": KEY, "kind": "not_active"}]
    child.record = active
    await watch.run(120)
    assert "CallkeeperNotActive" not in watch.fired


async def test_worker_that_vanished(watch: Watch) -> None:
    """If a worker stops reporting, `CallkeeperProcessGone` fires until another is started; not after a shutdown."""
    redis = watch.rig.redis
    await FigureWriter(Figures(), Author("old-1-aa", "worker"), now_ms=watch.rig.now_ms).write_async(redis)
    await watch.run(45)
    assert watch.fired["CallkeeperProcessGone"] == [{"kind": "process_gone"}]
    await FigureWriter(Figures(), Author("new-1-aa", "worker"), now_ms=watch.rig.now_ms).write_async(redis)
    await watch.scrape()
    assert "CallkeeperProcessGone" not in watch.fired


async def test_worker_that_cannot_reach_the_service(watch: Watch) -> None:
    """If a worker says that it alone gets no answers, `CallkeeperWorkerCutOff` fires until it gets one."""
    watch.rig.writer.doing = partial(Doing, cut_off_s=4.0)
    await watch.run(45)
    assert watch.fired == {"CallkeeperWorkerCutOff": [{"kind": "worker_cut_off"}]}
    watch.rig.writer.doing = Doing
    await watch.run(15)
    assert "CallkeeperWorkerCutOff" not in watch.fired


async def test_second_installation_with_our_account(watch: Watch) -> None:
    """If a worker finds another prefix that uses its account, `CallkeeperAccountShared` fires until it is gone."""
    watch.rig.writer.doing = partial(Doing, shares_account_with=("ck2",))
    await watch.run(30)
    assert watch.fired == {"CallkeeperAccountShared": [{"kind": "account_shared"}]}
    watch.rig.writer.doing = Doing
    await watch.run(15)
    assert "CallkeeperAccountShared" not in watch.fired


async def test_policies_that_nobody_has_classified(watch: Watch) -> None:
    """If three calls show a policy without a colour, `CallkeeperPoliciesUnknown` fires until calls show others."""
    for _ in range(3):
        watch.rig.stage.call(Happening(Kind.POLICY, 2, "Mauve Unheard"), END)
    await watch.run(60)
    assert watch.fired["CallkeeperPoliciesUnknown"] == [{"institution": KEY, "kind": "policies_unknown"}]
    watch.rig.stage.call(Happening(Kind.GREEN, 5), END)
    await watch.run(150)
    assert "CallkeeperPoliciesUnknown" not in watch.fired


async def test_assumption_that_is_wrong(watch: Watch) -> None:
    """If entries of the queue have no voice id, `CallkeeperAssumptionWrong` fires until somebody acknowledges it."""
    watch.rig.stage.call(END)
    await watch.run(15)
    entries = '{"success": true, "phoneCalls": [{"phoneNumber": "5550100001"}]}'
    watch.rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=200, body=entries))
    await watch.run(200)  # one answer in half a minute is looked at, and three are needed
    assert watch.fired["CallkeeperAssumptionWrong"] == [{"institution": KEY, "kind": "assumption_wrong"}]
    await watch.rig.redis.hset(Keys().survey, f"{KNOWN_FIELD}{KEY}", watch.rig.now_ms())  # as an acknowledgement does
    await watch.run(90)
    assert "CallkeeperAssumptionWrong" not in watch.fired


async def test_unresolved_effect(watch: Watch) -> None:
    """If a reject's answer was lost and its status overwritten, an alert asks a person to resolve it."""
    seen = Happening(Kind.VIEWED)
    watch.rig.stage.sandbox.faults.add(
        Fault(target="reject_voice", action=Action.RESET, applied=False, times=1, happening=seen)
    )
    call = watch.rig.stage.call(END)
    await watch.run(15)
    await watch.rig.note(call, Distrusted(operator="ann", said_at=watch.rig.clock.now))
    await watch.run(150)  # reads go on for a minute, and then the alert waits
    assert watch.fired == {"CallkeeperUnresolvedEffect": [{"reason": "reject unresolved"}]}


async def test_due_work_is_not_done(watch: Watch) -> None:
    """If workers report but do nothing, `CallkeeperLate` fires and `CallkeeperNoWorker` does not."""
    watch.rig.stage.call(END)
    await watch.run(15)
    await watch.stand_still(75)
    assert "CallkeeperLate" in watch.fired
    assert "CallkeeperNoWorker" not in watch.fired
    await watch.run(30)
    assert not watch.fired


async def test_emptied_redis(watch: Watch) -> None:
    """If Redis loses its data during a pause, `CallkeeperRedisReplaced` fires until the restored pause is resumed."""
    pause = Pause(scope=PauseScope.EFFECTS, operator="ops", because="odd enrolls", at=watch.rig.clock.now)
    await Pausing(watch.rig.redis).pause(None, pause)
    await watch.run(15)
    await watch.rig.redis.flushall()
    await watch.run(30)
    assert "CallkeeperRedisReplaced" in watch.fired
    await Pausing(watch.rig.redis).resume(None, operator="ops", because="over", at=watch.rig.clock.now)
    await watch.run(60)
    assert "CallkeeperRedisReplaced" not in watch.fired


async def test_service_that_fails(watch: Watch) -> None:
    """If the service answers only errors, `CallkeeperServiceAway` fires and no alert about late calls."""
    watch.rig.stage.call(END)
    await watch.run(15)
    watch.rig.stage.sandbox.faults.add(Fault(target="*", action=Action.ANSWER, status=500))
    await watch.run(150)
    assert set(watch.fired) == {"CallkeeperServiceAway"}
    watch.rig.stage.sandbox.faults.clear()
    await watch.run(60)
    assert not watch.fired


async def test_limit_that_is_too_low(watch: Watch) -> None:
    """Listings wait for permits, and the last one of a queue is minutes old; the alert ends with the next one."""
    figures = watch.rig.figures
    for _ in range(12):
        figures.count(figure.REQUESTS_POSTPONED, "listing")
        await watch.stand_still(15)
    assert watch.fired["CallkeeperRateLimited"] == [{"kind": "rate_limited"}]
    figures.count(figure.LISTINGS, KEY, "answered")
    figures.count(figure.REQUESTS_POSTPONED, "listing")
    await watch.stand_still(15)
    assert "CallkeeperRateLimited" not in watch.fired


async def test_no_worker(watch: Watch) -> None:
    """If no worker reports, `CallkeeperNoWorker` fires until one does."""
    watch.is_worker_alive = False
    await watch.stand_still(60)
    assert "CallkeeperNoWorker" in watch.fired
    watch.is_worker_alive = True
    await watch.run(15)
    assert "CallkeeperNoWorker" not in watch.fired


async def test_login_refused(watch: Watch) -> None:
    """If the service refuses the login, only the alert about the login fires."""
    watch.rig.stage.call(END)
    watch.rig.stage.sandbox.faults.add(Fault(target="token", action=Action.REFUSED))
    watch.rig.stage.world.state.tokens.clear()
    await watch.run(30)
    assert watch.fired["CallkeeperLoginRefused"] == [{"kind": "login_refused"}]
    assert "CallkeeperServiceAway" not in watch.fired, "only the cause is alerted, not its symptom"
    watch.rig.stage.sandbox.faults.clear()
    await watch.run(60)
    assert "CallkeeperLoginRefused" not in watch.fired


async def test_alerts_about_processes_and_receivers(watch: Watch) -> None:
    """Alerts about processes, versions, refused pushes, webhooks and the archive fire, and end with their cause."""
    redis, keys = watch.rig.redis, Keys()
    now_ms = watch.rig.now_ms()
    figures = watch.rig.figures
    await redis.hset(keys.unstarted, "worker:elsewhere", now_ms)
    for each in (keys.outbox, keys.archive):
        await redis.hset(each.breakers, "", f"5 {now_ms} {now_ms} failure")
    await watch.rig.listings.save_standings(
        [Standing(key="cu-9", status="Active", has_voice_auth=True, told_at=watch.rig.clock.now)]
    )
    figures.count(figure.PUSHES_REFUSED, "credentials", n=3)
    figures.count(figure.LISTINGS, "cu-9", "refused")
    token = {"CALLKEEPER_ACCESS_TOKEN": "token"}
    own, others = token | {"CALLKEEPER_OUTCOME_URL": ""}, token | {"CALLKEEPER_OUTCOME_URL": "core"}
    older = FigureWriter(Figures(), Author("old-1", "worker", "0.0.9", "abc", own), now_ms=watch.rig.now_ms)
    newer = FigureWriter(Figures(), Author("new-1", "worker", "0.1.0", "def", others), now_ms=watch.rig.now_ms)
    for _ in range(25):
        await older.write_async(redis)
        await newer.write_async(redis)
        figures.observe(figure.SERVICE_SECONDS, 3.0, "queue")
        figures.count(figure.PUSHES_REFUSED, "credentials")
        figures.count(figure.CALLS_PUSHED, "cu-9", "missing")
        figures.count(figure.LISTINGS, "cu-9", "refused")
        await watch.stand_still(15)
    expected = {
        *("CallkeeperProcessGone", "CallkeeperServiceSlow", "CallkeeperInstitutionFails"),
        *("CallkeeperPushesRefused", "CallkeeperReceiverAway", "CallkeeperArchiveAway"),
    }
    assert expected <= set(watch.fired)
    figures.observe(figure.SERVICE_SECONDS, 0.1, "queue")
    figures.count(figure.PUSHES, "sample")
    figures.count(figure.LISTINGS, "cu-9", "answered")
    await redis.delete(keys.unstarted, keys.outbox.breakers, keys.archive.breakers)
    await watch.stand_still(15)
    assert expected & set(watch.fired) == {"CallkeeperProcessGone"}, "the two workers report no more"
    assert "CallkeeperProcessesDiffer" not in watch.fired
    for _ in range(4 * 11):
        watch.rig.stage.advance(15)
        await older.write_async(redis)
        await newer.write_async(redis)
        await watch.scrape()
    assert watch.fired["CallkeeperProcessesDiffer"] == [{"kind": "processes_differ"}]


async def test_replica_that_falls_behind(watch: Watch) -> None:
    """If no replica confirms writes in time, `CallkeeperReplicaBehind` fires until ten minutes have gone well."""
    for _ in range(6):
        watch.rig.figures.count(figure.WRITES_UNREPLICATED)
        await watch.stand_still(15)
    assert watch.fired["CallkeeperReplicaBehind"] == [{"kind": "replica_behind"}]
    await watch.stand_still(660)
    assert "CallkeeperReplicaBehind" not in watch.fired


async def test_pause_that_was_forgotten(watch: Watch) -> None:
    """A pause of a day or more fires `CallkeeperPausedLong`, of one institution or of all, until it is resumed."""
    now = watch.rig.clock.now
    pausing = Pausing(watch.rig.redis)
    for key, hours in ((None, 25), ("cu-9", 25), ("cu-8", 23)):
        at = now - timedelta(hours=hours)
        await pausing.pause(key, Pause(scope=PauseScope.EFFECTS, operator="ops", because="odd enrolls", at=at))
    await watch.stand_still(15)
    fired = watch.fired["CallkeeperPausedLong"]
    assert sorted(series.get("institution", "") for series in fired) == ["", "cu-9"]
    for key in (None, "cu-9"):
        await pausing.resume(key, operator="ops", because="repaired", at=now)
    await watch.stand_still(15)
    assert "CallkeeperPausedLong" not in watch.fired


async def test_emergency_login(watch: Watch) -> None:
    """If the emergency login was used where people log in by name, `CallkeeperEmergencyLogin` fires."""
    await watch.rig.redis.set(Keys().emergency_login, watch.rig.clock.now.isoformat())
    await watch.stand_still(30)
    assert watch.fired["CallkeeperEmergencyLogin"] == [{"kind": "emergency_login"}]


async def test_redis_that_refuses_writes(watch: Watch) -> None:
    """If Redis refuses writes, only alerts about Redis fire, not those about missing reports."""
    watch.is_worker_alive = watch.is_web_alive = False
    await _limit(watch.rig.redis, 1)
    try:
        for _ in range(4):
            watch.rig.stage.advance(15)
            await watch.scrape()
    finally:
        await _limit(watch.rig.redis, 0)
    assert set(watch.fired) <= {"CallkeeperRedisRefuses", "CallkeeperRedisMemory"}
    assert "CallkeeperRedisRefuses" in watch.fired
    watch.is_worker_alive = watch.is_web_alive = True
    await watch.run(15)
    assert "CallkeeperRedisRefuses" not in watch.fired


async def test_budget_spent_early(watch: Watch) -> None:
    """If calls use up their checks long before the schedule's end (here: merged records), an alert fires."""
    calls = [watch.rig.stage.call(END) for _ in range(4)]
    await watch.run(30)
    for call in calls:
        member = CallId(KEY, call.voice_id).member
        await watch.rig.redis.hincrby(Keys().item(member), "checks", 16)  # as merge.lua does
        await watch.rig.note(call, Merged(call=Call(institution_key=KEY, voice_id="other", plan=Plan(checks_used=16))))
    await watch.run(30)
    assert watch.fired["CallkeeperBudgetSpentEarly"] == [{"institution": KEY}]


async def test_budget_spent_as_planned_is_no_alert(watch: Watch) -> None:
    """If a long call without a result uses up its checks as planned, no alert fires."""
    watch.rig.stage.call(END)
    await watch.run(300)
    totals = await watch.rig.counted()
    assert totals.counts["budget_spent"] == {(KEY, "planned"): 1}
    assert "CallkeeperBudgetSpentEarly" not in watch.fired


async def test_steps_that_raise_and_calls_that_are_parked(watch: Watch) -> None:
    """A step that raises is an alert at once; when the call is parked, a second alert asks for a person."""
    call = watch.rig.stage.call(END)
    watch.rig.shift.tools = replace(watch.rig.tools, service=Broken(watch.rig, call.voice_id))
    await watch.run(30)
    assert "CallkeeperStepsFail" in watch.fired
    await watch.run(90)
    assert watch.fired["CallkeeperNeedsPerson"] == [{"reason": "parked"}]


async def test_rule_that_asks(watch: Watch) -> None:
    """If a rule asks for a person, an alert names the rule until a person has resolved the call."""
    ask = Rule("another voice", (("voice_mismatch", True),), Outcome.ASK, "Is it really her?")
    book = replace(watch.rig.book, rules=(ask, *watch.rig.book.rules))
    watch.rig.shift.tools = replace(watch.rig.tools, book=book)
    call = watch.rig.stage.call(Happening(Kind.MISMATCH, 2), END)
    await watch.run(60)
    assert watch.fired == {"CallkeeperRuleAsks": [{"reason": "asked by rule 'another voice'"}]}
    await watch.rig.note(call, Resolved(applied=False, operator="ann", said_at=watch.rig.clock.now))
    await watch.run(30)
    assert not watch.fired


class Refusing:
    """An intake whose Redis refuses writes."""

    async def record(self, *_: object, **__: object) -> None:
        """Fail."""
        raise RedisError

    async def clear_wake(self) -> None:
        """Do nothing."""


async def test_pushes_that_are_not_recorded(watch: Watch, blocking_redis: BlockingRedis) -> None:
    """One push that was answered with 503 is enough for an alert."""
    authentication = PushAuthentication(parse_header_settings("X-Push-Key: sixteen-or-more-letters"))
    endpoint = PushEndpoint(
        authentication,
        Refusing(),  # type: ignore[arg-type]  # all of an intake that the endpoint uses
        Waker(blocking_redis),
        watch.rig.tools.log,
        pauses_s=(),
        counting=PushCounting(watch.rig.figures),
    )
    event = {"Type": "CallStart", "InstitutionKey": KEY, "VoiceId": "v-1"}
    app = Starlette(routes=[Route("/push", endpoint, methods=["POST"])])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://web") as client:
        answer = await client.post("/push", json=event, headers={"X-Push-Key": "sixteen-or-more-letters"})
    assert answer.status_code == 503
    await watch.run(15)
    assert "CallkeeperPushesNotRecorded" in watch.fired


async def test_web_process_that_does_not_answer(watch: Watch) -> None:
    """If scrapes fail for a minute, `CallkeeperDown` fires."""
    for _ in range(6):
        watch.rig.stage.advance(15)
        await watch.scrape(fails=True)
    assert "CallkeeperDown" in watch.fired


async def test_web_process_that_is_not_scraped(watch: Watch) -> None:
    """If Prometheus has no such job, or lost it, `CallkeeperDown` fires: without figures no other alert can."""
    for _ in range(6):
        watch.rig.stage.advance(15)
        watch.scrapes.append({})
    assert "CallkeeperDown" in watch.fired


async def test_redis_memory_runs_out(rig: Rig) -> None:
    """If four fifths of Redis's memory limit are used, an alert fires; without a limit there is none."""
    watch, redis = Watch(rig), rig.redis
    await watch.run(15)
    used = (await redis.info("memory"))["used_memory"]
    assert not watch.fired
    await _limit(redis, int(used * 1.15))
    try:
        for _ in range(22):
            watch.rig.stage.advance(15)
            await watch.scrape()
    finally:
        await _limit(redis, 0)
    assert "CallkeeperRedisMemory" in watch.fired


async def _limit(redis: Redis, limit: int) -> None:
    await redis.config_set("maxmemory", limit)


def test_alert_annotations_name_no_call() -> None:
    """Alerts leave the system, so their texts may name institutions, rules and reasons, but no call."""
    words = " ".join(text for rule in alert_rules() for text in rule["annotations"].values())
    assert "voice_id" not in words
    assert CallId(KEY, "v").member not in words
    assert Keys().prefix + ":" not in words
