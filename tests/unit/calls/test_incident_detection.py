"""Each incident follows from its signal, ends with its cause, and is listed before its symptoms."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from callkeeper.calls.acknowledgement import Acknowledgement
from callkeeper.calls.alerts import alerts_of
from callkeeper.calls.causes import CAUSES, IncidentKind, Weight
from callkeeper.calls.incident import Incident, merged
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import field_name
from callkeeper.calls.metrics.process_activity import Doing
from callkeeper.calls.metrics.signals import BEGAN, LastCounted, Lately, Replaced, Signals, Unstarted, Vanished
from callkeeper.calls.metrics.snapshot import Minute, Process, Snapshot
from callkeeper.calls.store.breakers import Breaker, EndpointKind, RequestResult, Scope
from callkeeper.calls.store.last_errors import LastError
from callkeeper.calls.store.last_listing import Standing
from callkeeper.calls.store.sso_token import Barred
from callkeeper.calls.store.writable import WriteRefusal
from tests.unit.calls.specimens import NOW
from tests.unit.calls.test_process_differences import sets
from tests.unit.calls.test_quiet_outages import QUIET

_NO_PUSH = IncidentKind.NO_PUSH
WORKER = Process("box-1-aa", "worker", 1, NOW - timedelta(hours=1), "0.1.0", "d1")
WEB = Process("box-1-bb", "web", 1, NOW - timedelta(hours=1), "0.1.0", "d1")
WELL = Signals(now=NOW, processes=[WORKER, WEB])
GONE_WEB = Vanished("box-3-9-cc", "web", NOW - timedelta(seconds=30))


def last(**seconds_ago: float) -> LastCounted:
    """Return when things were counted last, by a short name each."""
    names = {
        "refused": field_name(figure.LOGINS.name, ("LoginRefused",)),
        "login": field_name(figure.LOGINS.name, ("answered",)),
        "strangers": field_name(figure.PUSHES_REFUSED.name, ("credentials",)),
        "pushed": field_name(figure.PUSHES.name, ("CallStart",)),
        "sample": field_name(figure.PUSHES.name, ("sample",)),
        "found": field_name(figure.CALLS_FOUND.name, ("cu-1", "push")),
        "unpushed": field_name(figure.CALLS_PUSHED.name, ("cu-1", "missing")),
        "doctor": field_name(figure.PUSHES.name, ("doctor",)),
        "unread": field_name(figure.LISTINGS.name, ("cu-1", "failed")),
        "unlisted": field_name(figure.LISTINGS.name, ("cu-1", "refused")),
        "busy": field_name(figure.LISTINGS.name, ("cu-1", "busy")),
        "listed": field_name(figure.LISTINGS.name, ("cu-1", "answered")),
        "postponed": field_name(figure.REQUESTS_POSTPONED.name, ("listing",)),
        "slow": field_name(figure.SERVICE_SECONDS.name, ("check",), "8"),
        "back": BEGAN,
        "quick": field_name(figure.SERVICE_SECONDS.name, ("read",), "2"),
    }
    return LastCounted(
        {names[name]: (NOW - timedelta(seconds=s)).timestamp() * 1000 for name, s in seconds_ago.items()}
    )


def refusals(count: int) -> list[Minute]:
    """Return minutes of which the last has so many pushes that were refused for their header."""
    counts = {1: count, 2: 0, 0: 0}
    return [
        Minute(
            NOW - timedelta(minutes=ago), Snapshot({figure.PUSHES_REFUSED.name: {("credentials",): counts[ago]}}, {})
        )
        for ago in (2, 1, 0)
    ]


def away(key: str, why: RequestResult, kind: EndpointKind = EndpointKind.CALLS) -> Breaker:
    """Return an open breaker."""
    return Breaker(Scope(kind, key), 5, NOW, NOW, why)


def kinds(**signals: Any) -> list[str]:
    """Return what is found of a healthy installation with other signals."""
    return [incident.kind.value for incident in incidents_of(replace(WELL, **signals))]


def standing(minutes_ago: float, *, unanswered: bool = False, status: str = "Active", key: str = "cu-1") -> Standing:
    """Return what the service said of an institution some time ago."""
    return Standing(
        key=key,
        status=status,
        has_voice_auth=True,
        told_at=NOW - timedelta(minutes=minutes_ago),
        unanswered_at=NOW - timedelta(minutes=1) if unanswered else None,
    )


REFUSED = {"last": last(pushed=60, strangers=30, doctor=1, found=60, unpushed=20), "minutes": refusals(3)}
FAULTS: dict[str, dict[str, Any]] = {
    "redis_refuses": {"refusal": WriteRefusal.FULL, "processes": [], "late_s": 60},
    "redis_replaced": {"replaced": Replaced(NOW, True, ["cu-1"], ["cu-1"])},
    "process_gone: not started": {"unstarted": [Unstarted("worker", "box-2", NOW)]},
    "no_worker": {"processes": [WEB], "late_s": 60},
    "no_web": {"processes": [WORKER], "vanished": [GONE_WEB], **REFUSED},
    "login_refused": {"last": last(login=90, refused=60), "breakers": [away("", RequestResult.LOGIN)], "late_s": 9},
    "service_away": {"breakers": [away("", RequestResult.FAILURE), away("cu-1", RequestResult.FAILURE)]},
    "account_shared": {"processes": [WEB, replace(WORKER, doing=Doing(shares_account_with=("ck2",)))]},
    "worker_cut_off": {"processes": [WEB, WORKER, replace(WORKER, name="box-2-7-aa", doing=Doing(cut_off_s=4))]},
    "rate_limited: paused": {"breakers": [away("cu-1", RequestResult.PAUSE)]},
    "service_slow": {"last": last(slow=2, quick=30), "late_s": 9},
    "institution_fails: away": {"breakers": [away("cu-1", RequestResult.FAILURE)]},
    "institution_fails: refused": {"barred": [Barred("cu-1", "queue", NOW)], "last": last(unlisted=1)},
    "institution_fails: not listed": {"last": last(listed=20, unlisted=1)},
    "institution_fails: not confirmed": {"standings": [standing(minutes_ago=16, unanswered=True)]},
    "late": {"late_s": 6},
    "rate_limited: listings wait": {"last": last(listed=61, postponed=2), "standings": [standing(1)]},
    "pushes_refused": REFUSED,
    "receiver_away": {"receiver": away("", RequestResult.FAILURE)},
    "archive_away": {"archive": away("", RequestResult.FAILURE)},
    "clocks_apart": {"processes": [WORKER, WEB, replace(WORKER, name="box-2-1-aa", ahead_s=-90.0)]},
    "processes_differ: rules": {"processes": [WORKER, WEB, replace(WORKER, rules="d2")]},
    "processes_differ: settings": {
        "processes": [sets("box-1-7-aa"), WEB, sets("box-2-9-aa", CALLKEEPER_OUTCOME_URL="")]
    },
    "emergency_login": {"emergency_login_at": NOW},
    "processes_differ: releases": {"processes": [WORKER, WEB, replace(WORKER, version="")]},
}
WELL_AGAIN: dict[str, dict[str, Any]] = {
    "the restored pause was resumed": {"replaced": Replaced(NOW, True, ["cu-1"])},
    "Redis lost data an hour ago": {"replaced": Replaced(NOW - timedelta(minutes=61), True)},
    "a login was accepted": {"last": last(refused=60, login=1)},
    "a request was quick": {"last": last(slow=2, quick=5)},
    "nothing is asked any more": {"last": last(slow=30)},
    "a listing failed once": {"last": last(listed=8, unread=1)},
    "a listing was answered 429 once": {"last": last(listed=8, busy=1)},
    "listings wait for less than a minute": {"last": last(listed=59, postponed=2), "standings": [standing(1)]},
    "listings wait no more": {"last": last(listed=61, postponed=60), "standings": [standing(1)]},
    "nobody acts for it any more": {"last": last(listed=1801, postponed=2), "standings": [standing(1)]},
    "the queue was listed": {"last": last(unlisted=60, listed=1)},
    "a push was taken": {"last": last(strangers=60, pushed=1, found=1, unpushed=70), "minutes": refusals(9)},
    "a sample was taken": {"last": last(strangers=60, sample=1, unpushed=70), "minutes": refusals(9)},
    "strangers gave up": {"last": last(unpushed=20), "minutes": refusals(0)},
    "one push was refused": {"last": last(strangers=30, unpushed=20), "minutes": refusals(1)},
    "strangers push, and no call is missing": {"last": last(strangers=30, found=40), "minutes": refusals(50)},
    "no web process ran when the call came": {"last": last(strangers=30, unpushed=20, back=15), "minutes": refusals(3)},
    "the missing call came long ago": {"last": last(strangers=30, unpushed=601), "minutes": refusals(50)},
    "the last Active still counts": {"standings": [standing(minutes_ago=14, unanswered=True)]},
    "nobody has asked since": {"standings": [standing(minutes_ago=16)]},
    "it is not active anyway": {"standings": [standing(minutes_ago=16, unanswered=True, status="Review")]},
    "a release reports no settings, or fewer": {
        "processes": [sets("box-1-7-aa"), WEB, WORKER, replace(WORKER, settings={"CALLKEEPER_ACCESS_TOKEN": "token"})]
    },
    "only the check times differ": {
        "processes": [replace(WORKER, rules="d1+at"), replace(WORKER, kind="web", rules="d1")]
    },
}


def test_well_installation_has_no_incident() -> None:
    """A healthy installation has no incident."""
    assert kinds() == []


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named_alone_with_what_to_do(name: str) -> None:
    """Each fault is one incident: its symptoms are left out. A message about it says what its cause says, or better."""
    [one] = incidents_of(replace(WELL, **FAULTS[name]))
    assert one.kind == name.partition(":")[0]
    [alert] = alerts_of([one], {})
    assert (alert.title, alert.section, alert.weight) == (one.title, CAUSES[one.kind].section, one.weight)
    assert alert.advice.endswith(one.remedy or CAUSES[one.kind].do)
    assert alert.told_after_s == CAUSES[one.kind].told_after.total_seconds()


@pytest.mark.parametrize("how", WELL_AGAIN)
def test_incident_is_over_with_its_cause(how: str) -> None:
    """An incident ends with its cause, although its counts cover minutes."""
    assert kinds(**WELL_AGAIN[how]) == []


def test_listing_that_keeps_failing_is_told() -> None:
    """Unreadable listings open no breaker, so they are an incident. An open breaker is named instead."""
    unread = last(listed=60, unread=1)
    assert kinds(last=unread) == ["institution_fails"]
    assert kinds(last=unread, breakers=[away("cu-1", RequestResult.FAILURE)]) == ["institution_fails"]
    assert kinds(last=unread, breakers=[away("", RequestResult.FAILURE)]) == ["service_away"]
    checks = away("cu-1", RequestResult.FAILURE, EndpointKind.CHECK)
    assert kinds(last=unread, breakers=[checks]) == ["no_results", "institution_fails"], "that is something else"
    queue = away("cu-1", RequestResult.FAILURE, EndpointKind.QUEUE)
    [told] = incidents_of(replace(WELL, last=unread, breakers=[queue]))
    assert told.detail.count("Calls without a push are not found") == 1


def test_several_faults_of_an_institution_are_one_incident_that_tells_each() -> None:
    """What the service fails at is asked for in one message, since the first of it, and with no remedy of one alone."""
    barred = Barred("cu-1", "details", NOW - timedelta(seconds=5))
    unconfirmed = [standing(minutes_ago=16, unanswered=True)]
    [one] = incidents_of(replace(WELL, barred=[barred], standings=unconfirmed))
    assert (one.kind, one.since) == (IncidentKind.INSTITUTION_FAILS, NOW - timedelta(minutes=16))
    assert "details with 401" in one.advice
    assert "has not named it as Active" in one.advice
    assert one.advice.endswith(CAUSES[one.kind].do)


def test_redis_that_was_replaced_says_what_is_gone() -> None:
    """All of it, or the last writes. Who is limited to institutions reads of no other one's pause."""
    for is_empty, words in ((True, "Everything in it is gone."), (False, "It is an older one")):
        [one] = incidents_of(replace(WELL, replaced=Replaced(NOW, is_empty, ["cu-1"], ["cu-1"])))
        assert one.detail.startswith(words)
        assert one.limited_detail.startswith(words)
        assert ("cu-1" in one.detail, "cu-1" in one.limited_detail) == (True, False)


