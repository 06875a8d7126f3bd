"""Folding what the service shows of a call into its record."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.facts import Facts
from callkeeper.calls.member_evidence import usable_answers
from callkeeper.calls.reading_folding import fold_check, reading_of
from callkeeper.calls.record import History, Phase, Reading
from callkeeper.service.answer_parsing import Reader
from callkeeper.service.phone_calls import PhoneCall, ResearchCase, VendorCall, VendorEvent
from tests.records import facts_of_record
from tests.unit.calls.specimens import BOOK, NOW, call, read_again, reading, seconds, verified
from tests.unit.calls.test_notes import CANARIES

REMEMBERED: dict[str, tuple[dict[str, Any], str]] = {
    "green by the voice": ({"status": "FullAuthentication", "is_voice_verified": True}, "green"),
    "fully authenticated": ({"status": "FullAuthentication"}, "fully_authenticated"),
    "rejected": ({"status": "RejectCallerVoice"}, "rejected"),
    "rejected by a rule": ({"status": "RejectCallerVoiceFromValidationRule"}, "rejected"),
    "enrolled elsewhere": ({"status": "AcceptCallerVoice"}, "enrolled"),
    "the manual policy": ({"policies": ("Green Manual Authentication",)}, "enrolled"),
    "opted out": ({"status": "VoiceOptOut"}, "opted_out"),
    "opted in": ({"status": "VoiceOptIn"}, "opted_in"),
    "mismatch by status": ({"status": "VoiceMismatch"}, "voice_mismatch"),
    "mismatch by flag": ({"is_voice_mismatch": True}, "voice_mismatch"),
    "a result of the voice is to come": ({"status": "Voice Pending"}, "voice_undecided"),
    "verified by questions": ({"status": "AnsweredQuestions"}, "verified"),
    "verified by passcode": ({"status": "MFAValidated"}, "verified"),
}


@pytest.mark.parametrize(("seen", "fact"), REMEMBERED.values(), ids=REMEMBERED)
def test_fold_of_a_reading_remembers_for_the_whole_call(seen: dict[str, Any], fact: str) -> None:
    """What was seen once stays true, although the status is overwritten by the next activity."""
    later = read_again(read_again(call(), **seen), NOW + seconds(5), status="AgentViewed")
    assert not getattr(facts_of_record(call(), BOOK.policies), fact)
    assert getattr(facts_of_record(later, BOOK.policies), fact)


BY_RULE, BY_VOICE = "RejectCallerVoiceFromValidationRule", "RejectCallerVoice"


@pytest.mark.parametrize(
    ("statuses", "by_rule_only"),
    [
        ([BY_RULE], True),
        ([BY_RULE, "AgentViewed"], True),
        ([BY_RULE, BY_VOICE], False),
        ([BY_VOICE, BY_RULE], False),
        ([BY_RULE, BY_VOICE, BY_RULE], False),
        ([BY_VOICE], False),
    ],
)
def test_reject_is_of_a_rule_only_until_somebody_rejects_the_voice(statuses: list[str], by_rule_only: bool) -> None:
    """A person's reject takes enrolls back, and none follows it; after a rule's a person's distrust still leads to one."""
    known = call()
    for after_s, status in enumerate(statuses):
        known = read_again(known, NOW + seconds(after_s), status=status)
    assert (known.seen.rejected, known.seen.rejected_by_rule_only) == (True, by_rule_only)


def test_fold_of_a_reading_remembers_what_no_fact_says() -> None:
    """That it went on, that it named a person, that the member has a voiceprint. Nothing of it is known before."""
    fresh = call(person_id=None)
    silent = read_again(fresh, person_id=None, has_ended=True)
    assert (silent.life.was_live, silent.seen.was_named, silent.seen.expects_voice) == (False, False, False)
    shown = read_again(fresh, is_voice_enrolled=True)
    later = read_again(shown, NOW + seconds(5), person_id=None, has_ended=True)
    assert (later.life.was_live, later.seen.was_named, later.seen.expects_voice) == (True, True, True)


