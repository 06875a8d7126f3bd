"""The bodies of requests to the desk: one record for each action, read strictly and limited in size.

``action`` is the last part of its address, ``summary`` its line in the OpenAPI document.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import asdict, force_setattr
from starlette.requests import ClientDisconnect, Request

from callkeeper.calls.informed_words import EVIDENCE
from callkeeper.calls.institutions import nearest
from callkeeper.calls.notes import (
    AssignWish,
    CheckWish,
    Distrusted,
    OptedIn,
    OptedOut,
    Resolved,
    Statement,
    Verified,
    Withdrawn,
)
from callkeeper.desk.access.rights import Operator
from callkeeper.desk.problems import Problem, invalid

BODY_LIMIT: Final = 8 * 1024
"""In bytes. The longest valid body has about 5,000."""

PersonId = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[^\s\x00-\x1f\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]{0,126}[^\s\x00-\x1f\x7f-\x9f])?$(?!\n)",
        description="One of the candidates' ids.",
    ),
]
"""Assumed (`person-id-alphabet`): person ids are 1 to 128 characters of any script, none a control."""

InstitutionKey = Annotated[str, msgspec.Meta(min_length=1, max_length=128, description="The institution's key.")]

Proof = Literal["OneTimePasswordAuth", "KnowledgeBasedAuth", "Other"]
"""The validation types that establish an identity besides the voice (``callkeeper.calls.statuses.OTHERWISE``)."""

EvidenceName = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(EVIDENCE)})]

Text = Annotated[str, msgspec.Meta(max_length=500)]
"""Assumed (`notes-length`): the service takes notes of an enroll of up to 500 characters, with any content."""

Reason = Annotated[Text, msgspec.Meta(pattern=r"\S")]

T = TypeVar("T", bound=msgspec.Struct)


class ActionOrigin(msgspec.Struct, frozen=True):
    """Where a requested action comes from: the operator, the time, the token, and the id of the action."""

    operator: str
    at: datetime
    token: str
    action_id: str


class _OperatorsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operator: Operator

    def __post_init__(self) -> None:
        force_setattr(self, "operator", self.operator.strip())


class _ActionBody(_OperatorsBody, frozen=True):
    action: ClassVar[str]
    summary: ClassVar[str]
    said_as: ClassVar[type[Statement]]
    """The note that the action leaves. It has the body's own fields under the same names."""

    def note(self, origin: ActionOrigin) -> Statement:
        return self.said_as(
            **self.own_fields(),
            operator=origin.operator,
            said_at=origin.at,
            token=origin.token,
            wish=origin.action_id,
        )

    def own_fields(self) -> dict[str, Any]:
        """Return what this action says, for its note."""
        return {name: value for name, value in asdict(self).items() if name != "operator"}


class AssignBody(_ActionBody, frozen=True):
    """The caller is this candidate. Replaces our own assignment, never somebody else's."""

    action = "assign"
    summary = "Say which candidate the caller is"
    said_as = AssignWish
    person_id: PersonId