def test_listing_that_keeps_getting_429_is_a_limit_and_no_refusal() -> None:
    """The last outcome counts: what is told is what the service answers now."""
    [incident] = incidents_of(replace(WELL, last=last(listed=60, unread=9, unlisted=5, busy=1)))
    assert (incident.kind, incident.institution_key) == (IncidentKind.RATE_LIMITED, "cu-1")
    assert "CALLKEEPER_SERVICE_RPS" in incident.advice
    assert kinds(last=last(listed=60, busy=9, unread=1)) == ["institution_fails"]
    assert kinds(last=last(busy=1), breakers=[away("cu-1", RequestResult.PAUSE)]) == ["rate_limited"]


def test_refused_listing_asks_for_the_username_whatever_failed_before() -> None:
    """A refusal is about the account: what failed before, and the first refusal's time, change nothing in the advice."""
    words = Lately({}, {field_name(figure.REQUESTS_DISTURBED.name, ("queue",)): "status 502"})
    errors = {("queue", "cu-1"): said("refused", 1)}
    seen = last(listed=90, unread=50, unlisted=1)
    [refused] = incidents_of(replace(WELL, last=seen, errors=errors, lately=words))
    assert refused.advice.endswith("Is the name in CALLKEEPER_REQUESTED_BY a core username there?")
    [failed] = incidents_of(replace(WELL, last=last(listed=90, unlisted=50, unread=1), errors=errors, lately=words))
    assert failed.advice.endswith("Ask the service's operator.")


