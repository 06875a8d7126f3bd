"""Incidents with real processes, and what the board, the doctor, metrics, alerts and /readyz must show."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import httpx
from click.testing import CliRunner
from redis.asyncio import Redis

from callkeeper.app.cli import main
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.store.keys import Keys
from tests.acceptance import quiet_troubles, troubles
from tests.harness.processes import Stack
from tests.promtool import firing, scrape_of
from tests.waiting import until

WITHIN_S = 15.0
"""Everything must show an incident, and later its end, within this time."""

_LENIENT_S = 10.0
"""How much longer than the limit a test waits, so that a failure shows how late a display was."""


@dataclass(frozen=True)
class Case:
    """One incident.

    The incident lasts as long as the block of ``happens``. ``title`` is the alarm's text on the board, ``kind`` the
    metric's label, ``doctor`` the doctor's line that is not ``ok``, ``alert`` the Prometheus alert (without its waiting
    time), and ``ready`` the status of /readyz.
    ``blind``: Redis cannot be read, so the board and /metrics show only that.
    ``dark``: No web process answers. Only the doctor, messages and the failing scrape can tell it.
    ``is_note``: the board shows a note instead of an alarm.
    ``within_s``, ``over_within_s``: how long it may take until everything shows it, and its end.
    """

    name: str
    happens: Callable[[Stack], AbstractContextManager[None]]
    title: str
    kind: str
    doctor: str
    alert: str
    ready: int = 200
    blind: bool = False
    dark: bool = False
    is_note: bool = False
    within_s: float = WITHIN_S
    over_within_s: float = WITHIN_S


class Watchers:
    """Reads everything that shows incidents of an installation."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        user, _, password = stack.demo.admin.partition(":")
        self.http = httpx.Client(base_url=stack.demo.web_url, auth=(user, password), trust_env=False, timeout=10)

    def _get(self, path: str) -> httpx.Response:
        """Return an answer; one with status 0 if nobody answers."""
        try:
            return self.http.get(path)
        except httpx.TransportError:
            return httpx.Response(0)

    def board(self) -> str:
        """Return the board's page; empty if nobody answers."""
        return unescape(self._get("/board").text)

    def told(self) -> dict[str, str]:
        """Return the titles of the incidents by kind, as a worker reads them for its messages."""
        return asyncio.run(self._read())

    async def _read(self) -> dict[str, str]:
        async with Redis.from_url(self.stack.redis_url) as redis:
            found = incidents_of(await SignalReader(redis, Keys()).read())
        return {incident.kind.value: incident.title for incident in found}

    def alarms(self) -> str:
        """Return the board's alarms."""
        return self.board().partition('id="alarms"')[2].partition("</section>")[0]

    def advice(self) -> str:
        """Return the page of incidents, to which the board's alarms lead."""
        return unescape(self.http.get("/board/incidents").text)

    def metrics(self) -> str:
        """Return the exported metrics; empty if Redis or the web process does not answer."""
        answer = self._get("/metrics")
        return answer.text if answer.status_code == 200 else ""

    def kinds(self) -> set[str]:
        """Return the kinds of incidents in the metrics."""
        lines = [line for line in self.metrics().splitlines() if line.startswith("callkeeper_incident{")]
        return {line.partition('kind="')[2].partition('"')[0] for line in lines if line.endswith(" 1.0")}

    def raised(self) -> set[str]:
        """Return the alerts whose condition holds."""
        return set(firing([scrape_of(self.metrics() or None)], is_patient=False))

    def doctor(self, **changed: str) -> dict[str, str]:
        """Return the doctor's findings that are not ``ok``, with their remedies, by subject."""
        environ = {**self.stack.demo.environ, **changed}
        told = CliRunner().invoke(main, ["doctor", "--json"], env=dict(environ))
        rows = [json.loads(line) for line in told.stdout.splitlines()]
        return {row["what"]: f"{row['detail']}: {row['remedy']}" for row in rows if row["state"] != "ok"}

    def ready(self) -> int:
        """Return the status of /readyz."""
        return self._get("/readyz").status_code


@dataclass(frozen=True)
class Told:
    """The seconds until everything showed an incident, and the seconds until everything showed its end."""

    name: str
    within_s: float
    over_within_s: float


def assert_told(case: Case, stack: Stack) -> Told:
    """Cause an incident. Assert that everything shows only this incident in time, and then its end."""
    watchers = Watchers(stack)
    try:
        return _told(case, watchers)
    except AssertionError as error:
        error.add_note(f"alarms: {watchers.alarms()}")
        raise
    finally:
        watchers.http.close()


