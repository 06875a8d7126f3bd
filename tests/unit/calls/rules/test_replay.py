"""Replay: other rules over recorded calls."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from callkeeper.calls.policies import Policies
from callkeeper.calls.rules import Outcome, Rule, RuleBook, Stage, load_rules
from callkeeper.calls.rules.book import Between
from callkeeper.calls.rules.replay import Difference, Replay
from callkeeper.calls.rules.replay import replay as replay_calls
from callkeeper.calls.trail import FORMAT, Entry, Recorded, RecordingWrong, encode_recorded, parse_recordings
from tests.unit.calls.rules.recordings import Known, at, record
from tests.unit.calls.rules.specimens import any_book

DEFAULT, DEMO, WATCH = load_rules("default"), load_rules("demo"), load_rules("watch-only")
PASSCODE: dict[str, Any] = {
    "verified": True,
    "validation_type": "OneTimePasswordAuth",
    "verified_person_is_assigned": True,
    "verified_in_time": True,
    "voice_checked": True,
    "ended": True,
    "final_analysis": True,
}
MISMATCH: dict[str, Any] = {"voice_mismatch": True, "high_risk_device": True}
HOLD = DEFAULT.rules[-1]


def only(*rules: Rule, policies: Policies = DEFAULT.policies) -> RuleBook:
    """Return rules with the final hold behind them."""
    return replace(DEFAULT, rules=(*rules, HOLD), policies=policies)


def replayed(calls: Iterable[Recorded], book: RuleBook) -> tuple[Replay, list[Difference]]:
    """Replay calls; return the counts and the differences."""
    told: list[Difference] = []
    return replay_calls(calls, book, told.append), told


ENROLL = Rule("enroll", (("verified", True), ("green", False)), Outcome.ENROLL, "because", "as_verified")


@pytest.mark.parametrize(
    ("then", "now", "facts", "did", "would", "why"),
    [
        (DEFAULT, DEFAULT, PASSCODE, None, None, None),
        (DEFAULT, DEMO, PASSCODE, None, None, None),
        (
            DEMO,
            DEFAULT,
            MISMATCH,
            "reject",
            "ask",
            "'another voice on a risky device' asks a person, and not for reject",
        ),
        (WATCH, DEMO, MISMATCH, "hold", "reject", "matches; then 'another voice on a risky device' was in shadow"),
        (DEMO, WATCH, MISMATCH, "reject", "hold", "'another voice on a risky device' was in shadow"),
        (
            DEFAULT,
            replace(DEFAULT, require_opt_in=True),
            PASSCODE,
            "enroll",
            "hold",
            "the law forbids it (opt_in_required)",
        ),
        (
            replace(DEFAULT, require_opt_in=True),
            DEFAULT,
            PASSCODE,
            "hold",
            "enroll",
            "then the law forbade it (opt_in_requ",
        ),
        (
            only(ENROLL),
            only(replace(ENROLL, when=(*ENROLL.when, ("opted_in", True)))),
            PASSCODE,
            "enroll",
            "hold",
            "'enroll' wants opted_in true, it was false",
        ),
        (
            only(replace(ENROLL, when=(("opted_in", True),))),
            only(ENROLL),
            PASSCODE,
            "hold",
            "enroll",
            "'enroll' matches; then 'enroll' wants opted_in true, it was false",
        ),
        (
            only(),
            only(ENROLL),
            PASSCODE,
            "hold",
            "enroll",
            "'enroll' matches, and was not among the rules then; then no rule asks for enroll",
        ),
        (
            only(ENROLL),
            only(Rule("first", (), Outcome.HOLD, "because"), ENROLL),
            PASSCODE,
            "enroll",
            "hold",
            "'first' decided before 'enroll'",
        ),
        (
            only(ENROLL),
            only(replace(ENROLL, institutions=frozenset({"cu-2"}))),
            PASSCODE,
            "enroll",
            "hold",
            "'enroll' was not for this institution",
        ),
        (
            only(ENROLL),
            only(replace(ENROLL, validation_type="Other")),
            PASSCODE,
            "enroll with OneTimePasswordAuth",
            "enroll with Other",
            "'enroll' enrolls with another validation type",
        ),
    ],
)
def test_replay_says_what_comes_out_otherwise_and_why(
    then: RuleBook, now: RuleBook, facts: dict[str, Any], did: str | None, would: str | None, why: str | None
) -> None:
    """A difference names both outcomes and the reason: the condition, the stage, the law, the rule that is not there."""
    found, differences = replayed([record(then, [{}, facts, facts])], now)
    if why is None:
        assert (found.same, differences) == (1, [])
        return
    (difference,) = differences
    assert (difference.then[0].words if difference.then else "hold").startswith(did or "")
    assert (difference.now[0].words if difference.now else "hold").startswith(would or "")
    assert why in difference.why


def test_replay_says_once_that_a_rule_asks_for_something_else() -> None:
    """The rule matched then and matches now: nothing else has to be explained."""
    (difference,) = replayed([record(DEMO, [{}, MISMATCH, MISMATCH])], DEFAULT)[1]
    assert difference.why == "'another voice on a risky device' asks a person, and not for reject"


def test_replay_names_a_few_of_the_rules_that_might_have_done_the_same() -> None:
    """It says how many there were, and what the first ones lacked."""
    several = [replace(ENROLL, name=f"r{n}", when=(("opted_in", True),)) for n in range(4)]
    several.insert(0, replace(ENROLL, name="watched", stage=Stage.SHADOW))
    (difference,) = replayed([record(only(*several), [{}, PASSCODE])], only(ENROLL))[1]
    lacked = "wants opted_in true, it was false"
    assert difference.why == (
        "'enroll' matches, and was not among the rules then; then none of 5 rules that ask for enroll decided: "
        f"'watched' was in shadow; 'r0' {lacked}; 'r1' {lacked}; ..."
    )


def test_replay_colours_policies_by_the_other_rules() -> None:
    """A policy that had no colour held the call; other rules that call it neutral enroll."""
    held = record(DEFAULT, [{}, {**PASSCODE, "unclassified": True}], policies=["Yellow Review"])
    neutral = replace(DEFAULT, policies=replace(DEFAULT.policies, neutral=("Yellow *",)))
    (difference,) = replayed([held], neutral)[1]
    assert [did.outcome for did in difference.now] == ["enroll"]
    assert replayed([held], DEFAULT)[0].same == 1


def test_replay_remembers_a_policy_that_only_reads_have_shown() -> None:
    """As in a live call: it has no colour and is gone again, or it is called red by the other rules."""
    held = record(DEFAULT, [{}, {**PASSCODE, "unclassified_seen": True}])
    shown = Entry(at=at(1), what="read", policies=("Yellow Review",))
    held = msgspec.structs.replace(held, trail=(held.trail[0], shown, *held.trail[1:]))
    red = replace(DEFAULT, policies=replace(DEFAULT.policies, red=("Yellow *",)))
    assert replayed([held], DEFAULT)[0].same == 1
    assert "'a red policy' matches" in replayed([held], red)[1][0].why


def test_replay_of_rules_that_call_a_policy_red_knows_no_authenticated_voice() -> None:
    """As in a live call, a voice is not authenticated while a policy is red."""
    seen: dict[str, Any] = {"authenticated": True, "green": True, "fully_authenticated": True}
    call = record(DEFAULT, [{}, seen], policies=["Yellow Review"])
    tell = Rule("authenticated", (("authenticated", True),), Outcome.ASK, "because")
    red = replace(DEFAULT.policies, red=("Yellow *",))
    assert replayed([call], only(tell))[0].different == 1
    assert replayed([call], only(tell, policies=red))[0].different == 0


def test_replay_corrects_facts_for_what_would_not_have_been_sent() -> None:
    """An enroll that only the recorded rules made does not forbid the one that the others make later."""
    patient = only(replace(ENROLL, when=(*ENROLL.when, ("opted_in", True))))
    call = record(only(ENROLL), [{}, PASSCODE, {**PASSCODE, "opted_in": True}])
    assert replayed([call], patient)[0].same == 1


@given(any_book(), st.lists(st.sampled_from([{}, PASSCODE, MISMATCH, {"distrusted": True}, {"red": True}]), max_size=4))
def test_replay_of_the_same_rules_finds_no_difference(book: RuleBook, moments: list[dict[str, Any]]) -> None:
    """Whatever the rules and the call: replayed with the rules that decided it, it comes out as it did.

    Without rules that count seconds: the recorded moments are not those at which a worker would decide by these.
    """
    assume(not any(book.turns_s.values()))
    policies = ["Red x"] if any("red" in known for known in moments) else []
    moments = [{**known, "red": bool(policies)} for known in moments]
    assert replayed([record(book, moments, policies=policies)], book)[1] == []


@given(any_book(), st.lists(st.sampled_from([{}, PASSCODE, MISMATCH, {"distrusted": True}]), max_size=4))
def test_replay_is_not_changed_by_rules_in_shadow(book: RuleBook, moments: list[dict[str, Any]]) -> None:
    """Rules in shadow make no difference in a replay either."""
    bare = replace(book, rules=tuple(rule for rule in book.rules if rule.stage is Stage.LIVE))
    assert replayed([record(book, moments)], bare)[1] == []


def test_replay_lists_every_difference() -> None:
    """Each of many calls that other rules decide otherwise is a difference of its own; how fast is for benchmarks."""
    story = [{}, {}, {"voice_mismatch": True}, *[{}] * 4, PASSCODE, *[{}] * 4]
    lines = [encode_recorded(record(DEFAULT, story, voice_id=f"v-{n}")) for n in range(100)]
    found, differences = replayed(parse_recordings(lines), replace(DEFAULT, require_opt_in=True))
    assert (found.calls, found.different, len(differences)) == (100, 100, 100)


def test_replay_tells_each_difference_before_it_reads_the_next_call() -> None:
    """A replay keeps no differences, so millions of them need no memory."""
    told: list[Difference] = []

    def calls() -> Iterator[Recorded]:
        for n in range(3):
            assert len(told) == n
            yield record(only(ENROLL), [{}, PASSCODE], voice_id=f"v-{n}")

    replay_calls(calls(), only(), told.append)
    assert [difference.voice_id for difference in told] == ["v-0", "v-1", "v-2"]


def test_recordings_are_read_back_as_written() -> None:
    """A recorded call is one line, of one format, and comes back the same."""
    call = record(DEMO, [{}, PASSCODE])
    line = encode_recorded(call)
    assert b"\n" not in line
    assert f'"format":"{FORMAT}"'.encode() in line
    assert list(parse_recordings([line, b"\n", line])) == [call, call]


@pytest.mark.parametrize(
    "line", [b"{}", b"no json", b'{"format":"callkeeper.trail/2"}'], ids=["empty", "text", "version"]
)
def test_recordings_of_another_shape_are_refused_by_line(line: bytes) -> None:
    """What is no recorded call of this format is refused, and the line is named."""
    with pytest.raises(RecordingWrong, match="line 2"):
        list(parse_recordings([encode_recorded(record(DEMO, [{}])), line]))


def test_trail_of_an_earlier_release_says_nothing_about_which_call_a_case_is_about() -> None:
    """Its ``fraud`` is read as that of another call: replay enrolls nobody for it, and rejects nobody because of it."""
    reject = Rule("known", (("fraud", True), ("voice_mismatch", True)), Outcome.REJECT, "because")
    ask = Rule("tied", (("fraud_elsewhere", True),), Outcome.ASK, "because")
    book = only(reject, ask)
    now: Known = {"fraud": True, "research": "DeterminedFraud", "voice_mismatch": True}
    old: Known = {"fraud": True, "voice_mismatch": True}
    _, told_now = replayed([record(only(), [now])], book)
    _, told_old = replayed([record(only(), [old])], book)
    assert [did.outcome for one in told_now for did in one.now] == ["reject"]
    assert [did.outcome for one in told_old for did in one.now] == ["ask"]


def test_word_of_a_person_in_a_trail_of_an_earlier_release_was_said_in_time() -> None:
    """Its facts lack ``verified_in_time``. What was stated before the end was in time: replay enrolls as the call did."""
    said: Known = {
        "verified": True,
        "verified_by_desk": True,
        "validation_type": "Other",
        "verified_person_is_assigned": True,
    }
    desk = only(replace(ENROLL, when=(("verified_by_desk", True),)))
    (call,) = [record(desk, [{**said, "verified_in_time": True}])]
    for entry in call.trail:
        if entry.facts is not None:
            del entry.facts["verified_in_time"]
    found, told = replayed([call], desk)
    assert (found.same, told) == (1, [])


def test_replay_applies_conditions_on_the_time_since_the_end_at_their_instant() -> None:
    """Time alone changes what rules decide after the end too, between two entries of the trail."""
    rule = Rule("late", (("ended_s", Between(5, 8)),), Outcome.REJECT, "because")
    _, told = replayed([record(only(), [{"ended": True}])], only(rule))
    assert [(did.outcome, did.at_s) for one in told for did in one.now] == [("reject", 5.0)]
