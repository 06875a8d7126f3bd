"""What the service's statuses and validation types mean for us. Any other text changes nothing."""

from callkeeper.service.enumerations import CallStatus, PersonType, ResearchStatus, ValidationType

STATUSES = tuple(sorted(map(str, CallStatus)))
"""Every status that the Spec names. One that it does not name changes nothing, but is reported.

Assumed (`statuses-known`): the Spec lists the names of the statuses, but describes the consequences of only a few.
Assumed (`activities`): the last activity may be missing, or another one. What was seen once is remembered
(`callkeeper.calls.reading_folding`)."""

REJECTED = frozenset({CallStatus.REJECT_CALLER_VOICE, CallStatus.REJECT_BY_RULE})

ESTABLISHES = {
    CallStatus.ANSWERED_QUESTIONS: "KnowledgeBasedAuth",
    CallStatus.MFA_VALIDATED: "OneTimePasswordAuth",
}
"""Statuses by which the service itself says that identity was established, with the validation type of each.

Assumed (`statuses-establish`): the Spec names both the statuses and the types, but not which belong together."""

VALIDATION_TYPES = tuple(map(str, ValidationType))

OTHERWISE = ("OneTimePasswordAuth", "KnowledgeBasedAuth", "Other")
"""The types by which identity is established by other means than the voice. An enroll needs one (Spec: Rules 3)."""

RESEARCH = tuple(map(str, ResearchStatus))

FRAUD = "DeterminedFraud"
"""The state of a research case in which an investigator found fraud."""

REFUTED = "FalsePositive"
"""The state of one in which an investigator found none. One that is archived, or opened again, was not refuted."""

UNDER_REVIEW = frozenset({ResearchStatus.NEEDS_REVIEW, ResearchStatus.IN_REVIEW})
"""The states of one that is open."""

PERSON_TYPES = tuple(map(str, PersonType))

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
"""In the order of ``datetime.weekday``."""
