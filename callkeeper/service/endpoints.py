"""The twelve endpoints, requests to them and responses, and what may enter a path or a header.

Errors and logs use the name of an endpoint. An identifier may come from a forged push. Whatever it contains, it is
quoted or refused, so that it stays one part of the path, and a header value stays one header. The Spec shows no
alphabet for voice ids and institution keys; ours are the widest that are safe in a header, a path and a Redis key.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final
from urllib.parse import quote

import msgspec

from callkeeper.service.errors import Unsendable

MAX_VOICE_ID: Final = 256
MAX_INSTITUTION_KEY: Final = 64

_INSTITUTION_KEY = re.compile(rf"[!-.0-~]{{1,{MAX_INSTITUTION_KEY}}}")  # visible ASCII without the slash
_DOT_SEGMENTS = frozenset({".", ".."})


_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}", re.IGNORECASE)


@lru_cache(maxsize=16_384)
def canonical_id(text: str) -> str:
    """Return the spelling of a voice id under which we keep it: of a GUID with small letters, hyphens and no braces.

    Any other id stays as it is. Cached, because every answer names the ids that the last one named.

    Assumed (`voice-id-spelling`): ids that are equal as GUIDs are one id, however push, queue, details and assign spell
    them.
    """
    bare = text[1:-1] if text[:1] == "{" and text[-1:] == "}" else text
    if _GUID.fullmatch(bare) is None:
        return text
    digits = bare.replace("-", "").lower()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def spelling_of(text: str) -> str | None:
    """Return how an id is spelled if that is not the canonical spelling."""
    return None if text == canonical_id(text) else text


def is_same_id(one: str, other: str) -> bool:
    """Tell whether two voice ids are the same, however they are spelled."""
    return one == other or canonical_id(one) == canonical_id(other)


def is_voice_id(text: str) -> bool:
    """Tell whether ``text`` may be a voice id or alternate id: 1 to 256 printable characters, blanks only inside.

    Assumed (`voice-id-alphabet`): the Spec shows no alphabet. ``.`` and ``..``, also between slashes, would change a
    path even when quoted, because routers undo the quoting.
    """
    is_one_line = 0 < len(text) <= MAX_VOICE_ID and text.isprintable() and text == text.strip()
    return is_one_line and _DOT_SEGMENTS.isdisjoint(text.replace("\\", "/").split("/"))


def is_institution_key(text: str) -> bool:
    """Tell whether ``text`` may be an institution's key: 1 to 64 visible ASCII characters, no slash.

    Assumed (`institution-key-alphabet`): the Spec shows no alphabet; the key is sent as a header and as part of a path.
    """
    return _INSTITUTION_KEY.fullmatch(text) is not None and text not in _DOT_SEGMENTS


MAX_LENGTH = 256
"""Maximum length of an identifier. Assumed (`identifier-length`): the Spec names no limit; real ones are GUIDs and
short keys."""


def path_part(endpoint: str, identifier: str) -> str:
    """Quote an identifier as exactly one part of a path.

    ``.`` and ``..`` are refused, because quoting does not change them and they mean other folders.

    Raises:
        Unsendable: Empty, too long, a folder name, or not encodable as UTF-8.
    """
    if not identifier or len(identifier) > MAX_LENGTH or identifier in (".", ".."):
        raise Unsendable(endpoint, "the identifier is empty, too long or a folder name")
    try:
        return quote(identifier, safe="")
    except UnicodeEncodeError:
        pass
    raise Unsendable(endpoint, "the identifier is not text")


def header_value(endpoint: str, name: str, value: str) -> str:
    """Return a header value unchanged if it can be sent as one.

    Raises:
        Unsendable: Empty, too long, with a line break, a control or a non-ASCII character, or with blanks at its ends,
            which the receiver would not see.
    """
    if value and len(value) <= MAX_LENGTH and value.isascii() and value.isprintable() and value == value.strip():
        return value
    raise Unsendable(endpoint, f"the value of {name} cannot be a header")


class AuthMode(Enum):
    """Which headers a request carries. Spec: Authentication."""

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

    @property
    def title(self) -> str:
        """Return the method and the path with a placeholder for the identifier."""
        return f"{self.method} {self.path}"

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

EFFECTS = frozenset({ASSIGN, ENROLL, REJECT_VOICE})
"""What changes a call. Each such request opens a connection of its own."""


def scope_of(operation: str, institution_key: str) -> str:
    """Return the scope of a request. The institution is empty if the request names none."""
    return f"{operation} {institution_key}"


def operation_of(scope: str) -> str:
    """Return the operation of a scope."""
    return scope.partition(" ")[0]


def institution_of(scope: str) -> str:
    """Return the institution of a scope."""
    return scope.partition(" ")[2]


class Request(msgspec.Struct, frozen=True):
    """A request before it has a token: the path is complete and quoted, the query as it is sent."""

    endpoint: Endpoint
    path: str
    headers: Mapping[str, str] = {}
    query: str = ""
    content: bytes | None = None
    is_check: bool = False
    about: str = ""
    """The institution that the path names, if no header does. Errors of the request then concern only that one."""

    @property
    def scope(self) -> str:
        """Return what a 401 may be about: operation and institution. A check is another operation than a read."""
        return scope_of(self.operation, self.institution_key)

    @property
    def operation(self) -> str:
        """Return the endpoint's name, or that of a check."""
        return "check" if self.is_check else self.endpoint.name

    @property
    def institution_key(self) -> str:
        """Return the institution that the request is for or about; empty if it names none."""
        return self.headers.get("InstitutionKey", self.about)


class ServiceResponse(msgspec.Struct, frozen=True):
    """A completely received response with a decoded body of limited size. ``headers`` ignore case."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes
