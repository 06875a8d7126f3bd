"""The law: limits on effects that no rule and no person can override. One table, and a pure function that applies it.

Each article names the facts under which it forbids an effect. Its name is the reason that appears in trails, rules
tests and messages. Articles with the same name forbid different kinds of effect, under different facts.
"""

from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from callkeeper.calls.claimed_item import LEASE
from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.facts import VERIFIED_AFTER_END, Facts, Value

_ASSIGN, _ENROLL, _REJECT = EffectKind.ASSIGN, EffectKind.ENROLL, EffectKind.REJECT


@dataclass(frozen=True, slots=True)
class Article:
    """One article: it forbids the kinds of effect in ``forbids`` while every fact in ``when`` holds.

    ``if_opt_in_required``: applies only if the rules file says ``[consent] require_opt_in = true``.
    ``if_on_red_alone``: applies only to a reject for which a rule has no other reason than a red policy.
    ``unless_against_mismatch``: does not apply to a rule that may enroll against a mismatch.
    ``unless_in_shadow``: does not apply to a rule in shadow.
    ``unless_person_stays``: does not apply to an assign of the person whom the record names already.
    ``asks``: while it applies, a person is asked at once, whatever the rules ask for (`question`).
    """

    name: str
    forbids: frozenset[EffectKind]
    when: tuple[tuple[str, Value], ...]
    meaning: str
    if_opt_in_required: bool = False
    if_on_red_alone: bool = False
    unless_against_mismatch: bool = False
    unless_in_shadow: bool = False
    unless_person_stays: bool = False
    asks: bool = False


def _article(name: str, forbids: set[EffectKind], meaning: str, /, **when: Value) -> Article:
    return Article(name, frozenset(forbids), tuple(when.items()), meaning)


def _replacing(name: str, meaning: str, /, **when: Value) -> Article:
    """Return an article about an assign that would replace the call's person."""
    return replace(_article(name, {_ASSIGN}, meaning, assigned=True, **when), unless_person_stays=True)


SAME_MEMBER_LIVE = "same_member_live"
"""The fact, and the article, of two callers at once who are the same member."""

MEMBER_CHANGED = "member_changed"
"""The fact, and the articles, of a call whose member was changed after the first check."""

_CHANGED = (
    "the call's member was changed after the first check, so what the voice showed until then counts for nobody. Find out "
    "who the caller is: only a person's word leads to an enroll or a reject"
)

_RED_ALONE = "a red policy alone does not reject a caller"

