"""A call's story: its trail told to a person."""

from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from callkeeper.calls.action_status import ActionState, ActionStatus
from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.rules import load_rules
from callkeeper.calls.story import MOST_BRIEF, Line, Row, Story, Tone, brief, story_of
from callkeeper.calls.trail import Entry, Tried, What
from tests.unit.calls.rules.recordings import at, record

DEMO = load_rules("demo")
PASSCODE: dict[str, Any] = {
    "verified": True,
    "validation_type": "OneTimePasswordAuth",
    "verified_person_is_assigned": True,
    "verified_in_time": True,
    "voice_checked": True,
    "ended": True,
    "final_analysis": True,
}


def told(*entries: Entry) -> tuple[Line, ...]:
    """Return the lines that a trail is told in."""
    return story_of(replace(record(DEMO, []), trail=entries)).lines


def texts(*entries: Entry) -> list[str]:
    """Return what a trail is told in, without times."""
    return [line.text for line in told(*entries)]


def test_story_shows_how_every_rule_fared() -> None:
    """Under a decision there is a row for every rule: the one that decided, and of the others the condition that failed."""
    lines = story_of(record(DEMO, [{}, PASSCODE])).lines
    held, enrolled = (line for line in lines if line.tone is Tone.DECIDED)
    assert held.text == f"decided: hold, by rule 'otherwise': No rule asks for anything. [rules {DEMO.digest}]"
    assert [row.rule for row in held.rows] == [rule.name for rule in DEMO.rules]
    assert {row.mark for row in held.rows[:-1]} == {"-"}
    assert held.rows[0] == Row("-", "distrusted", "distrusted is false, must be true")
    assert held.rows[-1] == Row("+", "otherwise", "matches: hold")
    assert enrolled.text.startswith("decided: enroll with OneTimePasswordAuth, by rule 'verified': ")
    assert enrolled.rows[-2:] == (
        Row("+", "verified", "matches: enroll"),
        Row(".", "otherwise", "not asked: a rule before it decided"),
    )


def test_story_says_what_the_law_forbids() -> None:
    """A decision that the law held names every reason, and the rule that asked."""
    (line,) = [line for line in story_of(record(DEMO, [{**PASSCODE, "opted_out": True}])).lines if line.rows]
    assert line.text.startswith("decided: hold; rule 'verified' asks for enroll, the law forbids it (opted_out)")


def test_story_explains_a_name_of_the_law_once() -> None:
    """Under the first line that has it is its sentence, the one about the effect that was asked for."""
    rejected = {"voice_rejected": "a rejected voice is not enrolled"}
    entry = Entry(at=at(1), what="decided", kind="hold", asked="enroll", rule="r", forbidden=("voice_rejected", "new"))
    first, again = told(entry, replace(entry, at=at(2)))
    assert {each.name: each.words for each in first.meanings} == rejected
    assert again.meanings == ()
    shadowed = Tried(rule="r", then="reject", stage="shadow", result="shadowed", forbidden=("rejected_by_rule",))
    (line,) = told(Entry(at=at(3), what="decided", kind="hold", tried=(shadowed,)))
    assert [each.name for each in line.meanings] == ["rejected_by_rule"]
    (line,) = told(Entry(at=at(4), what="withdrawn", kind="check", because="reserve_spent"))
    assert [each.words for each in line.meanings] == ["the checks reserved for people are used up"]


