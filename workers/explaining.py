"""Writes decisions into the trail with all that explains them: which facts, which rule, what the law forbade."""

from msgspec.structs import replace

from calls.assigning import Assignment
from calls.facts import facts_of
from calls.rules.verdict import Verdict, table
from calls.trail import Entry
from workers.claim import Claim


def note(claim: Claim, verdict: Verdict | Assignment) -> None:
    """Write a decision down."""
    if isinstance(verdict, Assignment):
        _note_assignment(claim, verdict)
        return
    book, reading = claim.tools.book, claim.call.reading
    facts = facts_of(claim.call, book.policies)
    claim.call = replace(claim.call, last_verdict=verdict.fingerprint, last_facts=facts.signature)
    claim.entries.append(
        Entry(
            at=claim.now,
            what="decided",
            kind=verdict.outcome,
            asked=verdict.asked,
            rule=verdict.rule,
            rules=book.digest,
            because=verdict.because,
            validation_type=verdict.validation_type,
            forbidden=verdict.forbidden,
            facts=facts.as_dict(),
            policies=reading.policies if reading else (),
            tried=table(facts, book, claim.call_id.institution_key),
            pause=claim.pause,
        )
    )


def _note_assignment(claim: Claim, assignment: Assignment) -> None:
    claim.call = replace(claim.call, last_assignment=assignment.fingerprint)
    claim.entries.append(
        Entry(
            at=claim.now,
            what="decided",
            kind="hold",
            asked="assign",
            rules=assignment.rules,
            because=assignment.because,
            operator=assignment.operator,
            forbidden=assignment.forbidden,
            candidates=len(claim.call.candidates),
            pause=claim.pause,
        )
    )


def note_facts(claim: Claim) -> None:
    """Write facts down that changed without changing the decision."""
    facts, reading = facts_of(claim.call, claim.tools.book.policies), claim.call.reading
    claim.call = replace(claim.call, last_facts=facts.signature)
    policies = reading.policies if reading else ()
    claim.entries.append(Entry(at=claim.now, what="facts", facts=facts.as_dict(), policies=policies))
