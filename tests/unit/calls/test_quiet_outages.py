"""Outages in which everything answers are incidents, with who is affected, and end with the first good sign."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from callkeeper.calls.causes import Weight
from callkeeper.calls.incident import Incident
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.catalogue import Figure
from callkeeper.calls.metrics.counting import Figures, field_name
from callkeeper.calls.metrics.signals import BEGAN, LastCounted, Lately, Replaced, Signals, Vanished
from callkeeper.calls.metrics.snapshot import Minute, Process, Snapshot
from callkeeper.calls.store.breakers import Breaker, EndpointKind, RequestResult, Scope
from callkeeper.calls.store.last_listing import Standing
from callkeeper.calls.store.sso_token import Barred
from callkeeper.calls.survey import Sight, Survey
from tests.unit.calls.specimens import NOW

WORKER = Process("box-1-7-aa", "worker", 1, NOW - timedelta(hours=1), "0.1.0", "d1")
WEB = replace(WORKER, name="box-1-8-bb", kind="web")
WELL = Signals(now=NOW, processes=[WORKER, WEB])


def at(*counted: tuple[Figure, tuple[str, ...], float]) -> LastCounted:
    """Return when things were counted last, in seconds ago."""
    return LastCounted(
        {field_name(of.name, labels): (NOW - timedelta(seconds=s)).timestamp() * 1000 for of, labels, s in counted}
    )


def lately(words: str = "", **rows: int) -> Lately:
    """Return rows of cu-1 by their figure and bad value, and the last words about anything."""
    names = {"pending": figure.PROVIDER_ANSWERS, "silent": figure.PROVIDER_ANSWERS, "unlisted": figure.PUSHED_CALLS}
    names["missing"] = figure.CALLS_PUSHED
    said = {field_name(figure.POLICIES_SHOWN.name, ("cu-1",)): words}
    return Lately({field_name(names[bad].name, ("cu-1", bad)): n for bad, n in rows.items()}, said)


def minute(*counts: tuple[Figure, tuple[str, ...], int]) -> list[Minute]:
    """Return minutes with these counts in the present one."""
    snapshot = Snapshot()
    for of, labels, n in counts:
        snapshot.counts.setdefault(of.name, {})[labels] = n
    return [Minute(NOW - timedelta(minutes=1), Snapshot()), Minute(NOW, snapshot)]


PENDING, SILENT, SHOWN = (
    (figure.PROVIDER_ANSWERS, ("cu-1", result), 20.0) for result in ("pending", "silent", "shown")
)
MISSING = (figure.CALLS_PUSHED, ("cu-1", "missing"), 5.0)
UNLISTED = (figure.PUSHED_CALLS, ("cu-1", "unlisted"), 5.0)
ANSWERED = (figure.LISTINGS, ("cu-1", "answered"), 1.0)
DISTURBED = (figure.REQUESTS_DISTURBED, ("details",), 2.0)
UNCLASSIFIED = (figure.POLICIES_SHOWN, ("cu-1", "unclassified"), 20.0)


def requests(disturbed: int, answered: int, failed: int) -> list[Minute]:
    """Return minutes with requests for details."""
    return minute(
        (figure.REQUESTS_DISTURBED, ("details",), disturbed),
        (figure.SERVICE_REQUESTS, ("details", "answered"), answered),
        (figure.SERVICE_REQUESTS, ("details", "ServiceUnavailable"), failed),
    )


def unclassified(calls: int) -> list[Minute]:
    """Return minutes with so many calls that show a policy without a colour."""
    return minute((figure.POLICIES_SHOWN, ("cu-1", "unclassified"), calls))


def odd_ids(entries: int, *, known_s: float = 0.0) -> Survey:
    """Return a survey with so many impossible voice ids, first seen 20 s ago; known since so many seconds."""
    first_ms, now_ms = (NOW - timedelta(seconds=20)).timestamp() * 1000, NOW.timestamp() * 1000
    sight = Sight(n=entries, first=first_ms, last=now_ms, at={"cu-1": first_ms})
    return Survey({"voice-id-alphabet": {"odd-id": sight}}, {"cu-1": now_ms - known_s * 1000} if known_s else {})


IN_REVIEW = [Standing(key="cu-1", status="Review", has_voice_auth=True, told_at=NOW)]
IN_TEST = [Standing(key="cu-1", status="Active", has_voice_auth=True, is_test_mode=True, told_at=NOW)]
ACTIVE = [Standing(key="cu-1", status="Active", has_voice_auth=True, told_at=NOW)]
GONE = Vanished("box-2-9-bb", "worker", NOW - timedelta(seconds=30))
GONE_WEB = Vanished("box-3-9-cc", "web", NOW - timedelta(seconds=20))
QUIET: dict[str, dict[str, Any]] = {
    "no_results": {"lately": lately(pending=3), "last": at(PENDING)},
    "not_listed": {"lately": lately(unlisted=3, missing=9), "last": at(UNLISTED, ANSWERED, MISSING)},
    "requests_fail": {"last": at(DISTURBED), "minutes": requests(6, 12, 12)},
    "not_active": {"standings": IN_REVIEW, "open_calls": {"cu-1": 4}},
    "process_gone": {"vanished": [GONE]},
    "policies_unknown": {"last": at(UNCLASSIFIED), "minutes": unclassified(3), "lately": lately("policy 'Mauve'")},
    "assumption_wrong": {"survey": odd_ids(3)},
    "no_push": {"lately": lately(missing=3), "last": at(MISSING)},
}
NAMES = {
    "no_results": ("cu-1", "3 calls in a row"),
    "not_listed": ("cu-1", "none of the last 3 pushed calls"),
    "requests_fail": ("", "details: 12 of 24 in two minutes. "),
    "not_active": ("cu-1", "Review, and it has 4 live calls"),
    "process_gone": ("", "worker box-2-9-bb on box-2 at"),
    "policies_unknown": ("cu-1", "policy 'Mauve'"),
    "assumption_wrong": ("cu-1", "Ids that cannot be voice ids (3 times)"),
    "no_push": ("cu-1", "3 new calls in a row"),
}
OVER: dict[str, dict[str, Any]] = {
    "one call had a result": {"lately": lately(), "last": at(PENDING, SHOWN)},
    "two calls may be an accident": {
        "lately": lately(pending=2, unlisted=2, missing=2),
        "last": at(PENDING, UNLISTED, MISSING),
    },
    "no calls come any more": {
        "lately": lately(pending=3),
        "last": at((figure.PROVIDER_ANSWERS, ("cu-1", "pending"), 601)),
    },
    "a sample was taken": {"lately": lately(missing=3), "last": at(MISSING, (figure.PUSHES, ("sample",), 1))},
    "a new institution has no voiceprints": {"lately": lately(silent=50), "last": at(SILENT)},
    "some calls in a row have no voiceprint": {"lately": lately(silent=7), "last": at(SILENT, SHOWN)},
    "a few requests failed": {"last": at(DISTURBED), "minutes": requests(5, 5, 5)},
    "a small part of the requests failed": {"last": at(DISTURBED), "minutes": requests(6, 50, 6)},
    "requests are answered again": {
        "last": at((figure.REQUESTS_DISTURBED, ("details",), 31)),
        "minutes": requests(6, 12, 12),
    },
    "it has no calls": {"standings": IN_REVIEW},
    "it was in test mode from the start": {"standings": IN_TEST, "open_calls": {"cu-1": 4}},
    "it is Active again": {"standings": ACTIVE, "open_calls": {"cu-1": 4}},
    "another worker was started": {
        "vanished": [GONE],
        "processes": [WORKER, WEB, replace(WORKER, name="box-3-1-aa", since=NOW - timedelta(seconds=10))],
    },
    "the policies were classified": {
        "last": at((*UNCLASSIFIED[:2], 121), (figure.POLICIES_SHOWN, ("cu-1", "classified"), 1)),
        "minutes": unclassified(9),
    },
    "two odd entries may be an accident": {"survey": odd_ids(2)},
    "somebody knows of the odd entries": {"survey": odd_ids(9, known_s=5)},
}


def found(**signals: Any) -> list[Incident]:
    """Return what is found of a healthy installation with other signals."""
    return incidents_of(replace(WELL, **signals))


@pytest.mark.parametrize("kind", QUIET)
def test_quiet_outage_is_named_alone_with_whom_it_affects(kind: str) -> None:
    """Each is one incident that names its institution, or nobody's, and what was seen."""
    [incident] = found(**QUIET[kind])
    key, words = NAMES[kind]
    assert (incident.kind.value, incident.institution_key) == (kind, key)
    assert words in incident.advice


