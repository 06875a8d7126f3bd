"""The Spec's enumerations.

Fields that carry such a word are plain ``str``, because a word that the Spec does not name must not break a read. A
`StrEnum` member equals its text, so ``call.status == CallStatus.CALL_ENDED`` works for parsed values.
"""

from enum import StrEnum


class CallStatus(StrEnum):
    """Call activity status. Spec: States and transitions (the list, and the text ``Voice Pending`` beside it)."""

    CHECK_RISK_AND_AUTHENTICATION = "CheckRiskAndAuthentication"
    FULL_AUTHENTICATION = "FullAuthentication"
    FULL_AUTHENTICATION_UNENROLLED = "FullAuthenticationUnenrolled"
    ACCEPT_CALLER_VOICE = "AcceptCallerVoice"
    ANSWERED_QUESTIONS = "AnsweredQuestions"
    MFA_VALIDATED = "MFAValidated"
    REJECT_CALLER_VOICE = "RejectCallerVoice"
    CALL_ENDED = "CallEnded"
    CALL_STARTED = "CallStarted"
    SENT_EMAIL_MFA = "SentEmailMFA"
    SENT_SMS_MFA = "SentSmsMFA"
    VOICE_OPT_IN = "VoiceOptIn"
    VOICE_OPT_OUT = "VoiceOptOut"
    REJECT_BY_RULE = "RejectCallerVoiceFromValidationRule"
    VOICE_MISMATCH = "VoiceMismatch"
    GRABBED_CALL = "GrabbedCall"
    AGENT_VIEWED = "AgentViewed"
    VOICE_PENDING = "Voice Pending"


class ValidationType(StrEnum):
    """How the caller's identity was established, as sent with enroll. Spec: Other shapes."""

    VOICE_AUTH = "VoiceAuth"
    ONE_TIME_PASSWORD_AUTH = "OneTimePasswordAuth"  # noqa: S105  (a word of the Spec)
    KNOWLEDGE_BASED_AUTH = "KnowledgeBasedAuth"
    NO_AUTH = "NoAuth"
    OTHER = "Other"


class PersonType(StrEnum):
    """A member's role in an account. Spec: Person match."""

    PRIMARY = "Primary"
    JOINT = "Joint"
    BENEFICIARY = "Beneficiary"
    AUTHORIZED_SIGNER = "AuthorizedSigner"
    CO_BORROWER = "CoBorrower"
    CO_SIGNER = "CoSigner"


class ResearchStatus(StrEnum):
    """State of a research case. Spec: Research case."""

    NEEDS_REVIEW = "NeedsReview"
    IN_REVIEW = "InReview"
    DETERMINED_FRAUD = "DeterminedFraud"
    FALSE_POSITIVE = "FalsePositive"
    SYSTEM_ARCHIVED = "SystemArchived"


class CoreType(StrEnum):
    """Kind of an institution's core system. Spec: Institution."""

    CORE_TYPE_A = "CoreTypeA"
    CORE_TYPE_B = "CoreTypeB"
    NONE = "None"


class InstitutionStatus(StrEnum):
    """State of an institution. Spec: Institution."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    REVIEW = "Review"


class VpnStatus(StrEnum):
    """State of a VPN, as each side sees it. Spec: VPN config."""

    PENDING = "Pending"
    CONFIGURED = "Configured"
    CONNECTION_SUCCESSFUL = "ConnectionSuccessful"