LAW: tuple[Article, ...] = (
    _article(
        "institution_not_allowed",
        {_ASSIGN, _ENROLL, _REJECT},
        "nothing is done for an institution that is not ours, not active, without voice authentication or in test mode",
        allowed=False,
    ),
    _article(
        "voice_id_not_confirmed",
        {_ENROLL, _REJECT},
        "an effect needs the voice id that the service itself uses for the call (reject-voice resolves no other)",
        real_voice_id=False,
    ),
    _article("call_ended", {_ASSIGN}, "nobody is assigned after the call has ended", ended=True),
    _article(
        "final_analysis_awaited",
        {_ENROLL},
        "after the end of a call an enroll waits for the voice provider's final analysis",
        ended=True,
        final_analysis=False,
    ),
    _replacing(
        # Assumed (`assign-replaces-person`): the service accepts an assign although a person is assigned, and replaces
        # that person.
        "somebody_assigned",
        "a person whom somebody else assigned is never replaced",
        assigned_by_us=False,
    ),
    _replacing(
        "authenticated_as_another",
        "the voice was authenticated as the assigned person, so the call is not assigned to another",
        green=True,
    ),
    _replacing(
        "enrolled_for_another",
        "after an enroll the call's person is not changed, because the voice was enrolled as theirs",
        enrolled=True,
    ),
    _replacing(
        "rejected_for_another",
        "after a reject the call's person is not changed, because the reject was about them",
        rejected=True,
    ),
    _article(
        "identity_not_established",
        {_ENROLL},
        "a voice is enrolled only after identity was established by other means",  # Spec: Rules per operation 3
        verified=False,
    ),
    _article(
        "verified_too_late",
        {_ENROLL},
        "identity was established after the call had ended: only a person's word counts then, for "
        f"{VERIFIED_AFTER_END.seconds // 60} minutes",
        verified=True,
        verified_in_time=False,
    ),
    _article(
        "voice_not_checked",
        {_ENROLL},
        "nobody is enrolled before the voice had its say, unless a person verified the caller",
        voice_checked=False,
        verified_by_desk=False,
    ),
    Article(
        "voice_mismatch",
        frozenset({_ENROLL}),
        (("voice_mismatch", True), ("verified_by_desk", False)),
        "nobody is enrolled against a voice that does not match, unless a person verified the caller, or the rules allow it "
        "in [enroll] against_mismatch",
        unless_against_mismatch=True,
    ),
    _article(
        "evidence_against",
        {_ENROLL},
        "something speaks against the caller that the word of the person who verified them does not name; if it still "
        "holds, say it again and name that",
        evidence_against=True,
    ),
    _article(
        "no_auth",
        {_ENROLL},
        "NoAuth means that identity was not established: state how it was, or do not enroll",
        validation_type="NoAuth",
    ),
    _article(
        "voice_auth",
        {_ENROLL},
        "VoiceAuth is no proof for an enroll: identity must be established by other means than the voice",
        validation_type="VoiceAuth",
    ),
    _article("nobody_assigned", {_ENROLL}, "a voice is enrolled for the assigned person only", assigned=False),
    _article(
        "verified_person_is_not_the_assigned",
        {_ENROLL},
        "the person who was verified and the one the call is assigned to must be the same, and the desk must not have asked "
        "to assign another",
        verified=True,
        verified_person_is_assigned=False,
    ),
    _article(
        "already_green",
        {_ENROLL},
        "a voice that is authenticated needs no enroll: it would count as a second verification",
        green=True,
    ),
    _article(
        "fully_authenticated",
        {_ENROLL},
        "a caller whom the service calls fully authenticated needs no enroll: it would count as a second verification",
        fully_authenticated=True,
    ),
    _article("red_policy", {_ENROLL}, "a red policy speaks against the caller", red=True),
    _article(
        "red_policy_seen",
        {_ENROLL},
        "a red policy was applied in this call: only a person's verification leads to an enroll",
        red=False,
        red_seen=True,
        verified_by_desk=False,
    ),
    _article(
        "unclassified_policy",
        {_ENROLL},
        "a policy without a colour might be a red one",
        unclassified=True,
    ),
    _article(
        "unclassified_policy_seen",
        {_ENROLL},
        "a policy without a colour was applied in this call, and might be a red one: only a person's verification leads to "
        "an enroll",
        unclassified=False,
        unclassified_seen=True,
        verified_by_desk=False,
    ),
    replace(_article(MEMBER_CHANGED, {_ENROLL}, _CHANGED, member_changed=True, verified_by_desk=False), asks=True),
    _article(MEMBER_CHANGED, {_REJECT}, _CHANGED, member_changed=True, distrusted=False),
    _article("voice_rejected", {_ENROLL}, "a rejected voice is not enrolled", rejected=True),
    _article(
        "voice_rejected",
        {_REJECT},
        "no second reject once one is recorded, unless the voice is enrolled all the same",
        rejected=True,
        rejected_by_rule=False,
        enrolled=False,
    ),
    _article(
        "rejected_by_rule",
        {_REJECT},
        "if a validation rule rejected the voice, only a person's distrust leads to a reject",
        rejected_by_rule=True,
        distrusted=False,
    ),
    _article(
        "failed_feedback",
        {_ENROLL},
        "the provider got FAILED feedback about the call: somebody may have rejected the voice, and a later status hides "
        "that. Only a person's verification leads to an enroll",
        failed_feedback=True,
        verified_by_desk=False,
    ),
    _article(
        "reject_in_doubt",
        {_ENROLL},
        "a reject was sent, and nobody knows yet whether it was carried out: a rejected voice is not enrolled",
        reject_in_doubt=True,
    ),
    _article(
        "enroll_unresolved",
        {_ENROLL},
        "an enroll was sent, and nobody knows whether it was carried out: look at the service's record. If it was not, say "
        "it again, despite `enroll_unresolved`",
        enroll_unresolved=True,
    ),
    replace(
        _article(
            SAME_MEMBER_LIVE,
            {_ENROLL},
            "the caller of another call at the same time is the same member, by a proof, a person's word or the voice: one "
            "of the two is not. Find out who is who; only a person's verification leads to an enroll",
            same_member_live=True,
            verified_by_desk=False,
        ),
        asks=True,
    ),
    _article("already_enrolled", {_ENROLL}, "one enroll for a call, whoever made it", enrolled=True),
    _article(
        "unenrolled", {_ENROLL}, "a reject of the member took the enroll back: it is not repeated", unenrolled=True
    ),
    _article(
        "opted_out",
        {_ENROLL},
        "the caller opted out in this call, and nobody who is established as the member has opted in since",
        opted_out=True,
    ),
    _article(
        "opted_out_before",
        {_ENROLL},
        "the member opted out in another call, and has not opted in since: a word about identity is none about consent",
        opted_out_before=True,
    ),
    Article(
        "opt_in_required",
        frozenset({_ENROLL}),
        (("opted_in", False),),
        "the rules demand an opt-in, and none was seen in this call",
        # Assumed (`enroll-needs-no-opt-in`): an enroll needs no opt-in unless the rules demand one.
        if_opt_in_required=True,
    ),
    _article(
        "distrusted",
        {_ENROLL},
        "a person said that this caller cannot be trusted: nobody is enrolled against that",
        distrusted=True,
    ),
    *(
        _article(name, {_REJECT}, f"{meaning}: only a person's distrust leads to a reject", distrusted=False, **when)
        for name, when, meaning in (
            ("reject_of_authenticated", {"green": True}, "the voice is authenticated"),
            (
                "reject_of_enrolled",
                {"enrolled": True},
                "the voice was enrolled in this call, and a reject takes that back",
            ),
            ("reject_of_verified", {"verified_by_desk": True}, "a person verified the caller"),
        )
    ),
    _article(
        "distrusted_as_another",
        {_REJECT},
        "when the caller was distrusted, the member who is assigned now was not on the call, and a reject takes back what "
        "that member has; if it still holds, say it again",
        distrusted_as_another=True,
    ),
    _article(
        "named_as_another",
        {_REJECT},
        "a person at the desk said that the caller is another member than the one who is assigned, and a reject takes back "
        "what this one has; if it is this one all the same, withdraw that",
        named_as_another=True,
    ),
    _article("determined_fraud", {_ENROLL}, "an investigator found fraud: the voice is not enrolled", fraud=True),
    _article(
        "fraud_elsewhere",
        {_ENROLL},
        "an investigator found fraud in another call that the record is tied to: the voice is not enrolled",
        fraud_elsewhere=True,
    ),
    *(
        Article(
            f"red_alone_{name}", frozenset({_REJECT}), ((fact, True),), f"{_RED_ALONE} {meaning}", if_on_red_alone=True
        )
        for name, fact, meaning in (
            ("while_green", "green_policy", "while a green policy is applied too"),
            ("while_authenticated", "fully_authenticated", "after FullAuthentication"),
            ("while_verified", "verified", "whose identity was established by other means"),
        )
    ),
    *(
        Article(
            "said_in_shadow",
            frozenset({kind}),
            ((fact, True),),
            "it was said while the rules only watched, so nothing follows from it; if it still holds, say it again",
            unless_in_shadow=True,
        )
        for kind, fact in ((_ENROLL, "verified_in_shadow"), (_REJECT, "distrusted_in_shadow"))
    ),
    _article("paused", {_ENROLL, _REJECT}, "a person has paused effects; they are decided again later", paused=True),
    _article(
        "redis_changed",
        {_ENROLL, _REJECT},
        f"for {LEASE.seconds:g} s after Redis was restarted or replaced nothing is sent: "
        "an effect that it lost may still be in flight",
        redis_changed=True,
    ),
    _article(
        "standing_unconfirmed",
        {_ENROLL, _REJECT},
        "nothing is sent while the service has not said for 15 minutes that the institution is active",
        standing_unconfirmed=True,
    ),
    _article("paused_entirely", {_ASSIGN}, "a person has paused all automatic work", paused_entirely=True),
)


