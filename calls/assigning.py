"""Who may be assigned to a call, by whose word, and why not. Pure, like ``verdict``, which judges enrolls and rejects."""

from dataclasses import dataclass

from calls.facts import Facts
from calls.law import forbidden
from calls.record import Call, Candidate, EffectKind
from calls.rules.book import RuleBook


@dataclass(frozen=True, slots=True)
class Assignment:
    """Whom to assign; nobody where ``person_id`` is None or the law forbids it. ``rules`` is the digest in force."""

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
    """Return whom to assign: the desk's word, or the only candidate of a call that nobody has claimed."""
    reasons = forbidden(EffectKind.ASSIGN, facts)
    wish = call.assign_wish
    if wish is not None:
        because = "a person at the desk said who the caller is"
        return Assignment(wish.person_id, because, wish.operator, reasons, book.digest)
    obstacle = _obstacle(call, book)
    if obstacle is not None:
        return Assignment(None, obstacle, None, reasons, book.digest)
    because = "the only candidate, and nobody has claimed the call"
    return Assignment(call.candidates[0].person_id, because, None, reasons, book.digest)


def _obstacle(call: Call, book: RuleBook) -> str | None:
    """Say why nobody is assigned without being asked for; None where the only candidate may be."""
    if call.person_id is not None:
        return "the call has a person"
    if not book.assign.automatic:
        return "[assign] automatic is false"
    if call.core_username:
        return "an operator has claimed the call"
    if len(call.candidates) != 1:
        return f"{len(call.candidates) or 'no'} candidates, exactly one is needed"
    return _unfit(call.candidates[0], book)


def _unfit(candidate: Candidate, book: RuleBook) -> str | None:
    if not candidate.person_id:
        return "the only candidate has no person id"
    allowed = book.assign.person_types
    if allowed is not None and candidate.person_type not in allowed:
        return f"the only candidate is of person type {candidate.person_type}, not among [assign] person_types"
    return None
