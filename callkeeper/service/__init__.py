"""A Python client for the service's reseller interface. It knows nothing of Redis or of our call records.

`Reseller` is imported from `callkeeper.service.client`: most processes need the records and errors, and few the HTTP client.
"""

from callkeeper.service.answer_records import Institution, InstitutionSummary
from callkeeper.service.config import LoginPolicy, ServiceConfig
from callkeeper.service.enumerations import CallStatus, CoreType, ResearchStatus, ValidationType
from callkeeper.service.errors import (
    AccessRefused,
    AnswerUnreadable,
    CallNotFound,
    CertificateRefused,
    ForeignAnswer,
    InstitutionNotFound,
    LoginRefused,
    NeedsPerson,
    NotSent,
    OutcomeUnknown,
    ResellerError,
    ServiceBusy,
    ServiceRefused,
    ServiceUnavailable,
    TokenFault,
    TokenLapsed,
    TurnedAway,
    Unsendable,
)
from callkeeper.service.memory import MemoryTokenStore
from callkeeper.service.network_failure import CertificateFault
from callkeeper.service.phone_calls import PersonMatch, PhoneCall, QueueEntry
from callkeeper.service.secret import Secret
from callkeeper.service.tokens import (
    Login,
    LoginGranted,
    LoginPending,
    LoginShut,
    LoginTurn,
    Refusal,
    Shut,
    SsoToken,
    TokenStore,
)
