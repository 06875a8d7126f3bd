"""What the service's statuses and validation types mean to us. Any other text changes nothing."""

from enum import StrEnum


class Status(StrEnum):
    """The call activity statuses we act on. Any other text changes nothing. Spec: States and transitions."""

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


REJECTED = frozenset({Status.REJECT_CALLER_VOICE, Status.REJECT_BY_RULE})

NO_CHANGE = frozenset(
    {
        "CallStarted",
        "CheckRiskAndAuthentication",
        "GrabbedCall",
        "AgentViewed",
        "SentEmailMFA",
        "SentSmsMFA",
        "Voice Pending",
    }
)
"""Statuses of the Spec that change nothing for us, nor does a status in neither list, which is reported.

Assumed: the Spec lists what the statuses are called, and says of a few only what follows from them."""

ESTABLISHES = {
    Status.ANSWERED_QUESTIONS: "KnowledgeBasedAuth",
    Status.MFA_VALIDATED: "OneTimePasswordAuth",
}
"""Statuses by which the service itself says that identity was established, and the validation type each stands for.

Assumed: the Spec names both the statuses and the types, not that they belong together."""


STATUSES = tuple(sorted({*(status.value for status in Status), *NO_CHANGE}))
"""Every status that the Spec names. Spec: States and transitions."""

VALIDATION_TYPES = ("VoiceAuth", "OneTimePasswordAuth", "KnowledgeBasedAuth", "NoAuth", "Other")
"""Spec: Other shapes, Validation type."""

OTHERWISE = ("OneTimePasswordAuth", "KnowledgeBasedAuth", "Other")
"""Those of them by which identity is established otherwise than by the voice: no enroll without one (Spec: Rules 3)."""
