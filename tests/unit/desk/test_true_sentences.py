"""Sentences about a call that were false once: who said that an effect is absent, whether a call is closed, who is wrong."""

from pathlib import Path
from typing import Any

import pytest

from callkeeper.calls.action_status import status_of
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.effect_resolution import ENROLLED_SINCE
from callkeeper.calls.item_names import CallId
from callkeeper.calls.note_folding import fold_note
from callkeeper.calls.notes import Verified
from callkeeper.calls.pause import PauseScope
from callkeeper.calls.record import Call
from callkeeper.calls.statuses import OTHERWISE
from callkeeper.calls.steps import WriteDecision
from callkeeper.calls.store.queries import Known
from callkeeper.calls.story import story_of
from callkeeper.calls.trail import Entry, recorded
from callkeeper.desk.access.visitor import Visitor
from callkeeper.desk.board.call_page import CallPage, call_page
from callkeeper.desk.board.renderer import Renderer
from callkeeper.desk.board.states import STATE_STYLES, StateName, state_of
from callkeeper.desk.signed_tokens import form_tokens
from tests.records import decide_record
from tests.signed_in import ANN
from tests.unit.calls.specimens import BOOK, NOW, call, reading, verified


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (
            Entry(at=NOW, what="established", kind="reject", state="absent", operator="ann", wish="w-1"),
            "reject: 'ann' says that it is absent",
        ),
        (Entry(at=NOW, what="established", kind="reject", state="absent"), "reject: stored details show it absent"),
        (
            Entry(at=NOW, what="established", kind="reject", state="unresolved"),
            "reject unresolved: nothing proves whether it was applied",
        ),
    ],
    ids=["a-person", "the-service", "nobody"],
)
def test_story_tells_who_established_what_became_of_an_effect(entry: Entry, sentence: str) -> None:
    """What a person said is that person's word; stored details are named only where they were read and showed it."""
    [line] = story_of(recorded(call(), (entry,))).lines
    assert line.text == sentence


def page_of(shown: Call) -> CallPage:
    """Return the page of a call."""
    known = Known(CallId(shown.institution_key, shown.voice_id), shown, (), is_certain=True, is_merging=False)
    return call_page(known, BOOK, None, NOW, institution="First Example Bank")


def forms_of(shown: Call) -> str:
    """Return the actions that a call's page offers, as markup."""
    visitor = Visitor(ANN, form_tokens(b"key"))
    return Renderer("/board", BOOK).piece("forms", page_of(shown), "token", visitor, OTHERWISE, {})


@pytest.mark.parametrize(
    ("person_id", "line"),
    [("p-1", "p-1, KnowledgeBasedAuth, by the service"), ("", "KnowledgeBasedAuth, by the service")],
)
def test_details_leave_out_what_is_not_known_of_an_identity(person_id: str, line: str) -> None:
    """Without a person's id the line begins with how the caller was verified, not with a comma."""
    known = verified(by_desk=False, person_id=person_id, validation_type="KnowledgeBasedAuth")
    assert [fact.value for fact in page_of(call(identity=known)).facts if fact.name == "Identity"] == [line]


def test_call_is_called_closed_when_it_is_settled_only() -> None:
    """A live call of which nothing can be said at present is not closed: that may change."""
    live = call(end_seen_at=NOW, rejected_seen=True)
    assert not live.is_settled
    assert "No action is possible at present." in forms_of(live)
    assert "closed" not in story_of(recorded(live, ())).ending


UNASSIGNED: dict[str, Any] = {
    "person_id": None,
    "reading": reading(person_id=None),
    "assign": Effect(),
    "candidates": (),
}


def test_nobody_is_the_wrong_person_while_nobody_is_assigned() -> None:
    """An enroll waits for the assignment, and that is the reason that is given: no other person is in the way."""
    state = state_of(call(**UNASSIGNED, identity=verified()), BOOK)
    assert (state.name, state.because) == (StateName.HELD, "nobody is assigned yet")
    said = Verified(person_id="p-1", validation_type="OneTimePasswordAuth", operator="ann", said_at=NOW)
    heard, lines = fold_note(call(**UNASSIGNED, listed_at=None), said, NOW)
    step = decide_record(heard, BOOK, NOW)
    assert isinstance(step, WriteDecision)
    assert status_of(heard, [*lines, step.entry], lines[0]).reasons == ("nobody_assigned",)


