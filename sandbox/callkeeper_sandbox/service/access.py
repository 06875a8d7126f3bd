"""Authentication of requests: the three modes, each with exactly its headers.

Spec: Authentication.
"""

import hmac
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from callkeeper_sandbox.service import tokens
from callkeeper_sandbox.service.answers import RefusedError, UnauthorizedError
from callkeeper_sandbox.service.world import World


class Operation(StrEnum):
    """The operations of the interface. Reads and checks of details are counted separately."""

    TOKEN = "token"  # noqa: S105  (the name of an operation)
    USER_TOKEN = "user_token"  # noqa: S105
    QUEUE = "queue"
    ASSIGN = "assign"
    CHECK = "check"
    READ = "read"
    ENROLL = "enroll"
    REJECT_VOICE = "reject_voice"
    INSTITUTIONS = "institutions"
    ADD_INSTITUTION = "add_institution"
    INSTITUTION = "institution"
    UPDATE_INSTITUTION = "update_institution"
    LOGIN_AS = "login_as"


class Mode(StrEnum):
    """How an operation authenticates.

    Spec: Authentication, table of modes.
    """

    ACCESS_TOKEN = "access token"  # noqa: S105  (the name of a mode)
    SERVICE_ACCOUNT = "service account"
    RESELLER = "reseller"


OF_RESELLERS = frozenset(
    {
        Operation.INSTITUTIONS,
        Operation.ADD_INSTITUTION,
        Operation.INSTITUTION,
        Operation.UPDATE_INSTITUTION,
        Operation.LOGIN_AS,
    }
)
HEADERS = {
    Mode.ACCESS_TOKEN: frozenset({"accesstoken"}),
    Mode.SERVICE_ACCOUNT: frozenset({"ssotoken", "institutionkey", "requestedby"}),
    Mode.RESELLER: frozenset({"ssotoken"}),
}
"""The headers of each mode, in lower case."""

_ALL_HEADERS = frozenset().union(*HEADERS.values())


class Credentials(msgspec.Struct, frozen=True):
    """The credentials issued at onboarding. The defaults are public."""

    access_token: str = "sandbox-access-token"  # noqa: S105
    email: str = "service-account@reseller.example"
    password: str = "sandbox-password"  # noqa: S105


class Inbound(msgspec.Struct, kw_only=True):
    """A request without HTTP details. Header names are in lower case."""

    operation: Operation
    path_id: str | None
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class Session(msgspec.Struct, frozen=True):
    """The institution and operator of a request. Both are empty outside the service account mode."""

    token: str = ""
    institution_key: str = ""
    requested_by: str = ""


class Ask(msgspec.Struct, frozen=True):
    """An authenticated request, with the world that it uses."""

    world: World
    session: Session
    inbound: Inbound


def mode_of(operation: Operation) -> Mode:
    """Return the authentication mode of an operation.

    Spec: Endpoints, column auth mode.
    """
    if operation is Operation.TOKEN:
        return Mode.ACCESS_TOKEN
    return Mode.RESELLER if operation in OF_RESELLERS else Mode.SERVICE_ACCOUNT


def surplus_headers(inbound: Inbound) -> list[str]:
    """Name the authentication headers that do not belong to the operation's mode; the service ignores them."""
    return sorted(_ALL_HEADERS.intersection(inbound.headers) - HEADERS[mode_of(inbound.operation)])


def authenticate(world: World, credentials: Credentials, inbound: Inbound) -> Session:
    """Authenticate a request.

    Raises:
        UnauthorizedError: The access token is wrong, or the SSO token is absent, unknown or lapsed.

    Spec: Authentication; Errors 2.
    """
    if mode_of(inbound.operation) is Mode.ACCESS_TOKEN:
        given = inbound.headers.get("accesstoken", "")
        if not hmac.compare_digest(given.encode(), credentials.access_token.encode()):
            raise UnauthorizedError
        return Session()
    token = inbound.headers.get("ssotoken", "")
    if not tokens.is_alive(world.state, token, world.clock()):
        raise UnauthorizedError
    return Session(token, inbound.headers.get("institutionkey", ""), inbound.headers.get("requestedby", ""))


def authorize(world: World, session: Session, operation: Operation) -> None:
    """Check that a service-account request names an institution of this reseller and an operator.

    Raises:
        RefusedError: It does not (Assumed: a refusal, since the Spec shows no status for it).

    Spec: Authentication, rule 2; What the service does 1.
    """
    if mode_of(operation) is not Mode.SERVICE_ACCOUNT:
        return
    child = world.state.institutions.get(session.institution_key)
    if child is None or not child.owned:
        raise RefusedError("Institution not found.", "InstitutionNotFound")
    if not session.requested_by:
        raise RefusedError("RequestedBy is required.", "RequestedByMissing")