def test_workers_that_cannot_reach_the_service_are_named() -> None:
    """One by its host and number, several in one line, since the first knew it. None is while the service is away."""
    cut_off = [
        replace(WORKER, name=f"box-{n}-7-aa", reported_at=NOW, doing=Doing(cut_off_s=n, answered_s_ago=9))
        for n in (2, 3)
    ]
    [one] = incidents_of(replace(WELL, processes=[WEB, WORKER, cut_off[0]]))
    assert (one.title, one.weight) == ("Worker box-2:7 cannot reach the service; others can", Weight.TICKET)
    [both] = incidents_of(replace(WELL, processes=[WEB, WORKER, *cut_off]))
    assert (both.title, both.since) == ("2 workers cannot reach the service; others can", NOW - timedelta(seconds=3))
    assert both.advice.startswith("box-2:7, box-3:7: ")
    assert kinds(processes=[WEB, WORKER, *cut_off], breakers=[away("", RequestResult.FAILURE)]) == ["service_away"]


def test_all_processes_that_did_not_start_are_named() -> None:
    """Web and worker, or two hosts, are one incident that names each: correcting one is not enough."""
    gone = [Unstarted("web", "box-1", NOW - timedelta(seconds=5)), Unstarted("worker", "box-2", NOW)]
    [one] = incidents_of(replace(WELL, unstarted=gone))
    assert (one.title, one.since) == ("2 processes are gone", NOW - timedelta(seconds=5))
    assert "web on box-1, worker on box-2" in one.advice