def test_wrong_person_is_named_where_somebody_is_assigned() -> None:
    """With another person assigned that is what a person has to clear up."""
    assert state_of(call(identity=verified(person_id="p-2")), BOOK).because == (
        "the verified person is not the assigned one"
    )
    absent = call(reject=Effect(state=EffectState.UNRESOLVED))
    assert "The reject is unresolved" in forms_of(absent)


def test_effect_that_was_given_up_was_not_refused_by_the_service() -> None:
    """Nothing was sent. Whoever is told that the service refused it might reject the member there by hand."""
    forms = forms_of(call(reject=Effect(state=EffectState.REFUSED, refusal=ENROLLED_SINCE)))
    assert "Reject not carried out" in forms
    assert "It would take back an enroll of the member that came later" in forms
    assert "Do it at the service" not in forms


def test_call_page_says_that_an_opt_out_took_no_enroll_back() -> None:
    """Only the service's operator can. Whoever has seen to that says so below."""
    enrolled = Effect(state=EffectState.APPLIED, person_id="p-1")
    forms = forms_of(call(enroll=enrolled, opted_out_seen=True))
    assert "Caller opted out, voice still enrolled" in forms
    assert "then say below that you have seen it" in forms
    assert "Caller opted out" not in forms_of(call(enroll=enrolled, opted_out_seen=True, opt_out_closed_by="ann"))


@pytest.mark.parametrize(
    "effect",
    [
        Effect(state=EffectState.REFUSED, refusal=ENROLLED_SINCE),
        Effect(state=EffectState.REFUSED, refusal="try later"),
    ],
    ids=["given-up", "refused"],
)
def test_call_page_does_not_send_anybody_to_the_call_page(effect: Effect) -> None:
    """What to do about an effect that failed is said below, on the page that says it."""
    forms = forms_of(call(reject=effect))
    assert "say it again below" in forms
    assert "on the call" not in forms


def test_states_are_documented_with_the_words_that_pages_show() -> None:
    """Whoever filters by a state that the board shows must find its name."""
    document = " ".join((Path(__file__).parents[3] / "docs" / "desk.md").read_text().split())
    shown = [f"`{name}` {style.word}" for name, style in STATE_STYLES.items()]
    assert [text for text in shown if text not in document] == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "The voice is not authenticated."),
        ({"reading": reading(policies=("Green Voice Authentication",))}, "The voice is that of the assigned member."),
        (
            {"reading": reading(policies=("Red High Risk",))},
            "Do not trust this caller: the service applies a red policy.",
        ),
        ({"mismatch_seen": True}, "The voice did not match the enrolled one of this member."),
        (UNASSIGNED, "No member is assigned: the voice authenticates nobody."),
        (
            {"identity": verified(), "paused": PauseScope.EFFECTS},
            "The voice is not authenticated, and no enroll or reject is sent now:",
        ),
        ({"unenrolled_seen": True}, "A reject of the member took the enroll back: the voice is not enrolled."),
    ],
    ids=["nothing-yet", "green", "red", "another-voice", "nobody", "held", "taken-back"],
)
def test_page_says_first_what_the_state_means_for_the_caller(changes: dict[str, Any], sentence: str) -> None:
    """Somebody with the caller on the line reads it before anything else, and need not know the word of the state."""
    head = Renderer("/board", BOOK).piece("call_head", page_of(call(**changes)))
    assert f'<span class="meaning">{sentence}</span>' in head


def test_forms_say_what_follows_before_somebody_presses_the_button() -> None:
    """An enroll makes a voice the member's, and a reject takes their enrolls back."""
    forms = forms_of(call())
    hint = "The rules may then enroll this voice: in later calls it stands for this person."
    assert hint in forms
    element = (Path(__file__).parents[3] / "callkeeper/desk/static/callkeeper-call.js").read_text()
    assert f'"{hint}"' in element, "an agent's page says it in the same words"
    assert ">Reject this voice</button>" in forms