@pytest.mark.parametrize("how", OVER)
def test_quiet_outage_is_over_with_its_cause(how: str) -> None:
    """A good sign ends it, and what is too little to tell begins none."""
    assert found(**OVER[how]) == []


@pytest.mark.parametrize(("failing", "expected"), [(("cu-1",), set()), (("cu-1", "cu-2"), {"requests_fail"})])
def test_queue_of_one_institution_that_is_listed_again_leaves_no_incident(
    failing: tuple[str, ...], expected: set[str]
) -> None:
    """Its failures lay between the answers of others, and were an incident of their own."""
    counted = (
        (figure.REQUESTS_DISTURBED, ("queue",), 7),
        (figure.SERVICE_REQUESTS, ("queue", "answered"), 39),
        (figure.SERVICE_REQUESTS, ("queue", "AccessRefused"), 7),
        (figure.LISTINGS, ("cu-3", "answered"), 39),
        *((figure.LISTINGS, (key, "refused"), 7) for key in failing),
    )
    last = at((figure.REQUESTS_DISTURBED, ("queue",), 5), *((figure.LISTINGS, (key, "answered"), 1) for key in failing))
    assert {one.kind.value for one in found(last=last, minutes=minute(*counted))} == expected


def test_institution_that_had_results_and_has_none_any_more_is_told() -> None:
    """If nothing at all shows for eight calls in a row, although results came before, the provider may be silent."""
    [incident] = found(lately=lately(silent=8), last=at(SILENT, (*SHOWN[:2], 600)))
    assert (incident.kind.value, incident.since) == ("no_results", NOW - timedelta(seconds=600))


