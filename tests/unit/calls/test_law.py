"""The law over all its facts."""

import os
from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.facts import FACTS, Facts
from callkeeper.calls.law import LAW, articles, forbidden, meaning_of
from callkeeper.calls.statuses import VALIDATION_TYPES
from tests.unit.calls.rules.specimens import any_facts

EXPECTED = {
    EffectKind.ASSIGN: {
        "institution_not_allowed": {"allowed": False},
        "call_ended": {"ended": True},
        "somebody_assigned": {"assigned": True, "assigned_by_us": False},
        "authenticated_as_another": {"assigned": True, "green": True},
        "enrolled_for_another": {"assigned": True, "enrolled": True},
        "rejected_for_another": {"assigned": True, "rejected": True},
        "paused_entirely": {"paused_entirely": True},
    },
    EffectKind.ENROLL: {
        "institution_not_allowed": {"allowed": False},
        "voice_id_not_confirmed": {"real_voice_id": False},
        "final_analysis_awaited": {"ended": True, "final_analysis": False},
        "verified_too_late": {"verified": True, "verified_in_time": False},
        "voice_not_checked": {"voice_checked": False, "verified_by_desk": False},
        "voice_mismatch": {"voice_mismatch": True, "verified_by_desk": False},
        "evidence_against": {"evidence_against": True},
        "red_policy_seen": {"red": False, "red_seen": True, "verified_by_desk": False},
        "identity_not_established": {"verified": False},
        "nobody_assigned": {"assigned": False},
        "verified_person_is_not_the_assigned": {"verified": True, "verified_person_is_assigned": False},
        "already_green": {"green": True},
        "fully_authenticated": {"fully_authenticated": True},
        "red_policy": {"red": True},
        "unclassified_policy": {"unclassified": True},
        "unclassified_policy_seen": {"unclassified": False, "unclassified_seen": True, "verified_by_desk": False},
        "member_changed": {"member_changed": True, "verified_by_desk": False},
        "voice_rejected": {"rejected": True},
        "failed_feedback": {"failed_feedback": True, "verified_by_desk": False},
        "reject_in_doubt": {"reject_in_doubt": True},
        "already_enrolled": {"enrolled": True},
        "enroll_unresolved": {"enroll_unresolved": True},
        "same_member_live": {"same_member_live": True, "verified_by_desk": False},
        "unenrolled": {"unenrolled": True},
        "opted_out": {"opted_out": True},
        "opted_out_before": {"opted_out_before": True},
        "opt_in_required": {"opted_in": False},
        "distrusted": {"distrusted": True},
        "determined_fraud": {"fraud": True},
        "fraud_elsewhere": {"fraud_elsewhere": True},
        "paused": {"paused": True},
        "redis_changed": {"redis_changed": True},
        "standing_unconfirmed": {"standing_unconfirmed": True},
    },
    EffectKind.REJECT: {
        "institution_not_allowed": {"allowed": False},
        "voice_id_not_confirmed": {"real_voice_id": False},
        "voice_rejected": {"rejected": True, "rejected_by_rule": False, "enrolled": False},
        "rejected_by_rule": {"rejected_by_rule": True, "distrusted": False},
        "reject_of_authenticated": {"green": True, "distrusted": False},
        "reject_of_enrolled": {"enrolled": True, "distrusted": False},
        "reject_of_verified": {"verified_by_desk": True, "distrusted": False},
        "member_changed": {"member_changed": True, "distrusted": False},
        "distrusted_as_another": {"distrusted_as_another": True},
        "named_as_another": {"named_as_another": True},
        "paused": {"paused": True},
        "redis_changed": {"redis_changed": True},
        "standing_unconfirmed": {"standing_unconfirmed": True},
    },
}
"""The law once more, written by hand from the design and the Spec."""

BOTH = (EffectKind.ENROLL, EffectKind.REJECT)
ELSEWHERE = {"no_auth", "voice_auth", "said_in_shadow"}
"""Articles that have a test of their own. So have those about a reject on a red policy alone."""


def truths(count: int) -> Iterator[tuple[bool, ...]]:
    """Yield values of so many facts in which at most two differ from the rest, at night four."""
    most = 4 if os.environ.get("TEST_NIGHT") else 2
    for usual in (True, False):
        for differing in range(most + 1):
            for chosen in combinations(range(count), differing):
                yield tuple(usual != (n in chosen) for n in range(count))


@pytest.mark.parametrize("kind", list(EffectKind))
@pytest.mark.parametrize("opt_in_required", [True, False])
def test_law_is_what_it_says_for_every_combination_of_its_facts(kind: EffectKind, opt_in_required: bool) -> None:
    """The law names exactly the reasons that hold, wherever two or fewer facts differ from the rest, at night four."""
    expected = {name: when for name, when in EXPECTED[kind].items() if opt_in_required or name != "opt_in_required"}
    names = sorted({name for when in expected.values() for name in when})
    for values in truths(len(names)):
        known = dict(zip(names, values, strict=True))
        reasons = {name for name, when in expected.items() if all(known[fact] == value for fact, value in when.items())}
        found = forbidden(kind, Facts.from_dict(known), opt_in_required=opt_in_required)
        assert set(found) == reasons
        assert len(found) == len(reasons)


@pytest.mark.parametrize("kind", list(EffectKind))
def test_law_was_written_down_twice(kind: EffectKind) -> None:
    """An article that only the law itself has could say anything."""
    names = {article.name for article in LAW if kind in article.forbids and not article.if_on_red_alone}
    assert names - ELSEWHERE == set(EXPECTED[kind])


