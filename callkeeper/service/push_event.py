"""Parses the service's push events and the notation of their headers. No I/O.

An event is sent only once, so refusing one loses it. A body is therefore parsed leniently, except for fields that
matter: an id that could change a path or split a line must not get in. Only ``Type``, ``InstitutionKey`` and one of the
two ids can be refused. Assumed (`push-fields`): an empty id, or GUID, counts as absent. A byte order mark is skipped, a
phone number can be a number, and a date or number that cannot be read counts as absent. Only what clearly says true
makes an event a sample (``IsTest``): any other value leaves it a hint, which changes nothing until the service's queue
or record confirms it.

The dashboard has its own notation for the headers to send with every push: ``Header: value; Header2: value2``. They
authenticate the sender. A value cannot contain ``;``, the separator. Errors never repeat a name or value, because a
mistyped setting may have a secret in place of a name.

Spec: Events.
"""

import json
import re
from codecs import BOM_UTF8
from typing import Any, Final, NoReturn

import msgspec

from callkeeper.service.endpoints import is_institution_key, is_voice_id
from callkeeper.service.secret import Secret

Headers = tuple[tuple[str, Secret], ...]
"""Lower-case names with their values."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[!-~](?:[ \t]*[!-~])*")
_TRANSPORT_OWNED: Final = frozenset(
    {
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "upgrade",
        "te",
        "trailer",
        "expect",
    }
)


class HeaderSettingsUnreadable(ValueError):
    """The setting is not in the form ``Header: value; Header2: value2``. The message names the pair and the fault."""


def parse_header_settings(text: str) -> Headers:
    """Parse the dashboard's notation into (lower-case name, value) pairs, in order.

    A ``;`` after the last pair is accepted.

    Raises:
        HeaderSettingsUnreadable: No pair, a malformed one, a repeated name, or one that the transport sets.

    Spec: Events. Assumed (`push-headers`): a value may hold any visible ASCII character but ``;``, and inner blanks.
    """
    pairs = text.strip().removesuffix(";").split(";")
    headers = tuple(_parse_pair(number, pair) for number, pair in enumerate(pairs, start=1))
    if len({name for name, _ in headers}) != len(headers):
        raise HeaderSettingsUnreadable("a header name occurs twice")
    return headers


def _parse_pair(number: int, pair: str) -> tuple[str, Secret]:
    name, colon, value = pair.partition(":")
    name, value = name.strip().lower(), value.strip()
    if not colon:
        raise HeaderSettingsUnreadable(f"pair {number} has no colon")
    if not _TOKEN.fullmatch(name):
        raise HeaderSettingsUnreadable(f"pair {number}: not a legal header name")
    if name in _TRANSPORT_OWNED:
        raise HeaderSettingsUnreadable(f"pair {number}: the transport sets this header itself")
    if not _VALUE.fullmatch(value):
        raise HeaderSettingsUnreadable(f"pair {number}: the value must be visible ASCII characters")
    return name, Secret(value)


MAX_DEPTH: Final = 32
"""How deep arrays and objects may nest. The Spec's payload is flat."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)


class PushUnreadable(ValueError):
    """A body is not a push event. The error names the field and what is expected, never the content.

    ``field`` is one of the payload, or ``body``; ``remedy`` what would be accepted.
    """

    def __init__(self, field: str, remedy: str) -> None:
        super().__init__(f"{field}: {remedy}")
        self.field = field
        self.remedy = remedy