def test_checks_that_bring_provider_errors_are_told_once() -> None:
    """The breaker of checks and calls in a row are the same incident."""
    breaker = Breaker(Scope(EndpointKind.CHECK, "cu-1"), 3, NOW, NOW, RequestResult.FAILURE)
    [incident] = found(breakers=[breaker], **QUIET["no_results"])
    assert (incident.kind.value, incident.since) == ("no_results", NOW)


def test_outage_of_the_service_explains_what_follows_from_it() -> None:
    """While the service is away, neither failed requests nor missing results are told."""
    breaker = Breaker(Scope(EndpointKind.CALLS, ""), 5, NOW, NOW, RequestResult.FAILURE)
    kinds = {
        one.kind.value for name in ("no_results", "requests_fail") for one in found(breakers=[breaker], **QUIET[name])
    }
    assert kinds == {"service_away"}


def test_last_worker_that_vanished_is_part_of_no_worker() -> None:
    """With how many are due, where it ran and since when."""
    [incident] = found(processes=[WEB], vanished=[GONE], due=31, late_s=30)
    assert (incident.kind.value, incident.since) == ("no_worker", GONE.at)
    assert incident.advice.startswith("31 due. ")
    assert "on box-2" in incident.advice


def test_last_web_process_that_vanished_is_part_of_no_web() -> None:
    """With where it ran and since when. One that was shut down in order leaves no hint."""
    [incident] = found(processes=[WORKER], vanished=[GONE_WEB])
    assert (incident.kind.value, incident.since, incident.weight) == ("no_web", GONE_WEB.at, Weight.PAGE)
    assert "workers find their calls in the queue some seconds later" in incident.advice
    assert "on box-3, stopped without shutting down" in incident.advice
    [stopped] = found(processes=[WORKER])
    assert (stopped.kind.value, stopped.since) == ("no_web", None)
    assert "stopped without" not in stopped.advice


def test_neither_web_nor_worker_are_two_incidents() -> None:
    """Each has a remedy of its own, and neither says what the other denies."""
    no_worker, no_web = found(processes=[], vanished=[GONE, GONE_WEB], due=31, late_s=30)
    assert (no_worker.kind.value, no_web.kind.value) == ("no_worker", "no_web")
    assert "recorded" not in no_worker.advice
    assert "found in the queue once a worker runs" in no_web.advice


