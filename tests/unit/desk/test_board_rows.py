"""A call as a line of the board: its state, what comes next, and nothing of a person."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from msgspec import structs

from callkeeper.calls.call_query import NEEDS_PERSON, OPEN, SETTLED
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.institutions import UNKNOWN
from callkeeper.calls.item_names import CallId
from callkeeper.calls.pause import PauseScope
from callkeeper.calls.record import Asked, Candidate, Phase, Reason
from callkeeper.calls.rules import load_rules
from callkeeper.calls.rules.book import Outcome, Rule
from callkeeper.calls.store.last_listing import Standing
from callkeeper.desk.board.call_page import available_forms
from callkeeper.desk.board.calls_page import TABS
from callkeeper.desk.board.groups import group_of
from callkeeper.desk.board.renderer import Renderer, area, bars, cells, line
from callkeeper.desk.board.rows import LiveCall, address_of, next_of, row_of
from callkeeper.desk.board.states import (
    STATE_STYLES,
    STATE_WORDS,
    CallState,
    StateName,
    StateTone,
    state_named,
    state_of,
)
from tests.conftest import examples
from tests.records import facts_of_record
from tests.unit.calls.specimens import BOOK, CALLS, NOW, call, reading, seconds, verified, word

GREEN = reading(policies=("Green Voice Authentication",))
RED = reading(policies=("Red High Risk",))
UNRESOLVED = Effect(state=EffectState.UNRESOLVED)
DISTRUSTED = word(reason="does not know the address")
ASKED = Asked(rule="another voice", because="Is it her?", asked_at=NOW)

NOBODY: dict[str, Any] = {"person_id": None, "reading": reading(person_id=None), "assign": Effect()}

STATES: list[tuple[StateName, dict[str, Any]]] = [
    (StateName.WATCHED, {}),
    (StateName.UNASSIGNED, NOBODY),
    (StateName.ANNOUNCED, {"phase": Phase.HINTED}),
    (StateName.GREEN, {"reading": GREEN}),
    (StateName.GREEN, {"reading": GREEN, "end_seen_at": NOW}),
    (StateName.RED, {"reading": RED}),
    (StateName.ENROLLED, {"enroll": Effect(state=EffectState.CONFIRMED)}),
    (StateName.HELD, {"enroll": Effect(state=EffectState.CONFIRMED), "enrolled_for": "p-0"}),
    (StateName.REJECTED, {"rejected_seen": True, "reading": GREEN}),
    (StateName.DOUBT, {"enroll": Effect(state=EffectState.UNKNOWN, sent_at=NOW)}),
    (StateName.UNRESOLVED, {"reject": UNRESOLVED, "rejected_seen": True}),
    (StateName.ACTING, {"enroll": Effect(state=EffectState.INTENDED, intended_at=NOW)}),
    (StateName.HELD, {"identity": verified(person_id="p-2")}),
    (StateName.HELD, {"identity": verified(), "opted_out_seen": True}),
    (StateName.HELD, {"identity": verified(), "paused": PauseScope.EFFECTS}),
    (StateName.DISTRUSTED, {"reading": GREEN, "distrusted": DISTRUSTED}),
    (StateName.DISTRUSTED, {"enroll": Effect(state=EffectState.CONFIRMED), "distrusted": DISTRUSTED}),
    (StateName.DISTRUSTED, {"distrusted": DISTRUSTED, "phase": Phase.SETTLED, "reason": Reason.UNDECIDED}),
    (StateName.REJECTED, {"distrusted": DISTRUSTED, "rejected_seen": True}),
    (StateName.MISMATCH, {"mismatch_seen": True}),
    (StateName.MISMATCH, {"mismatch_seen": True, "reading": GREEN}),
    (StateName.MISMATCH, {"mismatch_seen": True, "enroll": Effect(state=EffectState.CONFIRMED)}),
    (StateName.RED, {"mismatch_seen": True, "reading": RED}),
    (StateName.ASKED, {"asked": ASKED}),
    (StateName.ASKED, {"asked": ASKED, "reading": GREEN}),
    (StateName.FOREIGN, {"standing": "not_active"}),
    (StateName.ENDED, {"end_seen_at": NOW}),
    (StateName.UNDECIDED, {"phase": Phase.SETTLED, "reason": Reason.UNDECIDED}),
    (StateName.LOST, {"phase": Phase.SETTLED, "reason": Reason.LOST}),
]


@pytest.mark.parametrize(("state", "changes"), STATES, ids=[f"{n}-{state}" for n, (state, _) in enumerate(STATES)])
def test_state_is_the_strongest_thing_that_is_true(state: StateName, changes: dict[str, Any]) -> None:
    """Doubt first, then what speaks against the caller, then what speaks for them, what is under way, and waiting."""
    assert state_of(call(**changes), BOOK).name is state


@pytest.mark.parametrize(
    ("changes", "said"), [({}, True), ({"end_hinted_at": NOW}, True), ({"reads_failed": 2}, False)]
)
def test_call_whose_details_cannot_be_read_says_so(changes: dict[str, Any], said: bool) -> None:
    """After three failed reads in a row, so that one lost answer changes nothing."""
    state = state_of(call(**{"reads_failed": 3, **changes}), BOOK)
    assert (state.name, state.because) == (StateName.WATCHED, "its details cannot be read" if said else "")


@pytest.mark.parametrize(
    ("changes", "is_stuck"),
    [
        ({}, True),
        ({"distrusted": DISTRUSTED}, True),
        ({"reads_failed": 7}, False),
        ({"enrolled_seen": True}, True),
        ({"phase": Phase.HINTED}, False),
        ({"phase": Phase.SETTLED, "reason": Reason.LOST}, False),
    ],
)
def test_call_whose_details_cannot_be_read_for_long_needs_a_person(changes: dict[str, Any], is_stuck: bool) -> None:
    """Nothing more can be done for it, not even for one that looks well: nobody would see a red policy.

    Anyone who may push can invent one that was never listed.
    """
    state = state_of(call(**{"reads_failed": 8, **changes}), BOOK)
    assert state.for_person is is_stuck
    assert not is_stuck or state.because == "its details cannot be read"


SUSPICIOUS: dict[str, dict[str, Any]] = {
    "distrusted": {"distrusted": DISTRUSTED},
    "mismatch": {"mismatch_seen": True},
    "asked": {"asked": ASKED},
}


@pytest.mark.parametrize("against", SUSPICIOUS.values(), ids=SUSPICIOUS)
def test_caller_about_whom_there_is_doubt_is_not_shown_as_authenticated(against: dict[str, Any]) -> None:
    """The agent's element says it as well. A decided call is folded away, where nobody looks for one."""
    state = state_of(call(reading=GREEN, **against), BOOK)
    assert STATE_STYLES[state.name].tone in {StateTone.BAD, StateTone.WARN}
    assert (state.is_urgent, state.is_decided) == (True, False)


