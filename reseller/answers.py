"""The envelopes that records come in: the base response and what each endpoint adds to it."""

from datetime import datetime

from reseller.institutions import Institution, SsoAction
from reseller.phone_calls import PhoneCall, QueueEntry
from reseller.record import Listed, Record
from reseller.secret import Secret


class BaseAnswer(Record, frozen=True, kw_only=True):
    """What every answer carries. ``success`` is None only if the service left it out.

    The texts are secrets: an error message may repeat what was asked for.

    Spec: Base response.
    """

    vital = frozenset({"success"})

    success: bool | None = None
    error: Secret | None = None
    errors: Listed[Secret] = ()
    messages: Listed[Secret] = ()
    code: str | None = None


class TokenAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of the login.

    Spec: Token response.
    """

    token: Secret | None = None
    expires_on: datetime | None = None
    institution_keys: Listed[str] = ()


class UserTokenAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of the user-token exchange.

    Spec: User token response.
    """

    token: Secret | None = None


class QueueAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of the queue.

    Spec: Endpoints 3.
    """

    vital = BaseAnswer.vital | {"phone_calls"}

    phone_calls: Listed[QueueEntry] = ()


class AssignAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of assign.

    Spec: Endpoints 4.
    """

    voice_id: str | None = None


class DetailsAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of details, when the record is where it belongs.

    Spec: Endpoints 5.
    """

    vital = BaseAnswer.vital | {"phone_call"}

    phone_call: PhoneCall | None = None


class InstitutionAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of get-by-key.

    Spec: Endpoints 10.
    """

    institution: Institution | None = None


class LoginAsAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of login-as, which the Spec shows without a base response.

    Spec: Endpoints 12.
    """

    token: Secret | None = None
    actions: Listed[SsoAction] = ()