@pytest.mark.parametrize(
    ("left", "gone", "kinds"),
    [
        (WORKER, [GONE_WEB, GONE], ["no_web", "process_gone"]),
        (WEB, [GONE, GONE_WEB], ["no_worker", "process_gone"]),
        (WORKER, [GONE_WEB], ["no_web"]),
        (WEB, [GONE], ["no_worker"]),
    ],
    ids=["a worker too", "a web process too", "web alone", "the worker alone"],
)
def test_process_of_another_kind_that_vanished_is_told(left: Process, gone: list[Vanished], kinds: list[str]) -> None:
    """That none of a kind is left explains who vanished of that kind, and of no other."""
    told = found(processes=[left], vanished=gone)
    assert [one.kind.value for one in told] == kinds
    if len(told) > 1:
        assert f"{left.kind} {next(one.name for one in gone if one.kind == left.kind)} " in told[-1].advice
        assert next(one.name for one in gone if one.kind != left.kind) not in told[-1].advice


def test_web_process_that_is_replaced_is_no_incident() -> None:
    """A rolling deployment starts the new one first, or leaves another one running."""
    new = replace(WEB, name="box-4-1-dd", since=NOW - timedelta(seconds=1))
    for processes in ([WORKER, WEB, new], [WORKER, new]):
        assert found(processes=processes) == []


def test_redis_that_was_just_replaced_has_no_processes_yet() -> None:
    """They show themselves within a second or two; after a while those that are missing are told."""
    for ago_s, kinds in ((10, ["redis_replaced"]), (11, ["redis_replaced", "no_worker", "no_web"])):
        replaced = Replaced(NOW - timedelta(seconds=ago_s), is_empty=True)
        told = found(processes=[], vanished=[GONE, GONE_WEB], replaced=replaced)
        assert [one.kind.value for one in told] == kinds


def test_calls_of_a_time_without_web_are_no_missing_pushes_when_it_is_back() -> None:
    """Their pushes reached nobody. The queue shows such a call up to ten seconds later; then they count again."""
    back = {BEGAN: (NOW - timedelta(seconds=20)).timestamp() * 1000}
    for ago_s, kinds in ((60, []), (11, []), (10, ["no_push"])):
        last = LastCounted({**at((*MISSING[:2], ago_s)).at_ms, **back})
        assert [one.kind.value for one in found(lately=lately(missing=3), last=last)] == kinds


def test_late_calls_are_counted() -> None:
    """The number is that of what is due, not of what is live."""
    [incident] = found(late_s=6, due=31)
    assert incident.advice.startswith("31 due, the first for 6 s.")


@pytest.mark.parametrize(("outcome", "told"), [("refused", ["institution_fails"]), ("failed", []), ("busy", [])])
def test_pushed_calls_while_the_queue_is_not_listed_are_no_incident_of_their_own(outcome: str, told: list[str]) -> None:
    """That the queue is not listed says it already. A single failure may be an accident."""
    last = at(UNLISTED, ANSWERED, (figure.LISTINGS, ("cu-1", outcome), 0.5))
    assert [incident.kind.value for incident in found(lately=lately(unlisted=5), last=last)] == told


def test_queue_that_cannot_be_read_is_one_incident() -> None:
    """Nothing of it is answered, so calls are not listed. The core username is not the reason: the service is asked."""
    [incident] = found(
        last=at((figure.LISTINGS, ("cu-1", "failed"), 1), (figure.REQUESTS_DISTURBED, ("queue",), 1)),
        minutes=minute(
            (figure.REQUESTS_DISTURBED, ("queue",), 9), (figure.SERVICE_REQUESTS, ("queue", "AnswerUnreadable"), 9)
        ),
    )
    assert incident.kind.value == "institution_fails"
    assert incident.advice.endswith("Ask the service's operator.")


def test_refused_queue_of_one_institution_is_one_incident() -> None:
    """Its refusals are not told again as requests that fail, although the queues of others are answered."""
    [incident] = found(
        last=at(
            (figure.LISTINGS, ("cu-1", "failed"), 1),
            (figure.LISTINGS, ("cu-1", "answered"), 12),
            (figure.LISTINGS, ("cu-2", "answered"), 1),
            (figure.REQUESTS_DISTURBED, ("queue",), 1),
        ),
        minutes=minute(
            (figure.REQUESTS_DISTURBED, ("queue",), 9),
            (figure.SERVICE_REQUESTS, ("queue", "AnswerUnreadable"), 9),
            (figure.SERVICE_REQUESTS, ("queue", "answered"), 9),
        ),
    )
    assert (incident.kind.value, incident.institution_key) == ("institution_fails", "cu-1")