class VerifiedBody(_ActionBody, frozen=True):
    """The operator verified that the caller is this person. ``notes`` go with the enroll; keep documents out of them.

    ``despite`` names what speaks against the caller and is overruled: the ``evidence`` of the call, or of a refusal with
    ``evidence_against``. ``Other`` needs ``notes``. The service's ``NoAuth`` and ``VoiceAuth`` are not among the types: they
    establish no identity besides the voice.
    """

    action = "verified"
    summary = "Say that the caller was verified, and how"
    said_as = Verified
    person_id: PersonId
    validation_type: Proof
    notes: Text | None = None
    despite: tuple[EvidenceName, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.validation_type == "Other" and not (self.notes or "").strip():
            raise ValueError("notes must say how the caller was verified")
        if not set(self.despite) <= EVIDENCE.keys():
            raise ValueError(f"despite must name some of {', '.join(EVIDENCE)}")

    def own_fields(self) -> dict[str, Any]:
        own = super().own_fields()
        own["remark"] = own.pop("notes") or None
        return own


class DistrustedBody(_ActionBody, frozen=True):
    """The caller cannot be trusted: the voice is rejected, which takes back every earlier manual enroll of the member.

    The reason is kept in the trail.
    """

    action = "distrusted"
    summary = "Say that the caller cannot be trusted"
    said_as = Distrusted
    reason: Reason


class OptedOutBody(_ActionBody, frozen=True):
    """The caller does not want the voice to be enrolled. No enroll is made for this call any more."""

    action = "opted-out"
    summary = "Say that the caller does not want to be enrolled"
    said_as = OptedOut


class OptedInBody(_ActionBody, frozen=True):
    """The member agrees that the voice is enrolled, after an opt-out of this or an earlier call. ``notes`` say how they did.

    It counts once the caller is established as the member in this call, and until a later opt-out.
    """

    action = "opted-in"
    summary = "Say that the member agrees to be enrolled after an opt-out"
    said_as = OptedIn
    notes: Reason

    def own_fields(self) -> dict[str, Any]:
        return {"remark": self.notes}


class CheckBody(_ActionBody, frozen=True):
    """Spend one of the reserved authentication checks now."""

    action = "check"
    summary = "Spend a reserved authentication check now"
    said_as = CheckWish


class ResolveBody(_ActionBody, frozen=True):
    """The operator looked at the service: the unresolved effect was applied, or was not.

    ``effect`` names it, if both the enroll and the reject are unresolved.
    """

    action = "resolve"
    summary = "Say whether an unresolved effect was applied"
    said_as = Resolved
    applied: bool
    effect: Literal["enroll", "reject"] | None = None


class SeenBody(ResolveBody, frozen=True):
    """The same from a page of the board, which names what it has shown."""

    seen: Annotated[str, msgspec.Meta(max_length=8)] = ""


class WithdrawBody(_ActionBody, frozen=True):
    """What was said of the call, by whomever, does not hold. What was already sent stays.

    ``what``: the earlier action. Whoever takes back a distrust says why, in ``reason``. An opt-out is not taken back here:
    that is an opt-in.
    """

    action = "withdraw"
    summary = "Take back what was said of the call before"
    said_as = Withdrawn
    what: Literal["assign", "verified", "distrusted"]
    reason: Text | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.what == "distrusted" and not (self.reason or "").strip():
            raise ValueError("reason must say why the distrust does not hold")


class AgentTokenBody(_OperatorsBody, frozen=True):
    """Whom the token speaks for, whose calls it reads, and for how many seconds it is valid."""

    institutions: Annotated[tuple[InstitutionKey, ...], msgspec.Meta(min_length=1, max_length=100)]
    valid_s: Annotated[int, msgspec.Meta(ge=60, le=3600)] = 900


Body = AssignBody | VerifiedBody | DistrustedBody | OptedOutBody | OptedInBody | CheckBody | WithdrawBody | ResolveBody

BODIES: Final[Mapping[str, type[Body]]] = {body.action: body for body in get_args(Body)}
"""Every action, by the last part of its address."""


async def read_body(request: Request, kind: type[T]) -> T:
    """Return the body of a request.

    Raises:
        Problem: It is too large, no JSON, or not what belongs there; the problem names the field, never its value.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" or request.headers.get("content-encoding", "identity") != "identity":
        raise Problem(415, "unsupported_media_type")
    try:
        body = await bounded(request)
        parsed = msgspec.json.decode(body, type=kind)
        json.loads(body, object_pairs_hook=_once)
    except RequestTooLarge:
        raise Problem(413, "too_large", headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise invalid("body", "must be whole") from None
    except _Twice:
        raise invalid("body", "no name may occur twice") from None
    except msgspec.ValidationError as error:
        raise _refusal(str(error), kind) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise invalid("body", "must be JSON") from None
    return parsed


class _NoFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty object."""


async def refuse_fields(request: Request) -> None:
    """Refuse the body of a request that takes none, unless it is an empty object.

    Raises:
        Problem: As `read_body`.
    """
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        await read_body(request, _NoFields)


class _Twice(Exception):
    """A name occurs twice; two parsers could take different values."""


def _once(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _Twice


class RequestTooLarge(Exception):
    """A body is longer than `BODY_LIMIT`; the rest of it was not read."""


async def bounded(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        RequestTooLarge: It is too long.
        starlette.requests.ClientDisconnect: It did not arrive as a whole.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_LIMIT:
            raise RequestTooLarge
    return bytes(body)


def _refusal(message: str, kind: type[msgspec.Struct]) -> Problem:
    """Return the problem of a wrong body, from msgspec's message: the field, and what may stand there."""
    head, at, place = message.rpartition(" - at `")  # a wrong value stands before, and may contain the same words
    found = head if at else message
    if (said := _SAID_BY_US.match(found)) is not None:
        return invalid(said["field"], said["problem"])
    where = place.rstrip("`").removeprefix("$.") if at else "body"
    if found.startswith("Invalid enum value"):
        hint = get_type_hints(kind)[where]
        choices = next(get_args(one) for one in (hint, *get_args(hint)) if get_origin(one) is Literal)
        return invalid(where, f"must be one of {', '.join(choices)}")
    if found.startswith(_UNKNOWN_FIELD):
        name = found.removeprefix(_UNKNOWN_FIELD).strip(" `")
        return invalid(name[:LONGEST_NAME], f"is no field of this body{meant(name, kind.__struct_fields__)}")
    if found.startswith(_MISSING_FIELD):
        return invalid(found.removeprefix(_MISSING_FIELD).strip(" `"), "is missing")
    if "matching regex" in found:
        return invalid(where, f"must {_PATTERNS[where]}")
    expected = _EXPECTED.match(found)
    if expected is None:
        return invalid(where, "is wrong")
    return invalid(where, f"must be {_TYPES.get(expected['type'], expected['type'])}{_limit(expected)}")


def _limit(expected: re.Match[str]) -> str:
    """Return the limit that a value, or its length, has to keep."""
    if not expected["limit"]:
        return ""
    bound = "least" if expected["sign"] == ">=" else "most"
    one, many = _UNITS.get(expected["type"], ("", ""))
    return f" of at {bound} {expected['limit']} {one if expected['limit'] == '1' else many}".rstrip()


def meant(unknown: str, known: Sequence[str]) -> str:
    """Return which of the known names is probably meant by an unknown one, or all of them."""
    if not known:
        return ", which takes none"
    near = nearest(unknown, known)
    return f"; did you mean {near}?" if near else f", which takes {', '.join(known)}"


LONGEST_NAME: Final = 40
"""How much of an unknown name is repeated."""
_SAID_BY_US: Final = re.compile(r"(?P<field>notes|reason|despite) (?P<problem>must .*)")
_UNKNOWN_FIELD: Final = "Object contains unknown field"
_MISSING_FIELD: Final = "Object missing required field"
_EXPECTED: Final = re.compile(r"Expected `(?P<type>[^`]+)`(?:(?: of length)? (?P<sign>[<>]=) (?P<limit>\d+))?")
_TYPES: Final = {
    "str": "a string",
    "str | null": "a string or null",
    "bool": "true or false",
    "int": "a whole number",
    "array": "an array",
    "object": "an object",
}
_UNITS: Final = {"str": ("character", "characters"), "array": ("entry", "entries")}
_PATTERNS: Final = {
    "operator": "be 1 to 64 printable ASCII characters: a core username, not a person's name",
    "person_id": "be 1 to 128 printable characters, the first and the last no blank",
    "reason": "say why: not only blanks",
    "notes": "say how the member agreed: not only blanks",
}
"""What the patterns of fields mean."""
