"""The Spec's tables, typed by hand from its text: what the client must have, and what a field may hold.

A row is ``wire name: family``; a trailing ``?`` says nullable. Families: ``text`` (string, guid), ``instant``, ``bool``,
``int``, ``number``, ``word`` (an enumeration), ``secret`` (sensitive, or of a structure that is not shown), a record's name,
and ``[...]`` for an array. "not shown" in the Spec has no row, nor has what the client must not read of a
member: ``last4Ssn``, ``fullSsn``, ``driverLicense``, ``dateOfBirth``, ``supportPassword``;
nor has a shape that no field holds.
"""

BASE = {"success": "bool", "error": "secret?", "errors": "[secret]?", "messages": "[secret]?", "code": "text?"}


def _same(names: str, family: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), family)


RECORDS: dict[str, dict[str, str]] = {
    "BaseAnswer": BASE,
    "TokenAnswer": BASE | {"token": "secret", "expiresOn": "instant", "institutionKeys": "[text]"},
    "UserTokenAnswer": BASE | {"token": "secret?"},
    "QueueAnswer": BASE | {"phoneCalls": "[QueueEntry]"},
    "AssignAnswer": BASE | {"voiceId": "text"},
    "DetailsAnswer": BASE | {"phoneCall": "PhoneCall?"},
    "InstitutionAnswer": BASE | {"institution": "Institution?"},
    "LoginAsAnswer": BASE | {"token": "secret", "actions": "[SsoAction]"},
    "QueueEntry": {
        "phoneNumber": "text",
        "voiceId": "text",
        "personId": "text?",
        "coreUsername": "text?",
        "startDateTime": "instant",
        "persons": "[PersonMatch]?",
    },
    "PersonMatch": {
        "firstName": "text?",
        "lastName": "text",
        "personId": "text",
        "name": "text",
        "valueForCore": "text",
        "personType": "word?",
    },
    "PhoneCall": {
        "phoneCallId": "int",
        "phoneNumber": "text?",
        "voiceId": "text?",
        "personId": "text?",
        **_same(
            "isVerified isEnrolled isAccountEnrolled isVoiceEnrolled isBehaviorEnrolled isDeviceEnrolled"
            " successfulVoiceEnrollment isVoiceVerified isVoiceMismatch isHighRiskDevice",
            "bool",
        ),
        "verifiedDateTimeUtc": "instant",
        "notes": "text?",
        "coreUsername": "text?",
        "createdDateUtc": "instant",
        "updatedDateUtc": "instant",
        "status": "word?",
        "metaData": "MetaData?",
        "voiceAuthenticationError": "text?",
        "callEnded": "bool",
        "callDuration": "text?",
        "valueForCore": "text?",
        "validationRuleId": "text?",
        "validationRuleName": "text?",
        "verificationQuestions": "[text]?",
        "hasVoiceMatchValidationRule": "bool",
        "firstName": "text?",
        "lastName": "text?",
        "researchCase": "ResearchCase?",
        "vendorEvents": "[VendorEvent]?",
    },
    "MetaData": {"vendorPolicies": "[text]"},
    "ResearchCase": {
        "id": "text",
        "voiceId": "text",
        "phoneNumber": "text",
        **_same("firstName lastName personId userNameAssigned valueForCore comment", "text?"),
        "callStartDateUtc": "instant",
        "researchStatus": "word",
        "otherCalls": "[PhoneCall]",
    },
    "VendorEvent": {
        "currentTime": "instant",
        "customerId": "text",
        "eventId": "text",
        "eventType": "text?",
        "version": "int",
        "call": "VendorCall?",
        "createdDateUtc": "instant?",
        "vendorEventDbId": "text?",
    },
    "VendorCall": {
        **_same(
            "account accountRiskStatus assignedAnalyst authenticationFeedback authenticationScore behaviorRisk"
            " callerIdBlacklisted callerIdStatus callerIdWhitelisted carrier caseNotes casePolicyName caseRefId"
            " caseStatus correlationAltId customStatus destinationPhoneNumber deviceRisk deviceScore deviceType"
            " enrollmentPolicy eventId eventType fraudStatus fraudType lineOfBusiness location openedBy phoneNumber"
            " vendorCallId riskReasons riskResult spoofingRiskReasons spoofingRiskScore version voiceRisk",
            "text?",
        ),
        **_same(
            "accountRiskLastUpdated agentStartTime callEndTime callStartTime caseClosedAt caseCreatedAt caseUpdatedAt"
            " ivrStartTime",
            "instant?",
        ),
        "authenticationPolicy": "text",
        "riskScore": "text",
        "authenticationResult": "bool?",
        "callerIdValidated": "bool?",
        "duration": "number",
        "voiceScore": "number?",
    },
    "Institution": {
        "id": "int",
        "name": "text?",
        "hostName": "text?",
        "allowedPhones": "[text]?",
        "allowedEmails": "[text]?",
        "isTestMode": "bool",
        "mailProviderDomain": "text?",
        "fromEmail": "text?",
        "key": "text?",
        "hasVoiceAuth": "bool",
        "core": "word",
        "coreConfig": "CoreConfig?",
        "vpnConfig": "VpnConfig?",
        "allowedOrigins": "[text]?",
        "contacts": "[secret]",
        "voiceConfig": "secret?",
        "billingConfig": "secret?",
        "classification": "word",
        "status": "word",
        "usesIpWhitelisting": "bool",
    },
    "InstitutionSummary": {
        "key": "text",
        "name": "text?",
        "status": "word",
        "hasVoiceAuth": "bool",
        "isTestMode": "bool",
    },
    "CoreConfig": {
        "createdDateUtc": "instant",
        "updatedDateUtc": "instant",
        **_same("url coreTypeBSym coreTypeBDeviceName coreTypeADeviceName coreTypeAUiUrl", "text?"),
        **_same("edgeAccessKey coreTypeBAdminPassword coreTypeAUsername coreTypeAPassword", "secret?"),
        **_same(
            "coreConfigId institutionId coreTypeBDeviceNumber coreTypeBClientNumber coreTypeBSysUserNum"
            " coreTypeBValidationTrackingRecord coreTypeAInteractionTypeSerial coreTypeAInteractionVoice"
            " coreTypeAInteractionNonVoice coreTypeAInteractionChannelSerial coreTypeAInteractionNoAuthSerial"
            " coreTypeAVoiceOptOutNoteTypeSerial",
            "int?",
        ),
    },
    "VpnConfig": {
        **_same("gatewayIp deviceAndModel firmwareVersion tunnelInterface sourceIp destinationIp", "text"),
        "authenticationValue": "secret",
        "createdDateUtc": "instant",
        "updatedDateUtc": "instant",
        "confirmStatus": "word",
        "institutionStatus": "word",
        "ticket": "Ticket?",
    },
    "Ticket": {
        "ticketId": "text",
        "institutionId": "int",
        "subject": "text",
        "createdByUserId": "int",
        "ticketMessages": "[secret]",
        "status": "word",
    },
    "SsoAction": {
        "ssoUrl": "secret",
        "actionText": "text?",
        "isHidden": "bool",
        "ssoUrlIE": "secret",
        "ssoUrlNew": "secret",
    },
}