def test_failing_queue_is_told_although_another_failed_hours_ago() -> None:
    """A queue that is not asked any more, such as that of an institution that was removed, explains nothing."""
    [incident] = found(
        last=at(
            (figure.LISTINGS, ("cu-9", "failed"), 3000),
            (figure.LISTINGS, ("cu-1", "failed"), 4),
            (figure.LISTINGS, ("cu-1", "answered"), 1),
            (figure.REQUESTS_DISTURBED, ("queue",), 4),
        ),
        minutes=minute(
            (figure.REQUESTS_DISTURBED, ("queue",), 9),
            (figure.SERVICE_REQUESTS, ("queue", "ServiceUnavailable"), 9),
            (figure.SERVICE_REQUESTS, ("queue", "answered"), 18),
        ),
    )
    assert (incident.kind.value, "queue: 9 of 27" in incident.advice) == ("requests_fail", True)


def test_row_ends_with_a_good_one() -> None:
    """A good one ends the rows of its institution, also within the same second, and of no other one."""
    figures = Figures()
    figures.count(figure.PROVIDER_ANSWERS, "cu-1", "pending", n=2)
    figures.count(figure.PROVIDER_ANSWERS, "cu-2", "silent", n=3)
    figures.count(figure.PROVIDER_ANSWERS, "cu-1", "shown")
    rows = figures.batch().rows
    assert rows == {
        "provider_answers|cu-1|pending": None,
        "provider_answers|cu-1|silent": None,
        "provider_answers|cu-2|silent": 3,
    }


def test_tokens_that_lapse_again_and_again_are_told() -> None:
    """Every lapse costs refused requests and a login. The first logins of a day, and one lapse, are no incident."""
    for logins, titles in ((3, []), (4, ["The service's tokens lapse again and again"])):
        told = found(minutes=minute((figure.LOGINS, ("answered",), logins)))
        assert [(one.kind.value, one.title) for one in told] == [("requests_fail", title) for title in titles]


@pytest.mark.parametrize(
    ("standing", "words"),
    [
        ({"is_test_mode": True}, "says that it is in test mode"),
        ({"has_voice_auth": False}, "says that it has no voice authentication"),
    ],
)
def test_institution_that_was_handled_until_now_is_told_whatever_the_service_says_of_it(
    standing: dict[str, Any], words: str
) -> None:
    """An institution that is in test mode by mistake has live callers, for whom nothing is done any more."""
    now = Standing(key="cu-1", status="Active", told_at=NOW, **{"has_voice_auth": True, **standing})
    [incident] = found(standings=[now], open_calls={"cu-1": 4}, last=at(ANSWERED))
    assert (incident.kind.value, incident.institution_key) == ("not_active", "cu-1")
    assert words in incident.advice


def unanswered(endpoint: str, failed: int = 6, *, answered: int = 0, ago_s: float = 2.0) -> dict[str, Any]:
    """Return signals of an endpoint that answers hardly any request, while details are answered."""
    counted = (
        (figure.SERVICE_REQUESTS, (endpoint, "OutcomeUnknown"), failed),
        (figure.SERVICE_REQUESTS, (endpoint, "answered"), answered),
        (figure.SERVICE_REQUESTS, ("details", "answered"), 900 * (endpoint != "details")),
    )
    last = at(
        (figure.SERVICE_REQUESTS, (endpoint, "OutcomeUnknown"), ago_s),
        (figure.SERVICE_REQUESTS, (endpoint, "answered"), 300.0),
    )
    return {"minutes": minute(*counted), "last": last}


@pytest.mark.parametrize("endpoint", ["assign", "enroll", "reject-voice", "details"])
def test_endpoint_that_answers_nobody_is_told_although_reads_are_answered(endpoint: str) -> None:
    """None of its failures follows an answer, and each answered read clears those of the breaker."""
    [incident] = found(**unanswered(endpoint))
    assert (incident.kind.value, incident.since) == ("requests_fail", NOW - timedelta(seconds=300))
    assert f"{endpoint}: none of the last 6 was answered. " in incident.advice
    assert ("hardly ever sent again" in incident.advice) == (endpoint != "details")