def test_reason_for_which_a_reject_is_held_stands_beside_the_distrust() -> None:
    """A person said it, so somebody must be able to see why nothing follows."""
    state = state_of(call(distrusted=DISTRUSTED, paused=PauseScope.EFFECTS), BOOK)
    assert (state.name, state.because) == (StateName.DISTRUSTED, "paused")


def test_reason_for_which_a_reject_of_another_voice_is_held_stands_beside_it() -> None:
    """A rule rejects it, and nobody has said anything: the board must not look as if nothing were to follow."""
    risky = {"mismatch_seen": True, "reading": reading(is_high_risk_device=True), "paused": PauseScope.EFFECTS}
    state = state_of(call(**risky), load_rules("demo"))
    assert (state.name, state.because) == (StateName.MISMATCH, "paused")


def test_reason_for_which_a_reject_of_a_red_call_is_held_stands_beside_it() -> None:
    """A rule rejects on red alone: the board must not look as if the reject were to follow by itself."""
    red_alone = Rule("red", (("red", True),), Outcome.REJECT, "Red.", on_red_alone=True)
    paused = call(reading=RED, paused=PauseScope.EFFECTS)
    state = state_of(paused, replace(BOOK, rules=(red_alone,)))
    assert (state.name, state.because) == (StateName.RED, "paused")
    assert state_of(paused, BOOK).because == ""


def test_state_has_a_look_of_its_own() -> None:
    """Nobody has to tell colours apart: no two states that a live call can have share their word, nor word and shape."""
    words = [look.word for look in STATE_STYLES.values()]
    assert sorted(set(words)) == sorted(words)
    assert set(STATE_STYLES) == set(StateName)


@pytest.mark.parametrize("name", StateName)
def test_state_is_named_as_it_is_shown_and_as_software_reads_it(name: StateName) -> None:
    """What a list prints can be typed to filter it, in any case, with blanks, hyphens or underscores."""
    word = STATE_STYLES[name].word
    typed = (word, word.upper(), word.lower().replace(" ", "-"), word.replace(" ", "_"), name, f" {name} ")
    assert {state_named(each) for each in typed} == {name}
    assert word.lower().replace(" ", "-") in STATE_WORDS


@pytest.mark.parametrize("name", [OPEN, SETTLED, NEEDS_PERSON])
def test_tab_of_the_list_is_named_as_it_is_shown(name: str) -> None:
    """The page's tabs are filters, too."""
    assert state_named(name) == state_named(TABS[name]) == name
    page = Renderer("/board", BOOK).page(
        "found.html",
        now=NOW,
        visitor=None,
        rows=[],
        words="",
        query="",
        is_cut=False,
        is_partial=False,
        has_archive=False,
        is_archive_missing=False,
    )
    assert {look.shape for look in STATE_STYLES.values()} <= set(re.findall(r'id="s-(\w+)"', page))