BRIEF = frozenset({"voice_id_not_confirmed", "redis_changed", "final_analysis_awaited"})
"""Articles that forbid for a few seconds only, so that nobody has to be told."""


def meaning_of(name: str, kind: str | None = None) -> str | None:
    """Return the meaning of an article, of the one about this kind of effect if several have the name; None: no article."""
    named = [article for article in LAW if article.name == name]
    return next((one.meaning for one in (*(each for each in named if kind in each.forbids), *named)), None)


def sentence_of(name: str) -> str:
    """Return the meaning of an article as it is told to a person who is asked because of it."""
    meaning = meaning_of(name) or name
    return f"{meaning[0].upper()}{meaning[1:]}."


def forbidden(
    kind: EffectKind,
    facts: Facts,
    *,
    opt_in_required: bool = False,
    on_red_alone: bool = False,
    against_mismatch: bool = False,
    in_shadow: bool = False,
    person_stays: bool = False,
) -> tuple[str, ...]:
    """Return the names of all articles that forbid an effect now, in the law's order; empty if it is allowed.

    ``in_shadow``: the rule is in shadow. ``person_stays``: an assign is of the person whom the record names already.

    Spec: Rules per operation 3 and 4; States, rows enroll and reject-voice.
    """
    against = _OF_KIND[kind, opt_in_required, on_red_alone, against_mismatch, in_shadow]
    return tuple(
        [
            article.name
            for article in against
            if all(getattr(facts, name) == value for name, value in article.when)
            and not (person_stays and article.unless_person_stays)
        ]
    )