@pytest.mark.parametrize(
    ("shown", "now_reads", "verified_as"),
    [
        (reading(), "p-1", "p-1"),
        (reading(), "p-2", ""),
        (reading(), None, ""),
        (reading(person_id=None), "p-1", ""),
        (None, "p-1", "p-1"),
        (None, "p-2", ""),
        (None, None, "p-1"),
    ],
)
def test_passcode_that_came_with_another_member_is_nobodys(shown: Any, now_reads: str | None, verified_as: str) -> None:
    """It may be of either. If details have named nobody so far, the queue's member counts."""
    found = read_again(
        call(reading=shown, absent_at=NOW, first_seen_at=NOW), person_id=now_reads, status="MFAValidated"
    )
    assert found.statements.identity is not None
    assert found.statements.identity.person_id == verified_as


@pytest.mark.parametrize(
    ("life", "verified_as"),
    [
        ({"absent_at": NOW - seconds(15)}, "p-1"),
        ({"absent_at": NOW - seconds(16)}, ""),
        ({"absent_at": None}, ""),
        ({"hinted_at": NOW - seconds(15), "first_seen_at": NOW}, "p-1"),
        ({"hinted_at": NOW - seconds(16), "first_seen_at": NOW}, ""),
        ({"hinted_at": NOW - seconds(16), "first_seen_at": NOW, "absent_at": NOW - seconds(15)}, "p-1"),
        ({"hinted_at": NOW - seconds(1), "first_seen_at": NOW - seconds(2)}, ""),
        ({"hinted_at": NOW, "first_seen_at": NOW, "end_hinted_at": NOW}, ""),
        ({"absent_at": NOW, "first_seen_at": NOW - seconds(1)}, ""),
    ],
    ids=[
        *("not listed before", "not listed long before", "first look at the queue"),
        *("push of the start", "push long before", "push, and not listed since"),
        *("push of a call that was found", "push of the end", "known before"),
    ],
)
def test_passcode_of_a_call_that_was_found_late_is_nobodys(life: dict[str, Any], verified_as: str) -> None:
    """Others may have stood there before the first read. The service's clock says nothing of that: it may differ."""
    known = call(reading=None, started_at=NOW, **{"first_seen_at": NOW, **life})
    found = read_again(known, status="MFAValidated").statements.identity
    assert found is not None
    assert found.person_id == verified_as


def test_passcode_that_the_first_read_shows_beside_our_assign_is_nobodys() -> None:
    """It may be older than the assign: whoever gave it need not be the member whose number called."""
    known = call(reading=None, absent_at=NOW, first_seen_at=NOW, assigned_person_id="p-1")
    found = read_again(known, person_id="p-1", status="MFAValidated").statements.identity
    assert found is not None
    assert found.person_id == ""


def test_passcode_that_comes_after_a_member_was_taken_off_the_call_is_nobodys() -> None:
    """The details name nobody, as before; who was there is not who gave it."""
    taken_off = read_again(read_again(call()), NOW + seconds(5), person_id=None)
    found = read_again(taken_off, NOW + seconds(10), person_id=None, status="MFAValidated").statements.identity
    assert found is not None
    assert found.person_id == ""


def test_passcode_that_came_with_our_assign_is_of_the_member_whom_we_assigned() -> None:
    """Nobody else has put anybody on the call meanwhile."""
    known = call(reading=reading(person_id=None), assigned_person_id="p-1")
    found = read_again(known, person_id="p-1", status="MFAValidated").statements.identity
    assert found is not None
    assert found.person_id == "p-1"


FORGOTTEN = ("AgentViewed", "GrabbedCall", "A status of next year")


@pytest.mark.parametrize("status", FORGOTTEN)
def test_fold_of_a_status_without_meaning_changes_no_fact(status: str) -> None:
    """Statuses that mean nothing to us leave every fact but the status itself as it was."""

    def blank(facts: Facts) -> dict[str, Any]:
        return {name: value for name, value in facts.as_dict().items() if name != "status"}

    assert blank(facts_of_record(read_again(call(), status=status), BOOK.policies)) == blank(
        facts_of_record(call(), BOOK.policies)
    )