@pytest.mark.parametrize("kind", [IncidentKind.EMERGENCY_LOGIN, IncidentKind.REDIS_REPLACED])
def test_acknowledgement_hides_no_later_event(kind: IncidentKind) -> None:
    """Who knows of one emergency login, or one replaced Redis, does not know of the next one."""
    known = Acknowledgement(
        kind=kind, operator="ann", at=NOW - timedelta(hours=1), until=NOW + timedelta(days=7), institution_key=""
    )
    for hours_ago, is_known in ((2, True), (0.5, False)):
        at = NOW - timedelta(hours=hours_ago)
        signals = {"emergency_login_at": at, "replaced": Replaced(at, False, ["cu-1"], ["cu-1"])}
        found = incidents_of(replace(WELL, acknowledged=[known], **signals))  # type: ignore[arg-type]
        [one] = [incident for incident in found if incident.kind is kind]
        assert (one.acknowledged is not None) is is_known


def test_acknowledgement_of_a_refusal_hides_no_outage() -> None:
    """Both are one incident of the institution; it names its faults, and who knew of one does not know of the other."""
    refused = replace(WELL, barred=[Barred("cu-1", "reject", NOW)])
    [first] = incidents_of(refused)
    known = Acknowledgement(
        kind="institution_fails", operator="ann", at=NOW, until=NOW + timedelta(days=7), parts=first.parts
    )
    refused = replace(refused, acknowledged=[known])
    [still] = incidents_of(refused)
    [both] = incidents_of(replace(refused, breakers=[away("cu-1", RequestResult.FAILURE)]))
    assert (still.acknowledged, both.acknowledged) == (known, None)
    assert both.parts == ("The service fails for an institution", "The service refuses an institution")