def _told(case: Case, watchers: Watchers) -> Told:
    until(lambda: "Nothing needs a person" in watchers.board(), 30, "a board without alarms")
    with case.happens(watchers.stack):
        began = time.monotonic()
        longest_s = case.within_s + _LENIENT_S
        if case.dark:
            until(lambda: watchers.told() == {case.kind: case.title}, longest_s, f"workers to say {case.title!r} alone")
        else:
            until(lambda: case.title in watchers.board(), longest_s, f"the board to say {case.title!r}")
        until(lambda: watchers.ready() == case.ready, longest_s, f"/readyz to answer {case.ready}")
        until(lambda: case.alert in watchers.raised(), longest_s, case.alert)
        within_s = time.monotonic() - began
        if not case.blind and not case.dark:
            assert watchers.kinds() == {case.kind}, watchers.kinds()
            assert watchers.alarms().count('<li id="a-') == (0 if case.is_note else 1), "not only the cause is shown"
            anchor = f"/board/operations#incident-{case.kind.replace('_', '-')}"
            until(
                lambda: case.is_note or anchor in watchers.advice(),
                longest_s,
                "the page of incidents to say what to do",
            )
        assert watchers.raised() - {"CallkeeperRedisMemory"} == {case.alert}, watchers.raised()
        assert case.doctor in (told := watchers.doctor()), told
        assert not case.dark or told.keys() == {"web", "web from outside"}, told
        if case.dark:
            assert watchers.told() == {case.kind: case.title}, "the doctor's checks must not end the incident"
        else:
            assert case.title in watchers.board(), "the doctor's checks must not end the alarm"
            shoot(case.name, watchers)
    began, longest_s = time.monotonic(), case.over_within_s + _LENIENT_S
    until(lambda: _is_well(case, watchers.board()), longest_s, "the alarm to end")
    until(lambda: watchers.ready() == 200, longest_s, "/readyz to be ready")
    until(lambda: not watchers.raised(), longest_s, "the alert to end")
    told_in = Told(case.name, within_s, time.monotonic() - began)
    assert told_in.within_s <= case.within_s, told_in
    assert told_in.over_within_s <= case.over_within_s, told_in
    return told_in


def _is_well(case: Case, board: str) -> bool:
    return "Nothing needs a person" in board and case.title not in board


def shoot(name: str, watchers: Watchers) -> None:
    """If ``TEST_SHOTS`` names a folder, save screenshots of the board: light on a desktop, dark on a phone."""
    if not os.environ.get("TEST_SHOTS"):
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (screenshots are taken at night only)

    from tests.harness.browser import launch  # noqa: PLC0415

    folder = Path(os.environ["TEST_SHOTS"])
    folder.mkdir(parents=True, exist_ok=True)
    looks: dict[str, dict[str, Any]] = {
        "": {"viewport": {"width": 1440, "height": 900}},
        "-phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
    }
    user, _, password = watchers.stack.demo.admin.partition(":")
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for look, how in looks.items():
            page = browser.new_page(http_credentials={"username": user, "password": password}, **how)
            page.goto(f"{watchers.stack.demo.web_url}/board")
            page.locator("#link.live, #link.cut").wait_for()  # the stream has said how things are
            page.screenshot(path=folder / f"{name.replace(' ', '-')}{look}.png")
        browser.close()


