"""The service's statuses and validation types that have a meaning for us. Any other text changes nothing."""

from enum import StrEnum


class Status(StrEnum):
    """The call activity statuses that we act on. Spec: States and transitions."""

    FULL_AUTHENTICATION = "FullAuthentication"
    FULL_AUTHENTICATION_UNENROLLED = "FullAuthenticationUnenrolled"
    ACCEPT_CALLER_VOICE = "AcceptCallerVoice"
    ANSWERED_QUESTIONS = "AnsweredQuestions"
    MFA_VALIDATED = "MFAValidated"
    REJECT_CALLER_VOICE = "RejectCallerVoice"
    REJECT_BY_RULE = "RejectCallerVoiceFromValidationRule"
    CALL_ENDED = "CallEnded"
    OPT_IN = "VoiceOptIn"
    OPT_OUT = "VoiceOptOut"
    MISMATCH = "VoiceMismatch"
    PENDING = "Voice Pending"


# Assumed (`activities`): the last activity may be missing, or another one. What was seen once is remembered (fold.py).

REJECTED = frozenset({Status.REJECT_CALLER_VOICE, Status.REJECT_BY_RULE})

NO_CHANGE = frozenset(
    {
        "CallStarted",
        "CheckRiskAndAuthentication",
        "GrabbedCall",
        "AgentViewed",
        "SentEmailMFA",
        "SentSmsMFA",
    }
)
"""Statuses of the Spec that change nothing for us. A status in neither list changes nothing either, but is reported.

Assumed (`statuses-known`): the Spec lists the names of the statuses, but describes the consequences of only a few."""

ESTABLISHES = {
    Status.ANSWERED_QUESTIONS: "KnowledgeBasedAuth",
    Status.MFA_VALIDATED: "OneTimePasswordAuth",
}
"""Statuses by which the service itself says that identity was established, with the validation type of each.

Assumed (`statuses-establish`): the Spec names both the statuses and the types, but not which belong together."""


STATUSES = tuple(sorted({*(status.value for status in Status), *NO_CHANGE}))
"""Every status that the Spec names. Spec: States and transitions."""

VALIDATION_TYPES = ("VoiceAuth", "OneTimePasswordAuth", "KnowledgeBasedAuth", "NoAuth", "Other")
"""Spec: Other shapes, Validation type."""

RESEARCH = ("NeedsReview", "InReview", "DeterminedFraud", "FalsePositive", "SystemArchived")
"""The states of a research case. Spec: Research case."""

FRAUD = "DeterminedFraud"
"""The state of a research case in which an investigator found fraud."""

ARCHIVED = "SystemArchived"
"""The state of one on which nobody works any more."""

OTHERWISE = ("OneTimePasswordAuth", "KnowledgeBasedAuth", "Other")
"""The types by which identity is established by other means than the voice. An enroll needs one (Spec: Rules 3)."""

PERSON_TYPES = ("Primary", "Joint", "Beneficiary", "AuthorizedSigner", "CoBorrower", "CoSigner")
"""Spec: Person match."""

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
"""In the order of ``datetime.weekday``."""
