"""Institutions in the form of the interface, with configurations that contain secrets, and invented defaults.

Spec: Institution; Core config; VPN config; Other shapes.
"""

import datetime as dt
from enum import StrEnum

import msgspec

from callkeeper_sandbox.service.records import Wire


class Core(StrEnum):
    """The core banking system of an institution.

    Spec: Institution, field core.
    """

    TYPE_A = "CoreTypeA"
    TYPE_B = "CoreTypeB"
    NONE = "None"


class InstitutionStatus(StrEnum):
    """Whether an institution is served.

    Spec: Other enumerations with states.
    """

    ACTIVE = "Active"
    DISABLED = "Disabled"
    REVIEW = "Review"


class VpnStatus(StrEnum):
    """The state of a tunnel.

    Spec: VPN config.
    """

    PENDING = "Pending"
    CONFIGURED = "Configured"
    SUCCESSFUL = "ConnectionSuccessful"


class CoreConfig(Wire, frozen=True):
    """The connection to the core system. Secrets are returned as stored.

    Spec: Core config.
    """

    created_date_utc: dt.datetime
    updated_date_utc: dt.datetime
    core_config_id: int | None = None
    institution_id: int | None = None
    url: str | None = None
    edge_access_key: str | None = None
    core_type_b_sym: str | None = None
    core_type_b_device_name: str | None = None
    core_type_b_device_number: int | None = None
    core_type_b_client_number: int | None = None
    core_type_b_sys_user_num: int | None = None
    core_type_b_admin_password: str | None = None
    core_type_b_validation_tracking_record: int | None = None
    core_type_a_username: str | None = None
    core_type_a_password: str | None = None
    core_type_a_device_name: str | None = None
    core_type_a_interaction_type_serial: int | None = None
    core_type_a_interaction_voice: int | None = None
    core_type_a_interaction_non_voice: int | None = None
    core_type_a_interaction_channel_serial: int | None = None
    core_type_a_interaction_no_auth_serial: int | None = None
    core_type_a_voice_opt_out_note_type_serial: int | None = None
    core_type_a_ui_url: str | None = None


class Ticket(Wire, frozen=True):
    """A support ticket on a tunnel; messages and status values are not shown in the Spec (Assumed: text)."""

    ticket_id: str
    institution_id: int
    subject: str
    created_by_user_id: int
    ticket_messages: list[str]
    status: str


class VpnConfig(Wire, frozen=True):
    """The tunnel to the institution.

    Spec: VPN config.
    """

    gateway_ip: str
    device_and_model: str
    authentication_value: str
    firmware_version: str
    tunnel_interface: str
    source_ip: str
    destination_ip: str
    created_date_utc: dt.datetime
    updated_date_utc: dt.datetime
    confirm_status: VpnStatus
    institution_status: VpnStatus
    ticket: Ticket | None


class Institution(Wire, frozen=True, kw_only=True):
    """A child institution of the reseller.

    Spec: Institution. Assumed: contacts, voiceConfig, billingConfig and classification are not shown, so they are an
    empty list, null, null and the text `Standard`.
    """

    id: int
    name: str | None
    host_name: str | None = None
    allowed_phones: list[str] | None = None
    allowed_emails: list[str] | None = None
    is_test_mode: bool = False
    mail_provider_domain: str | None = None
    from_email: str | None = None
    key: str | None
    has_voice_auth: bool = True
    core: Core = Core.NONE
    core_config: CoreConfig | None = None
    vpn_config: VpnConfig | None = None
    allowed_origins: list[str] | None = None
    contacts: list[dict[str, str]] = msgspec.field(default_factory=list)
    voice_config: dict[str, str] | None = None
    billing_config: dict[str, str] | None = None
    classification: str = "Standard"
    status: InstitutionStatus = InstitutionStatus.ACTIVE
    uses_ip_whitelisting: bool = False


class SsoAction(Wire, frozen=True):
    """A link that logs a person in.

    Spec: Other shapes. The name of `ssoUrlIE` is not regular camel case.
    """

    sso_url: str
    action_text: str | None
    is_hidden: bool
    sso_url_ie: str = msgspec.field(name="ssoUrlIE")
    sso_url_new: str


def invented(
    number: int, key: str, name: str, core: Core, at: dt.datetime, *, is_test_mode: bool, has_voice_auth: bool
) -> Institution:
    """Build a full institution. Every secret is fake and contains `fake-`, so that leaks can be found."""
    return Institution(
        id=number,
        name=name,
        host_name=f"{key}.example",
        allowed_phones=[],
        allowed_emails=[f"ops@{key}.example"],
        is_test_mode=is_test_mode,
        mail_provider_domain=f"mail.{key}.example",
        from_email=f"noreply@{key}.example",
        key=key,
        has_voice_auth=has_voice_auth,
        core=core,
        core_config=_core_config(number, key, at),
        vpn_config=_vpn_config(key, at),
        allowed_origins=[f"https://{key}.example"],
    )


def _core_config(number: int, key: str, at: dt.datetime) -> CoreConfig:
    return CoreConfig(
        created_date_utc=at,
        updated_date_utc=at,
        core_config_id=number,
        institution_id=number,
        url=f"https://core.{key}.example",
        edge_access_key=f"fake-edge-key-{key}",
        core_type_b_sym="000",
        core_type_b_admin_password=f"fake-admin-password-{key}",
        core_type_a_username="core-user",
        core_type_a_password=f"fake-core-password-{key}",
    )


def _vpn_config(key: str, at: dt.datetime) -> VpnConfig:
    return VpnConfig(
        gateway_ip="192.0.2.1",
        device_and_model="Example Gateway 1",
        authentication_value=f"fake-preshared-key-{key}",
        firmware_version="1.0",
        tunnel_interface="tun0",
        source_ip="192.0.2.2",
        destination_ip="192.0.2.3",
        created_date_utc=at,
        updated_date_utc=at,
        confirm_status=VpnStatus.SUCCESSFUL,
        institution_status=VpnStatus.SUCCESSFUL,
        ticket=None,
    )