@pytest.mark.parametrize("validation_type", VALIDATION_TYPES)
def test_law_enrolls_nobody_whose_identity_was_not_established_otherwise(validation_type: str) -> None:
    """NoAuth establishes nothing, VoiceAuth not otherwise (Spec: Rules per operation 3); each has a reason of its own."""
    known = {"allowed": True, "real_voice_id": True, "assigned": True, "verified": True, "verified_in_time": True}
    more = {"verified_person_is_assigned": True, "opted_in": True, "voice_checked": True}
    facts = Facts.from_dict({**known, **more, "validation_type": validation_type})
    reasons = {"NoAuth": ("no_auth",), "VoiceAuth": ("voice_auth",)}
    assert forbidden(EffectKind.ENROLL, facts) == reasons.get(validation_type, ())


@given(any_facts())
def test_law_forbids_less_to_assign_the_person_who_stands_there(facts: Facts) -> None:
    """Only the articles against replacing a person do not apply, because nobody is replaced."""
    replacing = {"somebody_assigned", "authenticated_as_another", "enrolled_for_another", "rejected_for_another"}
    against = forbidden(EffectKind.ASSIGN, facts)
    stays = forbidden(EffectKind.ASSIGN, facts, person_stays=True)
    assert stays == tuple(name for name in against if name not in replacing)


@given(any_facts(), any_facts(), st.sampled_from(EffectKind))
def test_law_looks_at_no_other_facts(facts: Facts, other: Facts, kind: EffectKind) -> None:
    """Facts that no article of a kind names do not change what is forbidden."""
    named = {name: getattr(facts, name) for article in articles(kind) for name, _ in article.when}
    assert forbidden(kind, with_fields(other, **named)) == forbidden(kind, facts)


@given(any_facts())
def test_law_lets_a_rule_that_may_enroll_against_a_mismatch_do_just_that(facts: Facts) -> None:
    """Everything else that forbids an enroll goes on forbidding it."""
    against = forbidden(EffectKind.ENROLL, facts)
    assert ("voice_mismatch" in against) is (facts.voice_mismatch and not facts.verified_by_desk)
    lifted = forbidden(EffectKind.ENROLL, facts, against_mismatch=True)
    assert lifted == tuple(name for name in against if name != "voice_mismatch")


@pytest.mark.parametrize(
    ("kind", "said"), [(EffectKind.ENROLL, "verified_in_shadow"), (EffectKind.REJECT, "distrusted_in_shadow")]
)
def test_law_lets_nothing_follow_from_what_was_said_in_shadow(kind: EffectKind, said: str) -> None:
    """Whoever said it saw that nothing happens. Only a rule in shadow decides as if it happened."""
    facts = with_fields(Facts.from_dict({"allowed": True, "real_voice_id": True}), **{said: True})
    assert "said_in_shadow" in forbidden(kind, facts)
    assert "said_in_shadow" not in forbidden(kind, facts, in_shadow=True)


def test_law_shows_rules_the_articles_that_hold_for_each_of_them() -> None:
    """What depends on a rule is left out unless asked for; what depends on the opt-in and the shadow always is."""
    enroll = {article.name for article in articles(EffectKind.ENROLL)}
    assert "voice_mismatch" in enroll
    assert not enroll & {"opt_in_required", "said_in_shadow"}
    tolerant = {article.name for article in articles(EffectKind.ENROLL, against_mismatch=True)}
    assert tolerant == enroll - {"voice_mismatch"}
    reject = {article.name for article in articles(EffectKind.REJECT)}
    alone = {article.name for article in articles(EffectKind.REJECT, on_red_alone=True)}
    assert alone - reject == {f"red_alone_while_{fact}" for fact in ("green", "authenticated", "verified")}


IN_SHADOW = ("verified_in_shadow", "distrusted_in_shadow")
"""What only the law asks for."""


def test_law_has_a_meaning_and_a_name_of_its_own_for_every_article() -> None:
    """Trails refer to articles by name, people read what they mean: no kind of effect has two of one name."""
    for kind in EffectKind:
        names = [article.name for article in LAW if kind in article.forbids]
        assert len(set(names)) == len(names)
    assert all(
        article.meaning and article.forbids and set(dict(article.when)) <= {*FACTS, *IN_SHADOW} for article in LAW
    )


def test_meaning_of_an_article_is_that_for_the_kind_of_effect() -> None:
    """Without one, or of one that it does not forbid, the first counts."""
    against = {kind: next(a.meaning for a in LAW if a.name == "voice_rejected" and kind in a.forbids) for kind in BOTH}
    assert [meaning_of("voice_rejected", kind) for kind in BOTH] == list(against.values())
    assert meaning_of("voice_rejected") == meaning_of("voice_rejected", "assign") == against[EffectKind.ENROLL]
    assert meaning_of("no article") is None


@pytest.mark.parametrize(
    ("fact", "name"),
    [("green_policy", "while_green"), ("fully_authenticated", "while_authenticated"), ("verified", "while_verified")],
)
def test_law_holds_a_red_policy_alone_to_more(fact: str, name: str) -> None:
    """A reject that has another reason may contradict these facts; one on a red policy alone may not."""
    facts = Facts.from_dict({"allowed": True, "real_voice_id": True, "red": True, fact: True})
    assert forbidden(EffectKind.REJECT, facts) == ()
    assert forbidden(EffectKind.REJECT, facts, on_red_alone=True) == (f"red_alone_{name}",)