@pytest.mark.parametrize("reported", [{"has_ended": True}, {"status": "CallEnded"}], ids=["callEnded", "status"])
def test_fold_of_a_reading_believes_the_end(reported: dict[str, Any]) -> None:
    """The end is believed from stored details, by flag or by status."""
    ended = read_again(call(), **reported)
    assert (ended.life.phase, ended.life.ended_at) == (Phase.ENDED, NOW)
    assert read_again(ended, NOW + seconds(2), **reported).life.ended_at == NOW


@pytest.mark.parametrize(
    ("status", "changed_s", "known_s"),
    [("CallEnded", 5, 5), ("CallEnded", 0, None), ("VoicePending", 5, None)],
    ids=["it changed", "it did not", "another activity changed it"],
)
def test_record_that_changed_with_the_end_says_when_that_was_at_the_latest(
    status: str, changed_s: float, known_s: float | None
) -> None:
    """What changes it later does not count. If the end is not what changed it, it does not say when the call ended."""
    before = read_again(call(), updated_at=NOW)
    ended = read_again(before, NOW + seconds(60), status=status, has_ended=True, updated_at=NOW + seconds(changed_s))
    later = read_again(ended, NOW + seconds(70), has_ended=True, updated_at=NOW + seconds(65))
    assert later.life.changed_at_end == (None if known_s is None else NOW + seconds(known_s))
    assert read_again(later, NOW + seconds(80), updated_at=NOW + seconds(75)).life.changed_at_end is None


@pytest.mark.parametrize("reported", [{"has_ended": True}, {"status": "CallEnded"}], ids=["callEnded", "status"])
@pytest.mark.parametrize(
    ("life", "is_taken_back"),
    [({}, True), ({"end_hinted_at": NOW}, False), ({"is_unlisted": True}, False), ({"is_reopened": True}, False)],
    ids=["details-alone", "pushed-too", "unlisted", "reopened"],
)
def test_end_that_details_take_back(reported: dict[str, Any], life: dict[str, Any], *, is_taken_back: bool) -> None:
    """One wrong answer, or the end of one leg, ends no call that goes on. A later status hides no end that others show."""
    ended = read_again(call(), **reported)
    shown = replace(ended, life=replace(ended.life, **life))
    after = read_again(shown, NOW + seconds(2))
    assert (after.life.phase is Phase.LIVE, after.life.ended_at is None) == (is_taken_back, is_taken_back)


def test_fold_of_a_reading_notes_whom_the_service_verified() -> None:
    """Identity established by the service counts for the person assigned when it said so, not for a later one (E6)."""
    first = read_again(call(), status="MFAValidated")
    moved = read_again(first, NOW + seconds(5), status="MFAValidated", person_id="p-2")
    assert facts_of_record(first, BOOK.policies).verified_person_is_assigned
    assert not facts_of_record(moved, BOOK.policies).verified_person_is_assigned


def test_fold_of_a_reading_after_the_end_keeps_who_was_verified_in_time() -> None:
    """The caller was verified in the call; that the service says it once more after the end makes that no later."""
    before = read_again(call(), NOW, status="AnsweredQuestions")
    before = read_again(before, NOW + seconds(10), status="CallEnded", has_ended=True)
    after = read_again(before, NOW + seconds(15), status="MFAValidated", has_ended=True)
    assert facts_of_record(after, BOOK.policies).verified_in_time


def test_fold_of_a_reading_after_the_end_that_shows_something_else_begins_the_final_analysis_anew() -> None:
    """Also one that does not show the end: a late copy of the record, or one whose status was overwritten."""
    ended = read_again(read_again(call(), NOW, has_ended=True), NOW + seconds(3), has_ended=True)
    assert facts_of_record(read_again(ended, NOW + seconds(8), has_ended=True), BOOK.policies).final_analysis
    late = read_again(ended, NOW + seconds(8), is_high_risk_device=True)
    assert not facts_of_record(late, BOOK.policies).final_analysis
    assert not facts_of_record(read_again(late, NOW + seconds(9), has_ended=True), BOOK.policies).final_analysis