@pytest.mark.parametrize(
    ("changes", "for_person"),
    [
        ({"identity": verified(person_id="p-2")}, True),
        ({"identity": verified(), "reading": reading(policies=("Yellow Review",))}, True),
        ({"identity": verified(), "opted_out_seen": True}, False),
        ({"identity": verified(), "paused": PauseScope.EFFECTS}, False),
        ({"identity": verified(person_id="p-2"), "end_seen_at": NOW}, False),
        ({"enroll": Effect(state=EffectState.CONFIRMED), "enrolled_for": "p-0"}, True),
    ],
    ids=["another-person", "no-colour", "opted-out", "paused", "over", "enrolled-as-another"],
)
def test_held_asks_for_a_person_where_only_a_person_can_help(changes: dict[str, Any], for_person: bool) -> None:
    """E6: what was asked for and is held back says why; on top it stands only if a person can clear it up."""
    state = state_of(call(**changes), BOOK)
    assert (state.name, state.for_person, bool(state.because)) == (StateName.HELD, for_person, True)


@pytest.mark.parametrize(
    ("changes", "words", "in_s"),
    [
        ({}, "check", 10),
        ({"next_check_at": None, "checks_used": 18}, "checks spent, watching until the call ends", None),
        ({"paused": PauseScope.ALL}, "checks paused", None),
        ({"reading": GREEN}, "watching until the call ends", None),
        ({"end_seen_at": NOW}, "a last read", 3),
        (
            {**NOBODY, "candidates": (Candidate(person_id="p-1"),), "paused": PauseScope.ALL},
            "to be assigned",
            None,
        ),
        (NOBODY, "no candidate", None),
        ({**NOBODY, "core_username": "bob"}, "claimed by somebody else", None),
        ({"phase": Phase.HINTED, "hinted_at": NOW}, "to be listed", None),
        ({"phase": Phase.SETTLED, "reason": Reason.UNDECIDED}, "closed", None),
    ],
    ids=["check", "spent", "paused", "green", "ended", "unassigned", "no candidate", "claimed", "announced", "settled"],
)
def test_next_is_what_the_mover_has_planned(changes: dict[str, Any], words: str, in_s: float | None) -> None:
    """What comes next, and when, is asked of the function that decides it, as of the last write."""
    planned = call(saved_at=NOW, **changes)
    after = next_of(planned, facts_of_record(planned, BOOK.policies), BOOK)
    assert (after.words, after.at) == (words, None if in_s is None else NOW + seconds(in_s))


@examples(10)
@given(CALLS)
def test_every_call_has_a_line_and_offers(drawn: Any) -> None:
    """Whatever a record says, it can be shown, and its forms be offered."""
    drawn = structs.replace(drawn, saved_at=NOW)
    assert Renderer("/board", BOOK).piece("row", row_of(drawn, BOOK)).startswith("<li id=")
    assert available_forms(drawn, BOOK, NOW) is not None


def test_row_holds_nothing_of_a_person() -> None:
    """Names, person ids and whole numbers are for the call's own page; so are the names of operators."""
    known = call(
        phone_number="5550104821",
        candidates=(Candidate(person_id="p-1", name="Ada Example"), Candidate(person_id="p-2", name="Joint Example")),
        core_username="teller-7",
        identity=verified(),
        distrusted=word("bob", reason="a reason"),
        saved_at=NOW,
    )
    markup = Renderer("/board", BOOK).piece("row", row_of(known, BOOK))
    assert "4821" in markup
    for secret in ("555010", "Ada", "Example", "p-1", "p-2", "teller-7", "bob", "ann", "a reason"):
        assert secret not in markup


def test_row_of_an_institution_s_page_names_the_assigned_member() -> None:
    """Two calls with the same last digits are told apart by who they are assigned to, and by nobody else's name."""
    people = (Candidate(person_id="p-1", name="Ada Example"), Candidate(person_id="p-2", name="Joint Example"))
    markup = Renderer("/board", BOOK).piece("row", row_of(call(candidates=people, saved_at=NOW), BOOK), True)
    assert "Ada Example" in markup
    assert "Joint" not in markup