INCIDENTS = (
    Case("workers dead", troubles.workers_dead, "No worker is alive", "no_worker", "workers", "CallkeeperNoWorker"),
    Case(
        "Redis full",
        troubles.redis_full,
        "Redis refuses writes: it is full",
        "redis_refuses",
        "redis writes",
        "CallkeeperRedisRefusesWrites",
        503,
    ),
    Case(
        "Redis emptied",
        troubles.redis_emptied,
        "Redis was replaced",
        "redis_replaced",
        "redis",
        "CallkeeperRedisReplaced",
    ),
    Case(
        "login refused",
        troubles.login_refused,
        "The service refuses our login",
        "login_refused",
        "login",
        "CallkeeperLoginRefused",
    ),
    Case(
        "push header wrong",
        troubles.header_wrong,
        "Pushes are refused: wrong header",
        "pushes_refused",
        "pushes",
        "CallkeeperPushesRefused",
    ),
    Case("web dead", troubles.web_dead, "No web process is alive", "no_web", "web", "CallkeeperDown", 0, dark=True),
    Case(
        "Redis frozen", troubles.redis_frozen, "Redis does not answer", "", "redis", "CallkeeperDown", 503, blind=True
    ),
    Case(
        "Redis killed", troubles.redis_killed, "Redis does not answer", "", "redis", "CallkeeperDown", 503, blind=True
    ),
    Case(
        "account locked",
        troubles.account_locked,
        "The service refuses our login",
        "login_refused",
        "login",
        "CallkeeperLoginRefused",
    ),
    Case(
        "service unreachable",
        troubles.service_unreachable,
        "The service is away",
        "service_away",
        "breaker",
        "CallkeeperServiceAway",
    ),
    Case(
        "service slow",
        troubles.trouble("*", action="pass", latency_s=2.5),
        "The service is slow",
        "service_slow",
        "service",
        "CallkeeperServiceSlow",
    ),
    Case(
        "service limits requests",
        troubles.trouble("queue", status=429, headers={"Retry-After": "15"}, institution_key="cu-1", times=1),
        "The service limits our requests",
        "rate_limited",
        "breaker cu-1",
        "CallkeeperInstitutionTrouble",
    ),
    Case(
        "one institution refused",
        troubles.trouble("*", action="unauthorized", institution_key="cu-1"),
        "The service refuses an institution",
        "institution_refused",
        "breaker cu-1",
        "CallkeeperInstitutionTrouble",
    ),
    Case(
        "listings refused",
        troubles.listings_refused,
        "The service does not list",
        "listing_refused",
        "queue cu-1",
        "CallkeeperInstitutionTrouble",
    ),
    Case(
        "faulty rulebook",
        troubles.faulty_rules,
        "A worker process did not start",
        "not_started",
        "settings",
        "CallkeeperNotStarted",
    ),
    Case(
        "other rules",
        troubles.other_rules,
        "Worker processes use different rules",
        "rules_differ",
        "rules",
        "CallkeeperRulesDiffer",
    ),
    Case(
        "other settings",
        troubles.other_settings,
        "Workers have different settings",
        "settings_differ",
        "settings",
        "CallkeeperSettingsDiffer",
    ),
    Case(
        "other installation",
        troubles.other_installation,
        "Another installation works with our account",
        "account_shared",
        "workers of another installation",
        "CallkeeperAccountShared",
    ),
    Case("clocks apart", troubles.clock_ahead, "Clocks differ", "clocks_apart", "clock", "CallkeeperProcessesDiffer"),
    Case(
        "two releases",
        troubles.other_release,
        "releases 0.0.9 and",
        "versions_differ",
        "releases",
        "CallkeeperProcessesDiffer",
        is_note=True,
    ),
    Case(
        "receiver down",
        troubles.receiver_down,
        "The webhook receiver does not answer",
        "receiver_away",
        "outcomes",
        "CallkeeperReceiverAway",
    ),
    Case(
        "voices pending",
        quiet_troubles.voices_pending,
        "Checks bring no results",
        "no_results",
        "service cu-2",
        "CallkeeperNoResults",
        within_s=60,
        over_within_s=30,
    ),
    Case(
        "calls unlisted",
        quiet_troubles.calls_unlisted,
        "Pushed calls are never listed",
        "not_listed",
        "queue cu-2",
        "CallkeeperNotListed",
        within_s=60,
    ),
    Case(
        "requests fail",
        quiet_troubles.requests_fail_between_others,
        "Many requests to the service fail",
        "requests_fail",
        "service",
        "CallkeeperRequestsFail",
        within_s=40,
        over_within_s=45,
    ),
    Case(
        "in review",
        quiet_troubles.in_review,
        "An institution with calls is not active",
        "not_active",
        "institutions cu-2",
        "CallkeeperNotActive",
        within_s=120,
        over_within_s=120,
    ),
    Case(
        "worker killed",
        quiet_troubles.worker_killed,
        "A worker process vanished",
        "worker_vanished",
        "workers",
        "CallkeeperWorkerVanished",
    ),
    Case(
        "worker cut off",
        quiet_troubles.worker_cut_off,
        "cannot reach the service; others can",
        "worker_cut_off",
        "workers",
        "CallkeeperWorkerCutOff",
        within_s=30,
    ),
    Case(
        "policies unheard of",
        quiet_troubles.policies_unheard_of,
        "Unknown policies or statuses",
        "policies_unknown",
        "rules cu-2",
        "CallkeeperPoliciesUnknown",
        within_s=30,
        over_within_s=120,
    ),
    Case(
        "pushes unreadable",
        quiet_troubles.pushes_unreadable,
        "The service behaves differently than assumed",
        "assumption_wrong",
        "service",
        "CallkeeperAssumptionWrong",
        over_within_s=120,
    ),
    Case(
        "pushes dropped",
        quiet_troubles.pushes_dropped,
        "No pushes arrive",
        "no_push",
        "pushes cu-2",
        "CallkeeperNoPush",
        within_s=30,
    ),
    Case(
        "one header wrong",
        quiet_troubles.one_header_wrong,
        "Pushes of an institution are refused: wrong header",
        "pushes_refused",
        f"pushes {quiet_troubles.ELSEWHERE}",
        "CallkeeperInstitutionTrouble",
        within_s=60,
        over_within_s=120,
    ),
)
FREQUENT = INCIDENTS[:5]
"""The most frequent incidents, which run for every change; all of them run at night."""
