"""The twelve endpoints: name, method, path and which headers authenticate them.

The name is what errors and logs call the endpoint.
"""

from dataclasses import dataclass
from enum import Enum, auto

from reseller.identifiers import path_part


class AuthMode(Enum):
    """Which headers a request carries.

    Spec: Authentication.
    """

    ACCESS_TOKEN = auto()
    """``accessToken``."""
    SERVICE_ACCOUNT = auto()
    """``SsoToken``, ``InstitutionKey``, ``RequestedBy``."""
    RESELLER = auto()
    """``SsoToken``."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the Spec's table of endpoints."""

    name: str
    method: str
    path: str
    mode: AuthMode

    def at(self, identifier: str | None = None) -> str:
        """Return the path with its identifier, quoted as one path part.

        Raises:
            Unsendable: The identifier cannot be a path part.
        """
        if identifier is None:
            return self.path
        return self.path.format(path_part(self.name, identifier))


TOKEN = Endpoint("token", "POST", "/external/token/request", AuthMode.ACCESS_TOKEN)
USER_TOKEN = Endpoint("user-token", "POST", "/external/token/request/user", AuthMode.SERVICE_ACCOUNT)
QUEUE = Endpoint("queue", "GET", "/external/calls/queue", AuthMode.SERVICE_ACCOUNT)
ASSIGN = Endpoint("assign", "POST", "/external/calls/assign", AuthMode.SERVICE_ACCOUNT)
DETAILS = Endpoint("details", "GET", "/external/calls/{}/details", AuthMode.SERVICE_ACCOUNT)
ENROLL = Endpoint("enroll", "POST", "/external/calls/{}/enroll", AuthMode.SERVICE_ACCOUNT)
REJECT_VOICE = Endpoint("reject-voice", "POST", "/external/calls/{}/reject-voice", AuthMode.SERVICE_ACCOUNT)
INSTITUTIONS = Endpoint("institutions", "GET", "/external/institutions", AuthMode.RESELLER)
ADD_INSTITUTION = Endpoint("add-institution", "POST", "/external/institutions", AuthMode.RESELLER)
INSTITUTION = Endpoint("institution", "GET", "/external/institutions/{}", AuthMode.RESELLER)
UPDATE_INSTITUTION = Endpoint("update-institution", "PUT", "/external/institutions/{}", AuthMode.RESELLER)
LOGIN_AS = Endpoint("login-as", "POST", "/external/institutions/{}/login", AuthMode.RESELLER)

ENDPOINTS = (
    TOKEN,
    USER_TOKEN,
    QUEUE,
    ASSIGN,
    DETAILS,
    ENROLL,
    REJECT_VOICE,
    INSTITUTIONS,
    ADD_INSTITUTION,
    INSTITUTION,
    UPDATE_INSTITUTION,
    LOGIN_AS,
)
"""In the Spec's order."""