def test_fold_of_a_reading_with_policies_in_another_order_is_the_same_analysis() -> None:
    """The Spec names no order. Else such a record would be read for hours, and no verified caller enrolled."""
    ended = read_again(call(), NOW, has_ended=True)
    ended = read_again(ended, NOW + seconds(3), has_ended=True, policies=("Yellow Review", "Blue Carrier"))
    same = read_again(ended, NOW + seconds(8), has_ended=True, policies=("Blue Carrier", "Yellow Review"))
    assert facts_of_record(same, BOOK.policies).final_analysis


def test_fold_of_a_reading_directly_after_the_end_begins_no_final_analysis() -> None:
    """The provider's analysis comes with the end or after it: a read in the same second may be too early."""
    ended = read_again(call(), NOW, has_ended=True)
    assert not facts_of_record(read_again(ended, NOW + seconds(6), has_ended=True), BOOK.policies).final_analysis


def test_fold_of_a_reading_ends_the_count_of_failed_reads() -> None:
    """Else the next read waits as after a failure, and a doubt about an effect is given up too early."""
    assert read_again(call(reads_failed=3)).plan.reads_failed == 0


def test_fold_of_a_reading_keeps_the_word_of_the_desk() -> None:
    """A person's verification of a caller stays, whatever the service says later."""
    said = call(identity=verified())
    assert read_again(said, status="AnsweredQuestions").statements.identity == said.statements.identity


def test_fold_of_a_reading_begins_the_watch_once() -> None:
    """The watch begins with the first reading that shows a person, and is never begun again."""
    new = call(watch_from=None, next_check_at=None)
    begun = read_again(new)
    assert begun.plan.watch_from == NOW
    assert read_again(begun, NOW + seconds(7)).plan.watch_from == NOW
    nobody = read_again(call(watch_from=None, next_check_at=None, person_id=None, assign=Effect()), person_id=None)
    assert nobody.plan.watch_from is None


@pytest.mark.parametrize(
    ("changes", "can_tell"),
    [
        ({}, True),
        ({"assigned_person_id": None, "core_username": "ann"}, True),
        ({"end_seen_at": NOW}, False),
        ({"assigned_person_id": None}, False),
        ({"assigned_person_id": "p-2"}, False),
        ({"assigned_person_id": None, "person_id": None}, False),
        ({"core_username": "ann", "person_id": None}, False),
    ],
)
def test_answer_of_a_check_tells_of_the_voice_of_an_assigned_member_before_the_end(
    changes: dict[str, Any], can_tell: bool
) -> None:
    """Otherwise an enroll could follow although the voice had no say: after the end it is not compared any more."""
    checked = fold_check(call(**{"assigned_person_id": "p-1", **changes}), 3, reading(is_voice_mismatch=True))
    assert usable_answers(checked.seen) == (0b100 if can_tell else 0)
    assert checked.seen.history == History(answered=0b100, signs={"voice_mismatch": 0b100})


@pytest.mark.parametrize(
    ("before", "shown", "frauds"),
    [
        ((), ("DeterminedFraud", "v-1"), ("v-1",)),
        ((), ("DeterminedFraud", None), ("",)),
        (("v-2",), ("DeterminedFraud", "v-1"), ("v-2", "v-1")),
        (("v-1",), (None, None), ("v-1",)),
        (("v-1",), ("SystemArchived", "v-1"), ("v-1",)),
        (("v-1",), ("FalsePositive", "v-1"), ()),
        (("v-1",), ("InReview", "v-1"), ("v-1",)),
        (("v-1",), ("FalsePositive", "v-2"), ("v-1",)),
        (("",), ("FalsePositive", None), ()),
    ],
)
def test_fraud_is_remembered_until_the_same_case_is_refuted(
    before: tuple[str, ...], shown: tuple[str | None, str | None], frauds: tuple[str, ...]
) -> None:
    """The record shows one case at a time. A case that is archived or opened again was not refuted."""
    case: dict[str, Any] = {"research_status": shown[0], "research_voice_id": shown[1]}
    assert read_again(call(frauds=before), **case).seen.frauds == frauds