def test_endpoint_is_silent_from_the_first_minute_without_an_answer_on() -> None:
    """Nobody waits until its last answer is two minutes old."""
    before = Snapshot(counts={figure.SERVICE_REQUESTS.name: {("enroll", "answered"): 40, ("enroll", "NotSent"): 7}})
    silent = unanswered("enroll")
    [incident] = found(**{**silent, "minutes": [Minute(NOW - timedelta(minutes=1), before), silent["minutes"][-1]]})
    assert "enroll: none of the last 6 was answered. " in incident.advice


@pytest.mark.parametrize("apart_s", [12, 15, 20, 30])
def test_endpoint_that_is_seldom_used_stays_silent_when_a_minute_begins(apart_s: int) -> None:
    """People would be told every minute that it is over, and that it began."""
    failed_s = range(apart_s // 2, 600, apart_s)
    for now_s in range(360, 540, 5):
        minutes = []
        for number in range(now_s // 60 + 1):
            count = sum(at_s <= now_s and at_s // 60 == number for at_s in failed_s)
            failed: dict[tuple[str, ...], int] = {("enroll", "OutcomeUnknown"): count}
            begun_s = now_s % 60 + 60 * (now_s // 60 - number)
            minutes.append(Minute(NOW - timedelta(seconds=begun_s), Snapshot({figure.SERVICE_REQUESTS.name: failed})))
        ago_s = now_s - max(at_s for at_s in failed_s if at_s <= now_s)
        last = at((figure.SERVICE_REQUESTS, ("enroll", "OutcomeUnknown"), float(ago_s)))
        assert [one.kind.value for one in found(minutes=minutes, last=last)] == ["requests_fail"], now_s


@pytest.mark.parametrize(
    "signals",
    [unanswered("enroll", 5), unanswered("enroll", 9, answered=1), unanswered("enroll", ago_s=31)],
    ids=["five may be an accident", "one was answered", "none failed just now"],
)
def test_endpoint_that_answered_or_is_hardly_used_is_no_incident(signals: dict[str, Any]) -> None:
    """One answer ends it, as does half a minute without a failure."""
    assert found(**signals) == []


@pytest.mark.parametrize(
    ("endpoint", "open_s", "kinds"),
    [
        ("enroll", 0, ["institution_fails"]),
        ("enroll", 11, ["institution_fails"]),
        ("enroll", 13, ["institution_fails", "requests_fail"]),
        ("details", 600, ["institution_fails"]),
    ],
)
def test_breaker_explains_effects_until_it_opened_and_reads_for_as_long_as_it_is_open(
    endpoint: str, open_s: float, kinds: list[str]
) -> None:
    """An open breaker keeps back all of its institution but reads that test it, so later effects are of other ones."""
    since = NOW - timedelta(seconds=open_s)
    breaker = Breaker(Scope(EndpointKind.CALLS, "cu-9"), 5, since, NOW, RequestResult.FAILURE)
    assert [one.kind.value for one in found(breakers=[breaker], **unanswered(endpoint))] == kinds


def test_effect_that_institutions_refuse_with_401_is_told_as_that() -> None:
    """What is held back after a 401 counts as not sent."""
    told = found(barred=[Barred("cu-1", "enroll", NOW)], **unanswered("enroll"))
    assert [one.kind.value for one in told] == ["institution_fails"]


def test_endpoint_whose_answers_are_unreadable_is_named_once() -> None:
    """Its failures count as such already, though no request is answered."""
    [incident] = found(
        minutes=minute(
            (figure.REQUESTS_DISTURBED, ("details",), 9), (figure.SERVICE_REQUESTS, ("details", "AnswerUnreadable"), 9)
        ),
        last=at(DISTURBED, (figure.SERVICE_REQUESTS, ("details", "AnswerUnreadable"), 2.0)),
    )
    assert incident.advice.startswith("details: 9 of 9 in two minutes. Calls of every")


@pytest.mark.parametrize(("answered", "kinds"), [(0, ["requests_fail"]), (1, [])])
def test_service_that_knows_none_of_the_calls_is_told(answered: int, kinds: list[str]) -> None:
    """Each of these answers is a proper one; only all of them together show the outage."""
    outcomes = minute(
        (figure.SERVICE_REQUESTS, ("details", "CallNotFound"), 20),
        (figure.SERVICE_REQUESTS, ("details", "answered"), answered),
    )
    assert [one.kind.value for one in found(minutes=outcomes)] == kinds