ENUMERATIONS: dict[str, str] = {
    "PersonType": "Primary, Joint, Beneficiary, AuthorizedSigner, CoBorrower, CoSigner",
    "ResearchStatus": "NeedsReview, InReview, DeterminedFraud, FalsePositive, SystemArchived",
    "CoreType": "CoreTypeA, CoreTypeB, None",
    "InstitutionStatus": "Active, Disabled, Review",
    "VpnStatus": "Pending, Configured, ConnectionSuccessful",
    "ValidationType": "VoiceAuth, OneTimePasswordAuth, KnowledgeBasedAuth, NoAuth, Other",
    "CallStatus": (
        "CheckRiskAndAuthentication, FullAuthentication, FullAuthenticationUnenrolled, AcceptCallerVoice,"
        " AnsweredQuestions, MFAValidated, RejectCallerVoice, CallEnded, CallStarted, SentEmailMFA, SentSmsMFA,"
        " VoiceOptIn, VoiceOptOut, RejectCallerVoiceFromValidationRule, VoiceMismatch, GrabbedCall, AgentViewed,"
        " Voice Pending"
    ),
}

ENDPOINTS: list[tuple[str, str, str]] = [
    ("POST", "/external/token/request", "Access token"),
    ("POST", "/external/token/request/user", "Service account"),
    ("GET", "/external/calls/queue", "Service account"),
    ("POST", "/external/calls/assign", "Service account"),
    ("GET", "/external/calls/{}/details", "Service account"),
    ("POST", "/external/calls/{}/enroll", "Service account"),
    ("POST", "/external/calls/{}/reject-voice", "Service account"),
    ("GET", "/external/institutions", "Reseller"),
    ("POST", "/external/institutions", "Reseller"),
    ("GET", "/external/institutions/{}", "Reseller"),
    ("PUT", "/external/institutions/{}", "Reseller"),
    ("POST", "/external/institutions/{}/login", "Reseller"),
]