def test_fraud_that_only_the_last_reading_of_an_older_record_shows_is_remembered() -> None:
    """Versions that did not remember it wrote the reading alone."""
    for voice_id in ("v-1", None):
        older = call(reading=reading(research_status="DeterminedFraud", research_voice_id=voice_id))
        assert read_again(older).seen.frauds == (voice_id or "",)


@pytest.mark.parametrize(
    ("changes", "shown", "is_authenticated"),
    [
        ({}, {}, True),
        ({}, {"is_voice_verified": False}, False),
        ({}, {"status": "AgentViewed"}, False),
        ({}, {"policies": ("Green Manual Authentication",)}, False),
        ({"enrolled_seen": True}, {}, False),
        ({"enroll": Effect(state=EffectState.APPLIED, sent_at=NOW)}, {}, False),
        ({"enroll": Effect(state=EffectState.UNKNOWN, sent_at=NOW)}, {}, False),
        ({"enroll": Effect(state=EffectState.ABSENT, sent_at=NOW)}, {}, True),
        ({"of_another": ("full_authentication",)}, {}, False),
    ],
)
def test_voice_is_authenticated_by_nothing_that_an_enroll_writes_too(
    changes: dict[str, Any], shown: dict[str, Any], is_authenticated: bool
) -> None:
    """FullAuthentication with a verified voice, of this member, and without anybody's enroll. It is remembered."""
    last = reading(status="FullAuthentication", is_voice_verified=True)
    before = call(reading=last if "of_another" in changes else reading(), **changes)
    folded = read_again(before, **{"status": "FullAuthentication", "is_voice_verified": True, **shown})
    assert folded.seen.authenticated is is_authenticated
    assert read_again(folded).seen.authenticated is is_authenticated


def test_voice_that_a_green_policy_shows_to_be_the_members_is_remembered() -> None:
    """Not where nobody is assigned."""
    green: dict[str, Any] = {"policies": ("Green Voice Authentication",)}
    recognised = read_again(call(), **green)
    assert recognised.seen.recognised
    assert read_again(recognised).seen.recognised
    assert not read_again(call()).seen.recognised
    assert not read_again(call(person_id=None), **green, person_id=None).seen.recognised
    assert read_again(call(person_id=None), **green).seen.recognised


def test_case_that_names_the_alternate_id_is_about_this_call() -> None:
    """The provider's events in the record give the alternate id, also of a call whose push was lost."""
    alternate_id = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
    event = VendorEvent(call=VendorCall(correlation_alt_id=alternate_id))
    case = ResearchCase(voice_id=alternate_id.upper(), research_status="DeterminedFraud")
    shown = PhoneCall(voice_id="v-1", vendor_events=(event,), research_case=case)
    assert reading_of(shown, NOW).research_voice_id == "v-1"
    assert reading_of(PhoneCall(voice_id="v-1", research_case=case), NOW).research_voice_id == alternate_id


def test_reading_keeps_no_scores_and_no_personal_data() -> None:
    """Raw scores, names, notes and numbers of the service's record have no field in ours (Spec: Vendor call)."""
    wire = {
        "voiceId": "v-1",
        "firstName": "Ada",
        "notes": "born 1900-01-01",
        "phoneNumber": "5550100001",
        "valueForCore": "core-p-1",
        "vendorEvents": [{"call": {"voiceScore": 99.5, "riskScore": "77"}}],
        "metaData": {"vendorPolicies": ["Green A"]},
    }
    kept = reading_of(Reader(PhoneCall).read(json.dumps(wire).encode()), NOW)
    assert kept == Reading(read_at=NOW, voice_id="v-1", policies=("Green A",))
    assert not [text for text in (*CANARIES, "99.5", "77", "Ada") if text in msgspec.json.encode(kept).decode()]