def test_institutions_whose_standing_is_unknown_are_named_in_one_line() -> None:
    """Each institution has its own incident, which names no other one. Merged, three hundred do not fill the board."""
    [alone] = incidents_of(replace(WELL, standings=[standing(16, unanswered=True)]))
    assert (alone.institution_key, alone.since) == ("cu-1", NOW - timedelta(minutes=16))
    many = [standing(16, unanswered=True, key=f"cu-{number}") for number in range(10)]
    found = incidents_of(replace(WELL, standings=many))
    assert [(one.institution_key, "cu-" in one.advice) for one in found] == [(f"cu-{n}", False) for n in range(10)]
    [one] = merged(found)
    assert (one.institution_key, "and 2 more" in one.advice) == ("", True)
    assert kinds(standings=many, breakers=[away("", RequestResult.FAILURE)]) == ["service_away"]


def test_institution_of_which_nothing_is_known_is_named() -> None:
    """Nothing is done for it, so it is told: if the service never spoke of it, or not for an hour, also of few of many.

    Not while it may still have to be asked, nor if it is refused anyway, nor of one that is not listed any more.
    """
    others = [standing(1, key=f"cu-{number}") for number in range(2, 300)]
    told: dict[str, Any] = {
        "last": last(listed=5, back=130),
        "standings": others,
        "errors": {("standing", "cu-1"): LastError(words="status 500", first_at=NOW - timedelta(seconds=40), at=NOW)},
    }
    [one] = incidents_of(replace(WELL, **told))
    assert (one.kind.value, one.institution_key, one.last_error) == ("institution_fails", "cu-1", "status 500")
    assert one.since == NOW - timedelta(seconds=40)
    assert kinds(**told | {"standings": [*others, standing(61, unanswered=True)]}) == ["institution_fails"]
    assert kinds(**told | {"standings": [*others, standing(59)]}) == []
    assert (
        kinds(**told | {"last": last(listed=5, back=110)}) == kinds(**told | {"last": last(listed=61, back=130)}) == []
    )
    assert kinds(**told | {"barred": [Barred("cu-1", "details", NOW)]}) == ["institution_fails"]
    assert kinds(**told | {"breakers": [away("", RequestResult.FAILURE)]}) == ["service_away"]


def test_refused_and_failed_listings_are_told_apart() -> None:
    """Their remedies differ, and merged incidents have the same title."""
    rows = {
        field_name(figure.LISTINGS.name, (f"cu-{n}", "refused" if n < 3 else "failed")): NOW.timestamp() * 1000
        for n in range(6)
    }
    found = merged(incidents_of(replace(WELL, last=LastCounted(rows))))
    assert [one.institutions for one in found] == [("cu-0", "cu-1", "cu-2"), ("cu-3", "cu-4", "cu-5")]
    assert ["CALLKEEPER_REQUESTED_BY" in one.advice for one in found] == [True, False]


def test_institution_with_a_wrong_header_is_named() -> None:
    """If others' pushes are accepted, the refusals are about the institution whose calls only the queue shows.

    It waits until the morning, because those calls are found some seconds later. It began with the first refusal.
    """
    seen = last(strangers=5, pushed=2, found=200, unpushed=30)
    [one] = incidents_of(replace(WELL, last=seen, minutes=refusals(3)))
    assert (one.kind.value, one.institution_key, one.weight) == ("pushes_refused", "cu-1", Weight.TICKET)
    assert one.since == NOW - timedelta(minutes=1)
    [all_of_them] = incidents_of(replace(WELL, **FAULTS["pushes_refused"]))
    assert (all_of_them.institution_key, all_of_them.weight) == ("", Weight.PAGE)


