"""Which alerts are sent to whom, when, and the message at their end."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from callkeeper.calls.acknowledgement import Acknowledgement
from callkeeper.calls.alerts import Alert, AlertMessage, OpenAlert, Target, alerts_of, messages, note_taken, watched
from callkeeper.calls.causes import CAUSES, IncidentKind, Weight
from callkeeper.calls.incident import Incident

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
CHAT, PAGER = Target("1"), Target("2", is_page_only=True)


def alert(key: str = "no_worker", *, weight: Weight = Weight.PAGE, size: int = 1) -> Alert:
    """Return an alert."""
    told_after_s = CAUSES[IncidentKind(key)].told_after.total_seconds() if key in set(IncidentKind) else 15.0
    section = f"incident-{key}"
    return Alert(
        key=key, title=f"{key}!", advice="Do.", weight=weight, section=section, size=size, told_after_s=told_after_s
    )


class Watcher:
    """Looks every three seconds; every message is taken."""

    def __init__(self, *targets: Target) -> None:
        self.targets = targets or (CHAT,)
        self.open_alerts: dict[str, OpenAlert] = {}
        self.now = NOON
        self.told: list[AlertMessage] = []

    def look(
        self, *alerts: Alert, seconds: float, hidden: Collection[IncidentKind] = ()
    ) -> list[tuple[str, str, bool]]:
        """Let some seconds pass in which this is wrong, and hides other kinds; return who was told what."""
        before = len(self.told)
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            self.now += timedelta(seconds=3)
            self.open_alerts = watched(self.open_alerts, alerts, self.now, hidden=hidden)
            self.take(messages(self.open_alerts, self.targets, self.now, place="https://ck.example"))
        return [(each.target, each.key, each.is_over) for each in self.told[before:]]

    def take(self, due: Iterable[AlertMessage]) -> None:
        """Take messages."""
        for message in list(due):
            note_taken(self.open_alerts, message, self.now)
            self.told.append(message)


def test_alert_is_told_once_and_that_it_is_over_once() -> None:
    """A lasting problem gives one message after a delay and one at its end; then it is forgotten."""
    watcher = Watcher()
    assert watcher.look(alert(), seconds=12) == []
    assert watcher.look(alert(), seconds=600) == [("1", "no_worker", False)]
    assert watcher.look(seconds=600) == [("1", "no_worker", True)]
    assert watcher.open_alerts == {}
    first, last = watcher.told
    assert (first.title, last.title) == ("callkeeper: no_worker!", "callkeeper: over: no_worker!")
    assert "https://ck.example/board/operations#incident-no_worker" in first.body
    assert "10 minutes" in last.body


def test_message_says_since_when_as_the_board_does() -> None:
    """A problem begins before it is an incident. A beginning in the future is that of a clock that was set back since."""
    watcher = Watcher()
    began_at = watcher.now - timedelta(minutes=5)
    watcher.look(structs.replace(alert(), began_at=began_at), seconds=60)
    watcher.look(seconds=60)
    first, last = watcher.told
    assert f"Since {began_at:%Y-%m-%d %H:%M:%S} UTC." in first.body
    assert "It lasted 6 minutes." in last.body
    watched_at = watcher.now + timedelta(seconds=3)
    watcher.look(structs.replace(alert(), began_at=watcher.now + timedelta(hours=1)), seconds=60)
    assert f"Since {watched_at:%Y-%m-%d %H:%M:%S} UTC." in watcher.told[-1].body


def test_what_passes_at_once_is_told_to_nobody() -> None:
    """Replacing a worker raises no alert, however often."""
    watcher = Watcher()
    for _ in range(20):
        assert watcher.look(alert(), seconds=9) == []
        assert watcher.look(seconds=9) == []


def test_what_differs_during_a_deployment_is_told_to_nobody() -> None:
    """New rules, settings or releases raise no alert unless they differ for ten minutes."""
    watcher, kind = Watcher(), "processes_differ"
    differ = alert(kind, weight=Weight.TICKET)
    assert watcher.look(differ, seconds=590) == []
    assert watcher.look(seconds=60) == []
    assert watcher.look(differ, seconds=660) == [("1", kind, False)]
    assert watcher.look(seconds=60) == [("1", kind, True)]


def test_alert_that_flaps_is_told_once() -> None:
    """A problem that is absent for a moment and comes back has not ended."""
    watcher = Watcher()
    watcher.look(alert(), seconds=30)
    for _ in range(20):
        assert watcher.look(seconds=6) == []
        assert watcher.look(alert(), seconds=30) == []


def test_alert_that_comes_again_is_a_new_one_whoever_was_not_told_of_the_end() -> None:
    """An address was taken out of the settings meanwhile, or has accepted nothing since: the others need not know."""
    watcher = Watcher(CHAT, PAGER)
    watcher.look(alert(), seconds=30)
    watcher.targets = (CHAT,)
    assert watcher.look(seconds=600) == [("1", "no_worker", True)]
    again_at = watcher.now
    assert watcher.look(alert(), seconds=12) == []
    assert watcher.look(alert(), seconds=12) == [("1", "no_worker", False)]
    assert f"Since {again_at + timedelta(seconds=3):%Y-%m-%d %H:%M:%S} UTC." in watcher.told[-1].body


def test_what_lasts_is_told_again_after_hours() -> None:
    """A reminder is sent every four hours, not sooner."""
    watcher = Watcher()
    told = watcher.look(alert(), seconds=9 * 3600)
    assert told == [("1", "no_worker", False)] * 3


def test_acknowledged_alert_is_told_to_nobody_until_its_end() -> None:
    """While somebody knows, nothing is repeated. Afterwards it is told again at once, and once that it is over."""
    watcher, known = Watcher(), structs.replace(alert(), is_acknowledged=True)
    assert watcher.look(alert(), seconds=60) == [("1", "no_worker", False)]
    assert watcher.look(known, seconds=5 * 3600) == []
    assert watcher.look(alert(), seconds=60) == [("1", "no_worker", False)]
    assert watcher.look(known, seconds=60) == []
    assert watcher.look(seconds=60) == [("1", "no_worker", True)]


def test_alert_that_is_acknowledged_first_is_told_only_afterwards() -> None:
    """Nobody hears of what was acknowledged before it was told, nor of its end."""
    watcher, known = Watcher(), structs.replace(alert(), is_acknowledged=True)
    assert watcher.look(known, seconds=600) == []
    assert watcher.look(seconds=60) == []
    watcher.look(known, seconds=60)
    assert watcher.look(alert(), seconds=60) == [("1", "no_worker", False)]


def test_message_has_the_words_of_the_last_error() -> None:
    """Whoever is woken reads why requests fail."""
    incident = Incident(IncidentKind.SERVICE_AWAY, remedy="Wait.", last_error="status 503")
    assert alerts_of([incident], {})[0].advice == "Wait. Last error: status 503."


def test_what_grows_is_told_again_after_minutes() -> None:
    """More calls that need a person give another message, fewer do not."""
    watcher = Watcher()
    watcher.look(alert("attention", size=2), seconds=30)
    assert watcher.look(alert("attention", size=3), seconds=240) == []
    assert watcher.look(alert("attention", size=3), seconds=120) == [("1", "attention", False)]
    assert watcher.look(alert("attention", size=1), seconds=3000) == []


def test_what_grows_after_it_shrank_is_told_again() -> None:
    """Ten need a person, then two, then five: three of these were never told."""
    watcher = Watcher()
    watcher.look(alert("attention", size=10), seconds=30)
    assert watcher.look(alert("attention", size=2), seconds=400) == []
    assert watcher.look(alert("attention", size=5), seconds=30) == [("1", "attention", False)]


def of(*keys: str, known: Iterable[str] = ()) -> list[Alert]:
    """Return the alerts about institutions of which no pushes arrive; of those that are known, nobody is told."""
    found = [Incident(IncidentKind.NO_PUSH, "Look.", key) for key in keys]
    found += [
        Incident(IncidentKind.NO_PUSH, "Look.", key, acknowledged=KNOWN, headline="No pushes arrive")
        for key in sorted(known)
    ]
    return alerts_of(found, {})


MANY = "no_push:* No pushes arrive"
KNOWN = Acknowledgement(kind="no_push", operator="ann", at=NOON, until=NOON + timedelta(days=1))


def test_same_trouble_of_many_institutions_is_one_message() -> None:
    """Forty institutions are one message that names some of them. Those that were told alone are not called over."""
    watcher = Watcher()
    assert watcher.look(*of("cu-1", "cu-2"), seconds=60) == [("1", "no_push:cu-1", False), ("1", "no_push:cu-2", False)]
    many = of(*(f"cu-{n}" for n in range(40)))
    assert watcher.look(*many, seconds=60) == [("1", MANY, False)]
    assert "40 institutions: cu-0, cu-1, " in watcher.told[-1].body
    assert "and 32 more" in watcher.told[-1].body
    assert watcher.look(seconds=60) == [("1", MANY, True)]


def test_group_that_gets_smaller_is_not_over() -> None:
    """If one of three is acknowledged or ends, the others were told already, and what lasts is not called over."""
    watcher = Watcher()
    assert watcher.look(*of("cu-1", "cu-2", "cu-3"), seconds=60) == [("1", MANY, False)]
    assert watcher.look(*of("cu-2", "cu-3", known=["cu-1"]), seconds=600) == []
    assert watcher.look(*of("cu-2", known=["cu-1"]), seconds=60) == [("1", "no_push:cu-3", True)]
    assert watcher.look(*of("cu-1", "cu-2"), seconds=60) == [("1", "no_push:cu-1", False)]
    assert watcher.look(seconds=60) == [("1", "no_push:cu-1", True), ("1", "no_push:cu-2", True)]
    assert watcher.open_alerts == {}


def test_institutions_that_take_the_place_of_others_are_told() -> None:
    """Three that fail instead of three others are told after minutes, as those are that join them.

    One that comes back is not told twice.
    """
    watcher = Watcher()
    keys = [f"cu-{n}" for n in range(9)]
    assert watcher.look(*of(*keys[:6]), seconds=60) == [("1", MANY, False)]
    assert watcher.look(*of(*keys[:4]), seconds=400) == []
    assert watcher.look(*of(*keys[:5]), seconds=400) == []
    assert watcher.look(*of(*keys[3:]), seconds=60) == [("1", MANY, False)]
    assert "cu-6, cu-7, cu-8" in watcher.told[-1].body


def failing(*parts: str, is_known: bool = False) -> list[Alert]:
    """Return the alert about an institution that fails in these ways."""
    known = structs.replace(KNOWN, kind="institution_fails", parts=parts) if is_known else None
    one = Incident(IncidentKind.INSTITUTION_FAILS, "Ask.", "cu-1", headline=parts[0], parts=parts, acknowledged=known)
    return alerts_of([one], {})


FAILS = [("1", "institution_fails:cu-1", False)]


def test_outage_that_joins_a_chronic_fault_is_told() -> None:
    """The service has refused something for hours and people know. If it then fails, they are told when that lasts.

    So it is if it fails again, and if they have acknowledged the first fault. A failure of a moment is not told.
    """
    watcher = Watcher()
    assert watcher.look(*failing("refused"), seconds=30) == FAILS
    assert watcher.look(*failing("refused"), seconds=600) == []
    for _ in range(2):
        assert watcher.look(*failing("away", "refused"), seconds=9) == []
        assert watcher.look(*failing("refused"), seconds=600) == []
        assert watcher.look(*failing("away", "refused"), seconds=600) == FAILS
        assert watcher.look(*failing("refused"), seconds=600) == []
    assert watcher.look(*failing("refused", is_known=True), seconds=20_000) == []
    assert watcher.look(*failing("away", "refused"), seconds=9) == []
    assert watcher.look(*failing("refused", is_known=True), seconds=600) == []
    assert watcher.look(*failing("away", "refused"), seconds=600) == FAILS
    assert watcher.look(*failing("refused", is_known=True), seconds=600) == []


def test_two_groups_of_one_kind_are_both_told() -> None:
    """Of three institutions no pushes arrive, of three others they arrive late: each is told, and its end."""
    watcher = Watcher()
    late = [Incident(IncidentKind.NO_PUSH, "Ask.", f"cu-{n}", headline="Pushes arrive late") for n in (4, 5, 6)]
    both = [*of("cu-1", "cu-2", "cu-3"), *alerts_of(late, {})]
    told = watcher.look(*both, seconds=60)
    assert told == [("1", MANY, False), ("1", "no_push:* Pushes arrive late", False)]
    assert watcher.look(*both[:1], seconds=60) == [("1", "no_push:* Pushes arrive late", True)]


def test_what_a_cause_hides_is_neither_over_nor_forgotten() -> None:
    """The service seems away every few seconds, because it fails for many: what fails is told. It ends when it ends."""
    watcher, away = Watcher(), IncidentKind.INSTITUTION_FAILS
    for _ in range(2):
        assert watcher.look(alert(away), seconds=5) == []
        assert watcher.look(alert("service_away"), seconds=1, hidden=[away]) == []
    assert watcher.look(alert(away), seconds=5) == [("1", away, False)]
    assert watcher.look(alert("service_away"), seconds=60, hidden=[away]) == [("1", "service_away", False)]
    assert watcher.look(seconds=60) == [("1", "service_away", True), ("1", away, True)]
    watcher.look(alert(away), seconds=5)
    assert watcher.look(alert("service_away"), seconds=60, hidden=[away]) == [("1", "service_away", False)]


def test_group_that_is_acknowledged_hides_no_other_group() -> None:
    """Three that fail later are told, although three others are acknowledged."""
    watcher, known = Watcher(), ["cu-1", "cu-2", "cu-3"]
    assert watcher.look(*of(*known), seconds=60) == [("1", MANY, False)]
    assert watcher.look(*of(known=known), seconds=600) == []
    assert watcher.look(*of("cu-4", "cu-5", "cu-6", known=known), seconds=60) == [("1", MANY, False)]


def test_clock_that_goes_back_delays_no_alert_and_no_end() -> None:
    """After Redis's clock has gone back an hour, alerts and their ends are still sent within seconds."""
    watcher = Watcher()
    watcher.look(alert(), seconds=6)
    watcher.now -= timedelta(hours=1)
    assert watcher.look(alert(), seconds=30) == [("1", "no_worker", False)]
    watcher.look(seconds=3)
    watcher.now -= timedelta(hours=1)
    assert watcher.look(seconds=30) == [("1", "no_worker", True)]


