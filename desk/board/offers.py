"""What an administrator can say about a call, offered where it can come to something. Pure."""

from dataclasses import dataclass
from datetime import datetime

from calls.decide import wish_obstacle
from calls.facts import facts_of
from calls.record import Call, EffectKind, EffectState
from calls.rules.book import RuleBook
from calls.statements import may_reopen
from calls.unenrolling import needs_person
from calls.watch import reserve_left


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody whom a form can name."""

    person_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Offers:
    """Which forms a call's page shows. ``unresolved`` names the effect that a person has to look up."""

    people: tuple[Person, ...]
    unresolved: str | None
    taken_back: bool
    assign: bool
    verified: bool
    distrusted: bool
    check: bool
    checks_left: int

    @property
    def any(self) -> bool:
        """Tell whether there is a form at all."""
        return bool(self.unresolved) or self.taken_back or self.assign or self.verified or self.distrusted or self.check


def offers_of(call: Call, book: RuleBook, now: datetime) -> Offers:
    """Return what can be said about a call."""
    facts = facts_of(call, book.policies)
    is_open = not call.is_settled and not facts.ended
    may_not_enroll = facts.enrolled or facts.unenrolled or facts.rejected or facts.fully_authenticated or facts.green
    unresolved = [
        kind for kind in (EffectKind.ENROLL, EffectKind.REJECT) if call.effect(kind).state is EffectState.UNRESOLVED
    ]
    return Offers(
        people=_people(call),
        unresolved=unresolved[0] if unresolved else None,
        taken_back=needs_person(call),
        assign=is_open and not facts.enrolled and not facts.rejected and (not facts.assigned or facts.assigned_by_us),
        verified=is_open and not may_not_enroll,
        distrusted=may_reopen(call, now) if call.is_settled else not facts.rejected or facts.rejected_by_rule,
        check=is_open and wish_obstacle(call, book, facts) is None,
        checks_left=reserve_left(call, book.schedule),
    )


def _people(call: Call) -> tuple[Person, ...]:
    found = {c.person_id: Person(c.person_id, c.name or c.person_id) for c in call.candidates if c.person_id}
    if call.person_id and call.person_id not in found:
        found[call.person_id] = Person(call.person_id, f"{call.person_id} (assigned)")
    return tuple(found.values())
