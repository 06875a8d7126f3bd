"""Whom to assign to a call, within the law. Pure functions.

An assign needs a person's statement, or a call with one candidate that nobody has claimed. The candidate may stand on
the record already: only an assign correlates the account.
"""

from dataclasses import dataclass

from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.facts import Facts
from callkeeper.calls.law import forbidden
from callkeeper.calls.member_evidence import is_rejected
from callkeeper.calls.record import Call, Candidate
from callkeeper.calls.rules.book import RuleBook


@dataclass(frozen=True, slots=True)
class Assignment:
    """Whom to assign; nobody if ``person_id`` is None or the law forbids it. ``rules`` is the digest in force."""

    person_id: str | None
    because: str
    operator: str | None = None
    forbidden: tuple[str, ...] = ()
    rules: str = ""

    @property
    def allowed_person(self) -> str | None:
        """Return whom to assign now."""
        return None if self.forbidden else self.person_id

    @property
    def fingerprint(self) -> str:
        """Return a text that changes when this does, so that a trail holds each decision once."""
        return f"{self.person_id}/{self.because}/{','.join(self.forbidden)}/{self.rules}"


def judge_assignment(call: Call, book: RuleBook, facts: Facts) -> Assignment:
    """Return whom to assign: whom the desk named, or the only candidate of a call that nobody has claimed."""
    wish, obstacle = call.statements.assign_wish, assign_obstacle(call, book)
    if wish is not None:
        person_id, because, operator = wish.person_id, "a person at the desk said who the caller is", wish.operator
    elif obstacle is None:
        because = "the only candidate, and nobody has claimed the call"
        person_id, operator = call.seen.candidates[0].person_id, None
    else:
        person_id, because, operator = None, obstacle, None
    is_same = person_id is not None and person_id == call.seen.person_id
    reasons = forbidden(EffectKind.ASSIGN, facts, person_stays=is_same)
    return Assignment(person_id, because, operator, reasons, book.digest)


def assign_obstacle(call: Call, book: RuleBook) -> str | None:
    """Return why nobody is assigned without a request; None if the only candidate may be."""
    # Assumed (`person-without-username`): the service has filled in the only match if the call has a person and nobody
    # has claimed it.
    if call.seen.person_id is not None and [one.person_id for one in call.seen.candidates] != [call.seen.person_id]:
        return "the call has a person"
    if is_rejected(call):
        return "the voice was rejected"
    if call.statements.distrusted is not None:
        return "a person distrusts the caller"
    if not book.assign.is_automatic_at(call.institution_key):
        return "[assign] institutions leaves it out" if book.assign.automatic else "[assign] automatic is false"
    if call.seen.core_username:
        return "an operator has claimed the call"
    if len(call.seen.candidates) != 1:
        return f"{len(call.seen.candidates) or 'no'} candidates, exactly one is needed"
    if call.seen.had_several_candidates:
        return "one candidate, but there were several before: a person chooses"
    identity = call.statements.identity
    if identity is not None and identity.by_desk and identity.person_id != call.seen.candidates[0].person_id:
        return "a person verified the caller as somebody else"
    return _unfit(call.seen.candidates[0], book)


def _unfit(candidate: Candidate, book: RuleBook) -> str | None:
    if not candidate.person_id:
        return "the only candidate has no person id"
    allowed = book.assign.person_types
    if allowed is not None and candidate.person_type not in allowed:
        return f"the only candidate is of person type {candidate.person_type}, not among [assign] person_types"
    return None