def test_story_names_the_call_behind_a_fact_about_earlier_calls() -> None:
    """With each decision, and when the fact is new; an entry of a release that did not keep it names none."""
    known: dict[str, Any] = {"facts": {"rejected_before": True}, "earlier_calls": {"rejected_before": "v-0"}}
    both = {"rejected_before": "v-0", "fraud_before": "v-9"}
    entry = Entry(at=at(1), what="decided", kind="ask", rule="r", because="Look.", **known)
    changed = {**known["facts"], "fraud_before": True}
    assert texts(
        entry,
        Entry(at=at(2), what="facts", facts=changed, earlier_calls=both),
        Entry(
            at=at(3), what="decided", kind="hold", asked="enroll", rule="r", forbidden=("paused",), earlier_calls=both
        ),
        replace(entry, at=at(4), earlier_calls={}),
    ) == [
        "decided: ask a person, nothing is sent, by rule 'r': Look. [rejected_before: call v-0]",
        "facts: now fraud_before [fraud_before: call v-9]",
        (
            "decided: hold; rule 'r' asks for enroll, the law forbids it (paused)"
            " [fraud_before: call v-9] [rejected_before: call v-0]"
        ),
        "decided: ask a person, nothing is sent, by rule 'r': Look.",
    ]


def test_story_says_why_a_question_that_was_closed_is_asked_again() -> None:
    """What came since stands behind the rule's sentence."""
    entry = Entry(at=at(1), what="decided", kind="ask", rule="r", because="Look.", signs=("mismatch", "policy Red"))
    assert texts(entry) == [
        "decided: ask a person, nothing is sent, by rule 'r': Look. Asked again, because of: mismatch, policy Red."
    ]


def test_story_explains_a_fact_that_the_law_names() -> None:
    """A fact that forbids by itself has the article's sentence when it becomes true."""
    (line,) = told(Entry(at=at(1), what="facts", facts={"member_changed": True, "high_risk_device": True}))
    assert [each.name for each in line.meanings] == ["member_changed"]
    assert "only a person's word" in line.meanings[0].words


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        (ActionStatus(ActionState.DONE), ""),
        (ActionStatus(ActionState.PENDING, may_change=True), ""),
        (
            ActionStatus(ActionState.HELD, ("reserve_spent",)),
            " (nothing has come of it: the checks reserved for people are",
        ),
        (
            ActionStatus(ActionState.HELD, ("nobody_assigned",), may_change=True),
            " (nothing has come of it: a voice is enrolled for the assigned person only",
        ),
        (ActionStatus(ActionState.SUPERSEDED), " (a later statement replaced it"),
        (ActionStatus(ActionState.REFUSED), " (the service refused it"),
    ],
)
def test_story_tells_a_statement_that_did_nothing(status: ActionStatus, ending: str) -> None:
    """It says why; one that did what was meant, or still may, stands alone."""
    entry = Entry(at=at(1), what="said", kind="verified", operator="ann", wish="w-1")
    (line,) = story_of(replace(record(DEMO, []), trail=(entry,)), {"w-1": status}).lines
    assert line.text.startswith(f"'ann' says: verified{ending}")
    assert bool(ending) == line.text.endswith(")")


def test_story_puts_checks_that_brought_nothing_together() -> None:
    """Checks say what they changed; those that changed nothing are one line, with when the first and the last were made."""
    checks = [
        Entry(at=at(n), what="checked", n=n, status="GrabbedCall" if n < 5 else "MFAValidated") for n in range(1, 7)
    ]
    assert [(line.at_s, line.until_s, line.text) for line in told(*checks)] == [
        (1, None, "check 1 of 20: status none -> GrabbedCall"),
        (2, 4, "checks 2 to 4 of 20: nothing new"),
        (5, None, "check 5 of 20: status GrabbedCall -> MFAValidated"),
        (6, None, "check 6 of 20: nothing new"),
    ]


def test_story_names_who_asked_for_a_check_that_brought_nothing() -> None:
    """It spent one of the checks that are reserved for people, so it is not put together with those of the schedule."""
    checks = [
        Entry(at=at(n), what="checked", n=n, status="GrabbedCall", operator="ann" * (n == 3)) for n in range(1, 5)
    ]
    assert [line.text for line in told(*checks)][1:] == [
        "check 2 of 20: nothing new",
        "check 3 of 20 by 'ann': nothing new",
        "check 4 of 20: nothing new",
    ]