class PushEvent(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One pushed event. The dates are kept as text, because the time of a hint is never relied on.

    Spec: Events, Payload.
    """

    type: str
    """``CallStart`` or ``CallEnd``. Any other text is kept."""
    institution_key: str
    start_date_time: str | None = None
    end_date_time: str | None = None
    voice_id: str | None = None
    alternate_voice_id: str | None = None
    phone_number: str | None = None
    destination_phone_number: str | None = None
    is_test: bool | None = None
    """True for a sample sent from the dashboard; None for a real event, or if the value cannot be read."""


def parse_push(body: bytes) -> PushEvent:
    """Parse a push event from the body of a request.

    An empty id counts as absent. Unknown fields are ignored.

    Raises:
        PushUnreadable: The body is not strict JSON, a required field is missing or wrong, or an id is wrong.

    Spec: Events, Payload.
    """
    fields = _parse_object(body)
    event = PushEvent(
        type=_required(fields, "Type"),
        institution_key=_required(fields, "InstitutionKey"),
        start_date_time=_text_if_any(fields, "StartDateTime"),
        end_date_time=_text_if_any(fields, "EndDateTime"),
        voice_id=_voice_id(fields, "VoiceId"),
        alternate_voice_id=_voice_id(fields, "AlternateVoiceId"),
        phone_number=_phone_number(fields, "PhoneNumber"),
        destination_phone_number=_phone_number(fields, "DestinationPhoneNumber"),
        is_test=_is_test(fields),
    )
    _check(event)
    return event


def _check(event: PushEvent) -> None:
    """Check the three fields that everything depends on."""
    if not (event.type.isprintable() and len(event.type) <= 64):
        raise PushUnreadable("Type", "1 to 64 printable characters")
    if not is_institution_key(event.institution_key):
        raise PushUnreadable("InstitutionKey", "1 to 64 visible ASCII characters, no slash")
    if event.voice_id is None and event.alternate_voice_id is None:
        raise PushUnreadable("VoiceId", "this or AlternateVoiceId is required")


def _required(fields: dict[str, Any], name: str) -> str:
    text = fields.get(name)
    if not text or not isinstance(text, str):
        raise PushUnreadable(name, "a non-empty string is required")
    return _encodable(text)


def _text_if_any(fields: dict[str, Any], name: str) -> str | None:
    """Return a text on which nothing depends; None if it is something else."""
    value = fields.get(name)
    return _encodable(value) if isinstance(value, str) else None


def _phone_number(fields: dict[str, Any], name: str) -> str | None:
    """Return a phone number, also one that was sent as a number; the queue shows the right one."""
    value = fields.get(name)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else _text_if_any(fields, name)


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON escapes can produce but UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


_NO_GUID: Final = "00000000-0000-0000-0000-000000000000"
"""What some software sends in place of no GUID. As an id it would make all such calls one."""


def _voice_id(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None or value == "" or value == _NO_GUID:
        return None
    if not isinstance(value, str):
        raise PushUnreadable(name, "a string or null")
    if not is_voice_id(value):
        raise PushUnreadable(name, "1 to 256 printable characters, spaces inside only")
    return value


_SAMPLE: Final[dict[object, bool | None]] = {
    True: True,
    False: False,
    None: None,
    "true": True,
    "1": True,
    "false": False,
    "0": False,
    "": None,
}
"""Values of ``IsTest``, texts in small letters. The numbers 1 and 0 are equal to true and false."""


def _is_test(fields: dict[str, Any]) -> bool | None:
    """Tell whether the event is a sample. An unreadable value does not make it one: a real call would be lost."""
    value = fields.get("IsTest")
    if isinstance(value, (list, dict)):
        return None
    return _SAMPLE.get(value.strip().lower() if isinstance(value, str) else value)


def _parse_object(body: bytes) -> dict[str, Any]:
    """Parse strict JSON: UTF-8, an object at the top, no duplicate names, no NaN, limited nesting."""
    try:
        text = body.removeprefix(BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError:
        raise PushUnreadable("body", "UTF-8 is required") from None
    if _depth_exceeds(text, MAX_DEPTH):
        raise PushUnreadable("body", f"at most {MAX_DEPTH} levels of nesting")
    try:
        value = _JSON.decode(text)
    except PushUnreadable:
        raise
    except ValueError:  # malformed, or a number too long to convert
        raise PushUnreadable("body", "JSON is required") from None
    if not isinstance(value, dict):
        raise PushUnreadable("body", "a JSON object is required")
    return value


def _depth_exceeds(text: str, limit: int) -> bool:
    """Tell whether brackets outside of strings nest deeper than ``limit``. Checked first: the parser recurses."""
    if text.count("[") + text.count("{") <= limit:
        return False
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > limit:
            return True
    return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise PushUnreadable("body", "no name may occur twice in an object")
    return fields


def _refuse_constant(_name: str) -> NoReturn:
    raise PushUnreadable("body", "NaN and Infinity are not JSON")


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
"""Made once, because ``json.loads`` makes a decoder for every call with hooks."""