def test_processes_are_not_missed_in_a_redis_that_has_just_lost_its_data() -> None:
    """They show themselves anew within a second or two."""
    assert kinds(processes=[], replaced=Replaced(NOW, True)) == ["redis_replaced"]
    long_ago = Replaced(NOW - timedelta(seconds=11), True)
    assert kinds(processes=[], replaced=long_ago) == ["redis_replaced", "no_worker", "no_web"]


def test_receiver_that_answers_and_accepts_nothing_is_told() -> None:
    """A receiver that answers 401 is not away: no breaker opens. One refused message may be an accident."""
    since = NOW - timedelta(seconds=61)
    [incident] = incidents_of(replace(WELL, untaken_since=since))
    assert (incident.kind.value, incident.title, incident.since) == (
        "receiver_away",
        "The webhook receiver accepts nothing",
        since,
    )
    assert kinds(untaken_since=NOW - timedelta(seconds=59)) == []
    [silent] = incidents_of(replace(WELL, untaken_since=since, receiver=away("", RequestResult.FAILURE)))
    assert (silent.title, silent.since) == ("The webhook receiver does not answer", since), (
        "not since the breaker is open"
    )
    assert kinds(untaken_since=NOW + timedelta(minutes=50)) == ["receiver_away"], "the clock was set back since"


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("no connection", "The webhook receiver does not answer"),
        ("the receiver answered 401", "The webhook receiver accepts nothing"),
    ],
)
def test_receiver_of_few_messages_is_told_by_its_last_error(words: str, title: str) -> None:
    """Fewer than five posts open no breaker, so the last error says whether it answers: nobody looks for a wrong secret."""
    since = NOW - timedelta(seconds=61)
    errors = {("outcomes", ""): LastError(words=words, first_at=since, at=NOW)}
    [incident] = incidents_of(replace(WELL, untaken_since=since, errors=errors))
    assert (incident.title, incident.since) == (title, since)
    assert "`" not in incident.advice, "pages, terminals and messages show it as it is"


def test_every_kind_is_tested() -> None:
    """Every kind of incident is in a test."""
    tested = {name.partition(":")[0] for name in (*FAULTS, *QUIET)}
    assert tested | {"replica_behind"} == {kind.value for kind in IncidentKind} == {kind.value for kind in CAUSES}


def test_incidents_that_are_acknowledged_alike_are_merged() -> None:
    """One form acknowledges each institution. Those that failed later, of which nobody knows, stay apart."""
    found = []
    for n in range(6):
        at = NOW + timedelta(milliseconds=n)
        known = Acknowledgement(
            kind="no_push", institution_key=f"cu-{n}", operator="ann", at=at, until=at + timedelta(hours=2)
        )
        acknowledged = known if n < 3 else None
        found.append(Incident(_NO_PUSH, "Look.", f"cu-{n}", acknowledged=acknowledged, headline="No pushes arrive"))
    assert [one.institutions for one in merged(found)] == [("cu-0", "cu-1", "cu-2"), ("cu-3", "cu-4", "cu-5")]


def test_refused_pushes_of_many_institutions_page_nobody() -> None:
    """Their calls are found by the queue, as those of one are."""
    found = [Incident(IncidentKind.PUSHES_REFUSED, "Look.", f"cu-{n}", headline="Refused") for n in range(5)]
    assert [incident.weight for incident in merged(found)] == [Weight.TICKET]


def said(words: str, ago_s: float = 5, first_ago_s: float = 50, fault: str = "") -> LastError:
    """Return a last error."""
    first_at, at = (NOW - timedelta(seconds=ago) for ago in (first_ago_s, ago_s))
    return LastError(words=words, first_at=first_at, at=at, fault=fault)


