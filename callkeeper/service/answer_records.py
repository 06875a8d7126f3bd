"""The answers of the endpoints: the base response, what each endpoint adds, and the records of institutions.

Five fields of each institution are used. In its full record the secrets are masked. Assumed (`institution-shape`):
structures that the Spec does not show (contacts, voice and billing configuration, ticket messages) can be anything. They
are kept as unparsed JSON text and masked as well.
"""

from datetime import datetime

from msgspec import field

from callkeeper.service.answer_parsing import Listed, Record
from callkeeper.service.phone_calls import PhoneCall, QueueEntry
from callkeeper.service.secret import Secret


class InstitutionSummary(Record, frozen=True, kw_only=True):
    """What callkeeper needs of an institution's record.

    ``status`` is an `InstitutionStatus` or a word newer than the Spec.

    Spec: Institution.
    """

    vital = frozenset({"key", "status", "has_voice_auth", "is_test_mode"})

    key: str
    name: str | None = None
    status: str = ""
    has_voice_auth: bool = False
    is_test_mode: bool = False


class CoreConfig(Record, frozen=True, kw_only=True):
    """How the service reaches the institution's core system. Its secrets are sent as stored. Spec: Core config."""

    created_at: datetime | None = field(name="createdDateUtc", default=None)
    updated_at: datetime | None = field(name="updatedDateUtc", default=None)
    core_config_id: int | None = None
    institution_id: int | None = None
    url: str | None = None
    edge_access_key: Secret | None = None
    core_type_b_sym: str | None = None
    core_type_b_device_name: str | None = None
    core_type_b_device_number: int | None = None
    core_type_b_client_number: int | None = None
    core_type_b_sys_user_num: int | None = None
    core_type_b_admin_password: Secret | None = None
    core_type_b_validation_tracking_record: int | None = None
    core_type_a_username: Secret | None = None
    core_type_a_password: Secret | None = None
    core_type_a_device_name: str | None = None
    core_type_a_interaction_type_serial: int | None = None
    core_type_a_interaction_voice: int | None = None
    core_type_a_interaction_non_voice: int | None = None
    core_type_a_interaction_channel_serial: int | None = None
    core_type_a_interaction_no_auth_serial: int | None = None
    core_type_a_voice_opt_out_note_type_serial: int | None = None
    core_type_a_ui_url: str | None = None


class Ticket(Record, frozen=True, kw_only=True):
    """A support ticket about a VPN. The values of ``status`` are not shown. Spec: VPN config; Other shapes."""

    ticket_id: str = ""
    institution_id: int = 0
    subject: str = ""
    created_by_user_id: int = 0
    ticket_messages: Listed[Secret] = ()
    status: str = ""


class VpnConfig(Record, frozen=True, kw_only=True):
    """The tunnel between the service and the institution. Both statuses are a `VpnStatus` or newer.

    Assumed (`vpn-status`): it says nothing about the institution's calls.

    Spec: VPN config.
    """

    gateway_ip: str = ""
    device_and_model: str = ""
    authentication_value: Secret | None = None
    firmware_version: str = ""
    tunnel_interface: str = ""
    source_ip: str = ""
    destination_ip: str = ""
    created_at: datetime | None = field(name="createdDateUtc", default=None)
    updated_at: datetime | None = field(name="updatedDateUtc", default=None)
    confirm_status: str = ""
    institution_status: str = ""
    ticket: Ticket | None = None


class Institution(Record, frozen=True, kw_only=True):
    """An institution's full record. ``core`` is a `CoreType`, ``status`` an `InstitutionStatus`, or newer.

    Spec: Institution. The values of ``classification`` are not shown.
    """

    id: int = 0
    name: str | None = None
    host_name: str | None = None
    allowed_phones: Listed[str] = ()
    allowed_emails: Listed[str] = ()
    is_test_mode: bool = False
    mail_provider_domain: str | None = None
    from_email: str | None = None
    key: str | None = None
    has_voice_auth: bool = False
    core: str = ""
    core_config: CoreConfig | None = None
    vpn_config: VpnConfig | None = None
    allowed_origins: Listed[str] = ()
    contacts: Listed[Secret] = ()
    voice_config: Secret | None = None
    billing_config: Secret | None = None
    classification: str = ""
    status: str = ""
    uses_ip_whitelisting: bool = False


class SsoAction(Record, frozen=True, kw_only=True):
    """A place that a login leads to. The addresses may carry a token, so they are secrets. Spec: Other shapes."""

    sso_url: Secret | None = None
    action_text: str | None = None
    is_hidden: bool = False
    sso_url_ie: Secret | None = field(name="ssoUrlIE", default=None)
    sso_url_new: Secret | None = None


class BaseAnswer(Record, frozen=True, kw_only=True):
    """The base of every answer. ``success`` is None only if the service left it out.

    The texts are secrets, because an error message may repeat what was asked for.

    Spec: Base response.
    """

    vital = frozenset({"success"})

    success: bool | None = None
    error: Secret | None = None
    errors: Listed[Secret] = ()
    messages: Listed[Secret] = ()
    code: str | None = None


class TokenAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of the login. Spec: Token response."""

    token: Secret | None = None
    expires_on: datetime | None = None
    institution_keys: Listed[str] = ()


class UserTokenAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of the user-token exchange. Spec: User token response."""

    token: Secret | None = None


class QueueAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of the queue. Spec: Endpoints 3."""

    vital = BaseAnswer.vital | {"phone_calls"}

    phone_calls: Listed[QueueEntry] = ()


class AssignAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of assign. Spec: Endpoints 4."""

    voice_id: str | None = None


class DetailsAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of details, with the record in ``phoneCall``. Spec: Endpoints 5."""

    vital = BaseAnswer.vital | {"phone_call"}

    phone_call: PhoneCall | None = None


class InstitutionAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of get-by-key. Spec: Endpoints 10."""

    institution: Institution | None = None


class LoginAsAnswer(BaseAnswer, frozen=True, kw_only=True):
    """Answer of login-as, which the Spec shows without a base response. Spec: Endpoints 12."""

    token: Secret | None = None
    actions: Listed[SsoAction] = ()