def test_pager_is_told_only_of_what_needs_somebody_now() -> None:
    """A target marked page= gets only urgent alerts and their ends."""
    watcher = Watcher(CHAT, PAGER)
    both = (alert(), alert("late", weight=Weight.TICKET))
    told = watcher.look(*both, seconds=30)
    assert set(told) == {("1", "no_worker", False), ("1", "late", False), ("2", "no_worker", False)}
    assert set(watcher.look(seconds=30)) == {("1", "no_worker", True), ("1", "late", True), ("2", "no_worker", True)}


def test_alerts_are_the_incidents_that_matter_and_what_needs_a_person() -> None:
    """Alerts are all incidents, and one alert with the number of calls that need a person."""
    incidents = [
        Incident(IncidentKind.NO_WORKER, "Start workers.", headline="No worker is alive"),
        Incident(IncidentKind.NO_PUSH, "Look.", "cu-1", headline="No push comes"),
        Incident(IncidentKind.NO_PUSH, "Look.", "cu-2", headline="No push comes"),
    ]
    attention = {"c:cu-1:v-1": "enroll unresolved", "c:cu-1:v-2": "parked", "c:cu-1:v-3": "parked"}
    found = alerts_of(incidents, attention)
    assert [each.key for each in found] == ["no_worker", "no_push:cu-1", "no_push:cu-2", "attention"]
    assert (found[-1].title, found[-1].size) == ("3 items need a person", 3)
    assert found[-1].advice.startswith("1 enroll unresolved, 2 parked.")
    refused = {f"c:cu-1:v-{n}": f"enroll refused by the service: refused: try in {n} s" for n in range(2)}
    assert alerts_of([], refused)[0].advice.startswith("2 enroll refused by the service.")
    asks = {"c:cu-1:v-1": "asked by rule 'enroll refused by the service: look'"}
    assert alerts_of([], asks)[0].advice.startswith("1 asked by rule 'enroll refused by the service: look'.")
    assert "v-1" not in str(found)


@given(st.lists(st.tuples(st.booleans(), st.integers(3, 120)), max_size=30))
def test_every_alert_that_was_told_ends_with_one_message(story: list[tuple[bool, int]]) -> None:
    """Whatever comes and goes, alerts and their ends alternate, and at the end nothing is open."""
    watcher = Watcher()
    for is_wrong, seconds in story:
        watcher.look(*([alert()] if is_wrong else []), seconds=seconds)
    watcher.look(seconds=60)
    states = [message.is_over for message in watcher.told]
    assert states == [False, True] * (len(states) // 2)
    assert watcher.open_alerts == {}