@pytest.mark.parametrize(
    ("signals", "area", "key"),
    [
        ({"breakers": [away("", RequestResult.FAILURE)]}, "calls", "cu-1"),
        ({"breakers": [away("", RequestResult.FAILURE)]}, "login", ""),
        ({"breakers": [away("cu-1", RequestResult.FAILURE)]}, "calls", "cu-1"),
        ({"breakers": [away("cu-1", RequestResult.FAILURE, EndpointKind.CHECK)]}, "check", "cu-1"),
        ({"breakers": [away("cu-1", RequestResult.FAILURE, EndpointKind.QUEUE)]}, "queue", "cu-1"),
        ({"breakers": [away("", RequestResult.FAILURE, EndpointKind.QUEUE)]}, "queue", "cu-1"),
        ({"last": last(login=90, refused=60)}, "login", ""),
        ({"last": last(listed=20, unlisted=1)}, "queue", "cu-1"),
        ({"standings": [standing(minutes_ago=16, unanswered=True)]}, "standing", "cu-1"),
        ({"receiver": away("", RequestResult.FAILURE)}, "outcomes", ""),
        ({"archive": away("", RequestResult.FAILURE)}, "archive", ""),
    ],
)
def test_incident_has_the_words_of_its_last_error(signals: dict[str, Any], area: str, key: str) -> None:
    """Whoever reads that requests fail reads why: of the right kind, and not of another institution."""
    errors = {(area, key): said("status 503"), ("calls", "cu-9"): said("another", 9), ("queue", "cu-9"): said("one", 9)}
    [incident] = incidents_of(replace(WELL, errors=errors, **signals))
    assert incident.last_error == "status 503"


def test_error_of_another_institution_explains_nothing() -> None:
    """What fails for one institution is not shown with the incident of another."""
    errors = {("calls", "cu-2"): said("status 503")}
    [incident] = incidents_of(replace(WELL, errors=errors, breakers=[away("cu-1", RequestResult.FAILURE)]))
    assert incident.last_error == ""


@pytest.mark.parametrize(
    ("fault", "title", "remedy"),
    [
        ("EXPIRED", "The service's certificate has expired", "renew it"),
        ("UNKNOWN_AUTHORITY", "The service's certificate is of an unknown authority", "CALLKEEPER_CA"),
        ("OTHER_HOST", "The service's certificate is for another host", "Compare the host in CALLKEEPER_SERVICE_URL"),
    ],
)
def test_remedy_for_a_certificate_is_about_the_certificate(fault: str, title: str, remedy: str) -> None:
    """Each fault of a certificate has a remedy of its own."""
    errors = {("calls", "cu-1"): said("certificate verify failed", fault=fault)}
    [incident] = incidents_of(replace(WELL, errors=errors, breakers=[away("", RequestResult.FAILURE)]))
    assert (incident.kind, incident.title) == (IncidentKind.SERVICE_AWAY, title)
    assert remedy in incident.advice


@pytest.mark.parametrize(
    ("signals", "area", "key", "began_s"),
    [
        ({"last": last(refused=5)}, "login", "", 50),
        ({"last": last(login=30, refused=5)}, "login", "", 30),
        ({"last": last(login=90, refused=5)}, "login", "", 50),
        ({"last": last(listed=40, unlisted=1)}, "queue", "cu-1", 40),
    ],
    ids=["never answered", "answered since the first error", "answered before", "a queue"],
)
def test_refusals_last_since_the_first_one(signals: dict[str, Any], area: str, key: str, began_s: float) -> None:
    """The last refusal was a moment ago; what people need is the first one after the last answer."""
    [incident] = incidents_of(replace(WELL, errors={(area, key): said("refused")}, **signals))
    assert incident.since == NOW - timedelta(seconds=began_s)


OUTAGE = (IncidentKind.SERVICE_AWAY, IncidentKind.LOGIN_REFUSED)


@pytest.mark.parametrize("cause", OUTAGE)
def test_what_follows_from_an_outage_is_not_named(cause: IncidentKind) -> None:
    """Late calls, slow requests, failing institutions and missing pushes have the same cause."""
    found_late = Minute(NOW, Snapshot({figure.CALLS_FOUND.name: {("cu-1", "queue"): 9}}, {}))
    signals = {
        "late_s": 60,
        "minutes": [found_late],
        "breakers": [away("cu-1", RequestResult.FAILURE), away("cu-2", RequestResult.FAILURE, EndpointKind.QUEUE)],
        "last": last(unpushed=20, slow=2),
        "standings": [standing(minutes_ago=16, unanswered=True)],
    }
    assert len(kinds(**signals)) >= 3
    signals["breakers"] = [away("", RequestResult.FAILURE), *signals["breakers"]]  # type: ignore[misc]
    if cause is IncidentKind.LOGIN_REFUSED:
        signals["last"] = last(unpushed=20, slow=2, refused=9)
    assert kinds(**signals) == [cause]