def question(facts: Facts) -> Article | None:
    """Return the article because of which a person is asked now; None if none is, or the caller was rejected already.

    A word about another member is no answer.
    """
    if facts.rejected or (facts.distrusted and not facts.distrusted_as_another):
        return None
    if facts.verified_by_desk and not facts.verified_person_is_assigned:
        facts = with_fields(facts, verified_by_desk=False)
    return next((one for one in _ASKING if all(getattr(facts, name) == value for name, value in one.when)), None)


_ASKING = tuple(article for article in LAW if article.asks)


def articles(kind: EffectKind, *, on_red_alone: bool = False, against_mismatch: bool = False) -> tuple[Article, ...]:
    """Return the articles that can forbid a kind of effect by facts that rules know, whatever they say of an opt-in."""
    return _OF_KIND[kind, False, on_red_alone, against_mismatch, True]


_OF_KIND = {
    (kind, required, alone, mismatch, shadow): tuple(
        article
        for article in LAW
        if kind in article.forbids
        and (required or not article.if_opt_in_required)
        and (alone or not article.if_on_red_alone)
        and not (mismatch and article.unless_against_mismatch)
        and not (shadow and article.unless_in_shadow)
    )
    for kind in EffectKind
    for required in (True, False)
    for alone in (True, False)
    for mismatch in (True, False)
    for shadow in (True, False)
}