def test_group_puts_those_first_that_somebody_should_look_at() -> None:
    """Red and unresolved calls, then the newest that are undecided, then the decided ones; each kind newest first."""
    names: dict[str, dict[str, Any]] = {
        "green": {"reading": GREEN},
        "old": {},
        "enrolled": {"enroll": Effect(state=EffectState.CONFIRMED)},
        "red": {"reading": RED},
        "new": {},
        "unresolved": {"reject": UNRESOLVED},
        "waits": {"identity": verified(person_id="p-2")},
    }
    calls = [call(voice_id=name, started_at=NOW + seconds(n), **more) for n, (name, more) in enumerate(names.items())]
    live = [LiveCall(each.voice_id, each, state_of(each, BOOK)) for each in calls]
    group = group_of("cu-1", live, None, None)
    assert [each.slot for each in group.calls] == ["waits", "unresolved", "red", "new", "old", "enrolled", "green"]
    assert group.decided == 2


def test_group_says_that_the_standing_of_its_institution_cannot_be_read() -> None:
    """While the service has not said whether an institution is active, nothing is sent for its calls: its group says so."""
    live = [LiveCall("v-1", known := call(standing=UNKNOWN), state_of(known, BOOK))]
    assert "cannot be read" in group_of("cu-1", live, None, None).obstacle
    assert group_of("cu-1", live, Standing(key="cu-1", status="Active", has_voice_auth=True), None).obstacle == ""


def test_bar_shows_each_check_once() -> None:
    """Used and unused checks are twenty cells, whatever was used."""
    for used in range(21):
        path = cells(1, used) + cells(used + 1, 20)
        assert path.count("M") == 20


def test_course_draws_every_minute() -> None:
    """A course has a point for each minute, stays within its height, and nothing is drawn of nothing."""
    path = line([0.0, 5.0, 2.5])
    heights = [float(point.split()[1]) for point in path.removeprefix("M").split("L")]
    assert heights == [27.0, 2.0, 14.5]
    assert line([]) == area([]) == ""
    assert line([0.0, 0.0]).count(" ") == 2


def test_shares_fill_the_bar() -> None:
    """Shares stand side by side and end at the end of the bar."""
    pieces = bars([3, 1])
    assert [round(piece.x) for piece in pieces] == [0, 75]
    assert round(pieces[-1].x + pieces[-1].width) == 100


def test_offers_follow_the_call() -> None:
    """An unresolved effect can be closed also when the call is over; all else only while it lives."""
    over = call(phase=Phase.SETTLED, reason=Reason.UNRESOLVED, end_seen_at=NOW, reject=UNRESOLVED)
    forms = available_forms(over, BOOK, NOW)
    assert (forms.unresolved, forms.verified, forms.assign, forms.check) == ("reject", False, False, False)
    forms = available_forms(call(), BOOK, NOW)
    assert (forms.unresolved, forms.verified, forms.check, forms.distrusted) == (None, True, True, True)


UNCHOSEN: dict[str, Any] = {
    "person_id": None,
    "reading": reading(person_id=None),
    "assign": Effect(),
    "candidates": (Candidate(person_id="p-1", name="A"), Candidate(person_id="p-2", name="B")),
}


def test_call_with_several_candidates_waits_for_a_choice_and_leads_to_its_form() -> None:
    """What only a person can do is named as that, and is one click away."""
    waiting = call(saved_at=NOW, **UNCHOSEN)
    after = next_of(waiting, facts_of_record(waiting, BOOK.policies), BOOK)
    assert (after.words, after.form) == ("choose: 2 candidates", "assign")
    markup = Renderer("/board", BOOK).piece("row", row_of(waiting, BOOK))
    address = address_of(CallId(waiting.institution_key, waiting.voice_id))
    assert f'<a href="/board/{address}?do=assign#do-assign">choose: 2 candidates</a>' in markup
    assert "do=assign" not in Renderer("/board", BOOK, sees_people=False).piece("row", row_of(waiting, BOOK))
    live = LiveCall("c-1", waiting, state_of(waiting, BOOK))
    assert live.waits_for_choice


def test_reason_that_held_a_call_is_kept_after_its_end() -> None:
    """Afterwards people see what would have been needed."""
    ended = call(phase=Phase.SETTLED, reason=Reason.UNASSIGNED, **UNCHOSEN)
    assert state_of(ended, BOOK).because == "nobody chose between 2 candidates"
    assert not LiveCall("c-1", ended, CallState(StateName.ENDED)).waits_for_choice


@pytest.mark.parametrize("changes", [{}, {"reading": RED}, {"phase": Phase.SETTLED, "reason": Reason.UNDECIDED}])
def test_call_about_which_a_rule_asks_says_so_in_its_own_line(changes: dict[str, Any]) -> None:
    """Until somebody has seen it, also after the end: the line needs no look at the alarms."""
    state = state_of(call(asked=ASKED, **changes), BOOK)
    assert (state.because, state.for_person) == ("rule asks: another voice", True)
    seen = state_of(call(asked=structs.replace(ASKED, closed_by="ann"), **changes), BOOK)
    assert (seen.because, seen.for_person) == ("", False)
