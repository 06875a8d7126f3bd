"""What a shift did, in one sentence."""

from datetime import UTC, datetime

import pytest

from callkeeper.calls.pause import Pause, Pauses, PauseScope
from workers.job_summary import JobSummary

SENTENCES: dict[str, tuple[dict[str, int], int, str]] = {
    "nothing": ({}, 0, "nothing was due"),
    "one of each": (
        {"calls": 1, "checks": 1, "enrolled": 1, "institutions": 1},
        0,
        "1 call, 1 queue listed, 1 check, 1 enroll",
    ),
    "many": (
        {"calls": 37, "checks": 35, "enrolled": 1, "rejected": 2},
        2,
        "37 calls, 35 checks, 1 enroll, 2 rejects; 2 need a person",
    ),
    "one needs a person": ({"calls": 2}, 1, "2 calls; 1 needs a person"),
    "failures": (
        {"calls": 3, "listings_failed": 4, "checks_failed": 1},
        2,
        "3 calls; 4 listings failed, 1 check failed; 2 need a person",
    ),
    "nothing but failures": ({"reads_failed": 1}, 0, "nothing was due; 1 read failed"),
    "hints": ({"dropped": 1, "settled": 3}, 0, "3 settled, 1 hint dropped"),
}


@pytest.mark.parametrize(("counts", "attention", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_tally_says_what_was_done(counts: dict[str, int], attention: int, sentence: str) -> None:
    """The sentence counts in an operator's words and holds no id of anybody."""
    tally = JobSummary(attention=attention)
    for name, n in counts.items():
        tally.add(name, n)
    assert tally.sentence() == sentence


def test_tally_says_since_when_the_service_is_unreachable() -> None:
    """In an outage the sentence and the result say when it began."""
    tally = JobSummary(attention=1, unreachable_since=datetime(2026, 11, 2, 3, 12, 40, tzinfo=UTC))
    assert tally.sentence() == "nothing was due; service unreachable since 03:12 UTC; 1 needs a person"
    assert tally.as_dict() == {"unreachable_since": "2026-11-02T03:12:40+00:00", "attention": 1}


def test_tally_is_a_jobs_result() -> None:
    """The result has the same counts by name, zeros left out, and always how many calls need a person."""
    tally = JobSummary()
    tally.add("checks", 2)
    tally.add("reads", 0)
    assert tally.as_dict() == {"checks": 2, "attention": 0}


def test_description_names_the_latest_calls() -> None:
    """With all that happened to each; the result names a hundred, the description five."""
    tally = JobSummary()
    for n in range(120):
        tally.handled(f"v-{n}", ["assigned"], n)
    tally.handled("v-118", ["assigned", "green"], 4)
    assert tally.description().startswith(
        "nothing was due; v-118: assigned, green, 4 checks; v-119: assigned, 119 checks; v-117"
    )
    assert tally.description().endswith("and 95 more")
    assert len(str(tally.as_dict()["latest"]).split("v-")) == 101


def pause(scope: PauseScope) -> Pause:
    """Return a pause of some extent."""
    return Pause(scope=scope, operator="ann", because="canary-reason", at=datetime(2026, 11, 2, tzinfo=UTC))


def test_tally_says_what_is_paused() -> None:
    """During a pause, a job's sentence and result name institution and scope, but not the typed reason."""
    tally = JobSummary(pauses=Pauses({"cu-1": pause(PauseScope.ALL), "*": pause(PauseScope.EFFECTS)}))
    tally.add("calls", 2)
    assert tally.sentence() == "2 calls; paused: every institution (effects), cu-1 (all)"
    assert tally.as_dict() == {"calls": 2, "paused": "every institution (effects), cu-1 (all)", "attention": 0}


def test_tally_names_a_few_of_many_pauses() -> None:
    """With many pauses the sentence stays short."""
    tally = JobSummary(pauses=Pauses({f"cu-{n}": pause(PauseScope.ALL) for n in range(1, 9)}))
    assert tally.sentence().endswith("cu-5 (all) and 3 more")


RECONCILED: dict[str, tuple[list[dict[str, int]], str]] = {
    "not yet": ([], "not listed yet; meanwhile 3 calls"),
    "empty": ([{"listed": 0, "told": 0}, {"gone": 0}], "the queue is empty; meanwhile 3 calls"),
    "two pages": (
        [{"listed": 2, "told": 1}, {"listed": 1, "told": 1}, {"gone": 1}],
        "3 calls in the queue, 2 new or changed, 1 no longer in it; meanwhile 3 calls",
    ),
    "listed again": ([{"listed": 1}, {"gone": 0}, {"listed": 9}], "1 call in the queue; meanwhile 3 calls"),
}


@pytest.mark.parametrize(("found", "sentence"), RECONCILED.values(), ids=RECONCILED)
def test_tally_of_a_reconcile_is_about_one_queue(found: list[dict[str, int]], sentence: str) -> None:
    """The result of listing that queue comes first; other work that was due is listed separately."""
    tally = JobSummary(about="cu-1")
    tally.add("calls", 3)
    for counts in found:
        tally.found("cu-1", **counts)
        tally.found("cu-2", **counts)
    assert tally.sentence() == sentence
    assert tally.as_dict()["reconciled"] == "cu-1"
