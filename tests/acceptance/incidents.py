"""Incidents with real processes, and what the board, the doctor, metrics, alerts and /readyz must show."""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from html import unescape

import httpx
from click.testing import CliRunner

from callkeeper.app.cli import main
from tests.acceptance import troubles
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
    """

    name: str
    happens: Callable[[Stack], AbstractContextManager[None]]
    title: str
    kind: str
    doctor: str
    alert: str
    ready: int = 200
    blind: bool = False


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


def assert_told(case: Case, stack: Stack) -> None:
    """Cause an incident. Assert that everything shows only this incident in time, and then its end."""
    watchers = Watchers(stack)
    try:
        _told(case, watchers)
    except AssertionError as error:
        error.add_note(f"alarms: {watchers.alarms()}")
        raise
    finally:
        watchers.http.close()


def _told(case: Case, watchers: Watchers) -> None:
    until(lambda: "Nothing needs a person" in watchers.board(), 30, "a board without alarms")
    with case.happens(watchers.stack):
        began = time.monotonic()
        longest_s = WITHIN_S + _LENIENT_S
        until(lambda: case.title in watchers.board(), longest_s, f"the board to say {case.title!r}")
        until(lambda: watchers.ready() == case.ready, longest_s, f"/readyz to answer {case.ready}")
        until(lambda: case.alert in watchers.raised(), longest_s, case.alert)
        within_s = time.monotonic() - began
        if not case.blind:
            assert watchers.kinds() == {case.kind}, watchers.kinds()
            assert watchers.alarms().count('<li id="a-') == 1, "not only the cause is shown"
            anchor = f"/board/operations#incident-{case.kind.replace('_', '-')}"
            until(lambda: anchor in watchers.advice(), longest_s, "the page of incidents to say what to do")
        assert watchers.raised() - {"CallkeeperRedisMemory"} == {case.alert}, watchers.raised()
        assert case.doctor in (told := watchers.doctor()), told
        assert case.title in watchers.board(), "the doctor's checks must not end the alarm"
    began = time.monotonic()
    until(lambda: _is_well(case, watchers.board()), longest_s, "the alarm to end")
    until(lambda: watchers.ready() == 200, longest_s, "/readyz to be ready")
    until(lambda: not watchers.raised(), longest_s, "the alert to end")
    assert within_s <= WITHIN_S
    assert time.monotonic() - began <= WITHIN_S


def _is_well(case: Case, board: str) -> bool:
    return "Nothing needs a person" in board and case.title not in board


INCIDENTS = (
    Case(
        "Redis full",
        troubles.redis_full,
        "Redis refuses writes: it is full",
        "redis_refuses",
        "incident redis refuses",
        "CallkeeperRedisRefuses",
        503,
    ),
    Case(
        "Redis frozen", troubles.redis_frozen, "Redis does not answer", "", "redis", "CallkeeperDown", 503, blind=True
    ),
    Case(
        "workers dead",
        troubles.workers_dead,
        "No worker is alive",
        "no_worker",
        "incident no worker",
        "CallkeeperNoWorker",
    ),
    Case(
        "service unreachable",
        troubles.service_unreachable,
        "The service is away",
        "service_away",
        "incident service away",
        "CallkeeperServiceAway",
    ),
    Case(
        "one institution refused",
        troubles.trouble("*", action="unauthorized", institution_key="cu-1"),
        "The service refuses an institution",
        "institution_fails",
        "incident institution fails cu-1",
        "CallkeeperInstitutionFails",
    ),
    Case(
        "push header wrong",
        troubles.header_wrong,
        "Pushes are refused: wrong header",
        "pushes_refused",
        "incident pushes refused",
        "CallkeeperPushesRefused",
    ),
    Case(
        "receiver down",
        troubles.receiver_down,
        "The webhook receiver does not answer",
        "receiver_away",
        "incident receiver away",
        "CallkeeperReceiverAway",
    ),
)
"""One for each family of causes; tests/faults/test_alert_rules.py has every cause, in virtual time."""
FREQUENT = INCIDENTS[::2]
"""Those that run for every change; all of them run at night."""