def test_story_tells_the_state_of_a_research_case() -> None:
    """The state is told with its word, and when the case is about another call."""
    facts: list[dict[str, Any]] = [
        {"research_elsewhere": "InReview"},
        {"research": "DeterminedFraud", "fraud": True},
        {},
    ]
    entries = [Entry(at=at(n), what="facts", facts=known) for n, known in enumerate(facts)]
    assert texts(*entries) == [
        "facts: now research_elsewhere InReview",
        "facts: now fraud, research DeterminedFraud; no longer research_elsewhere InReview",
        "facts: no longer fraud, research DeterminedFraud",
    ]


def test_story_tells_a_listing_once() -> None:
    """A call that is listed again as before gets no second line."""
    listed = Entry(at=at(1), what="listed", candidates=2)
    again = replace(listed, candidates=1, person_id="p-1", operator="ann")
    assert texts(listed, listed, again) == [
        "the queue lists it: 2 candidates",
        "the queue lists it: 1 candidate, person p-1, claimed by 'ann'",
    ]


def test_story_says_when_checks_end() -> None:
    """The first fact that stops the checks says so."""
    entries = [Entry(at=at(n), what="facts", facts={"red": is_red}) for n, is_red in enumerate((False, True, False))]
    assert texts(*entries) == ["facts: now red; no further checks", "facts: no longer red"]


def test_story_says_a_pause_with_who_and_why() -> None:
    """A held effect names the pause."""
    entry = Entry(
        at=at(1),
        what="decided",
        kind="hold",
        asked="enroll",
        rule="r",
        forbidden=("paused",),
        pause="enrolls and rejects, by jane: drill",
    )
    assert texts(entry) == [
        "decided: hold; rule 'r' asks for enroll, the law forbids it (paused); paused: enrolls and rejects, by jane: drill"
    ]


def test_story_repeats_no_table() -> None:
    """Where every rule fared as in the decision before, one row says so."""
    entry = next(entry for entry in record(DEMO, [{}]).trail if entry.what == "decided")
    first, second = told(entry, replace(entry, at=at(3)))
    assert len(first.rows) == len(DEMO.rules)
    assert second.rows == (Row(".", "", "every rule as before"),)


@pytest.mark.parametrize("what", get_args(What))
def test_story_has_words_for_every_kind_of_line(what: What) -> None:
    """No line of a trail is left without words, but for those that say nothing new."""
    entry = Entry(
        at=at(1),
        what=what,
        kind="enroll",
        state=EffectState.APPLIED,
        status="MFAValidated",
        event_id="ev-1",
        voice_id="v-2",
        person_id="p-1",
        operator="ann",
        because="because",
        n=3,
        took_ms=20,
        facts={"red": True},
        candidates=1,
    )
    (text,) = texts(entry)
    assert text
    assert what not in {"sent", "answered"} or "enroll" in text


@given(
    st.lists(
        st.builds(
            Entry,
            at=st.integers(0, 100).map(at),
            what=st.sampled_from(get_args(What)),
            kind=st.sampled_from([None, "enroll", "reject", "hold"]),
            n=st.none() | st.integers(1, 20),
            status=st.sampled_from([None, "GrabbedCall", "VoiceMismatch"]),
            state=st.sampled_from([None, "applied", "unknown"]),
            facts=st.none() | st.dictionaries(st.sampled_from(["red", "green", "status"]), st.booleans()),
        ),
        max_size=12,
    )
)
def test_story_can_be_told_of_any_trail(trail: list[Entry]) -> None:
    """Whatever stands in a trail, it is told; no more lines than it has entries, each on one line."""
    story = story_of(replace(record(DEMO, []), trail=tuple(trail)))
    assert len(story.lines) <= len(trail)
    assert all("\n" not in line.text for line in story.lines)


def test_story_is_plain_data() -> None:
    """Whoever shows a story gets texts and numbers: no markup, no terminal."""
    story = story_of(record(DEMO, [{}]))
    assert {field.name for field in fields(Story)} == {"heading", "lines", "ending"}
    assert story.heading == "cu-1  v-1, began 2026-11-21 12:00:00 UTC"
    assert story.ending == "undecided, 0 of 20 checks"


@pytest.mark.parametrize("name", ["enroll", "call", "the call", "ann says: verified; bob"])
def test_story_quotes_the_names_of_people(name: str) -> None:
    """A core username may be a word of the story, or read like a whole line of it: it is quoted, as rules are."""
    entries = [
        Entry(at=at(1), what="listed", operator=name),
        Entry(at=at(2), what="said", kind="distrusted", operator=name),
        Entry(at=at(3), what="said", kind="withdrawn", asked="distrusted", operator=name),
        Entry(at=at(4), what="checked", n=1, operator=name, status="GrabbedCall"),
        Entry(at=at(5), what="decided", asked="assign", forbidden=("paused",), operator=name),
        Entry(at=at(6), what="sent", kind="enroll", operator=name),
        Entry(at=at(7), what="established", kind="enroll", state="absent", wish="w", operator=name),
    ]
    assert texts(*entries) == [
        f"the queue lists it: no candidates, claimed by {name!r}",
        f"{name!r} says: distrusted",
        f"{name!r} takes back: distrusted",
        f"check 1 of 20 by {name!r}: status none -> GrabbedCall",
        f"decided: hold; {name!r} asks for assign, the law forbids it (paused)",
        f"enroll sent by {name!r}",
        f"enroll: {name!r} says that it is absent",
    ]


def test_brief_story_is_what_decided() -> None:
    """What a word overruled, what was said, what was known, the rule that acted, what was sent and what came back."""
    trail = (
        Entry(at=at(0), what="pushed", kind="start"),
        Entry(at=at(1), what="facts", facts={"candidates": 1, "allowed": True}),
        Entry(at=at(2), what="decided", kind="hold", rule="otherwise", because="No rule asks for anything.", rules="a"),
        Entry(at=at(3), what="said", kind="verified", operator="ann", person_id="p-1"),
        Entry(
            at=at(4),
            what="decided",
            kind="enroll",
            rule="verified",
            because="Somebody vouches.",
            rules="a",
            facts={"allowed": True, "verified": True, "red": False},
        ),
        Entry(at=at(4), what="intended", kind="enroll", person_id="p-1", operator="ann", despite=("voice_mismatch",)),
        Entry(at=at(4), what="sent", kind="enroll"),
        Entry(at=at(5), what="answered", kind="enroll", state=EffectState.APPLIED),
        Entry(at=at(6), what="read", status="FullAuthentication"),
    )
    story = brief(story_of(replace(record(DEMO, []), trail=trail, enroll=EffectState.APPLIED)))
    overruled, said, known, decided, *effects = (line.text for line in story.lines)
    assert overruled.startswith("enrolled on the word of 'ann', despite: ")
    assert said.startswith("'ann' says: verified")
    assert known == "known: allowed, verified"
    assert decided.startswith("decided: enroll, by rule 'verified'")
    assert [each.split()[1] for each in effects] == ["intended:", "sent", "answered:"]


@given(trail=st.lists(st.sampled_from(["said", "sent", "decided", "facts", "checked"]), max_size=40))
def test_brief_story_is_short_and_keeps_its_order(trail: list[What]) -> None:
    """However long the call was: eleven lines at most, in the order of the whole story."""
    whole = story_of(replace(record(DEMO, []), trail=tuple(Entry(at=at(n), what=what) for n, what in enumerate(trail))))
    short = brief(whole)
    assert len(short.lines) <= MOST_BRIEF
    remaining = iter(whole.lines)
    assert all(any(line.text == each.text and line.at_s == each.at_s for each in remaining) for line in short.lines)
