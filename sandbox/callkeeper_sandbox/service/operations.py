"""The operations on calls, voices and tokens, without HTTP.

Each gets the world, the session and the request, and returns an answer or raises a refusal.

Spec: Endpoints 1 to 7; Queue query; Rules per operation.
"""

import datetime as dt
import hmac
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from callkeeper_sandbox.service import effects, tokens, views
from callkeeper_sandbox.service.access import Ask, Credentials, Operation
from callkeeper_sandbox.service.answers import (
    AssignAnswer,
    Base,
    QueueAnswer,
    RefusedError,
    TokenAnswer,
    UserTokenAnswer,
)
from callkeeper_sandbox.service.options import Options
from callkeeper_sandbox.service.records import ValidationType, Wire
from callkeeper_sandbox.service.state import Call
from callkeeper_sandbox.service.world import World

_T = TypeVar("_T")

_MAX_INTEGER = 2**31 - 1


class TokenBody(Wire, frozen=True):
    """Spec: Endpoints 1."""

    email: str
    password: str


class AssignBody(Wire, frozen=True, kw_only=True):
    """Spec: Endpoints 4."""

    phone_number: str | None = None
    voice_id: str | None = None
    person_id: str


class EnrollBody(Wire, frozen=True, kw_only=True):
    """Spec: Endpoints 6."""

    person_id: str
    validation_type: ValidationType
    notes: str | None = None


def parse(body: bytes, shape: type[_T]) -> _T:
    """Read a request body.

    Raises:
        RefusedError: It is not JSON of that shape (Assumed: a refusal).
    """
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError("The request body is malformed.", "Malformed") from error


def request_token(ask: Ask, credentials: Credentials) -> TokenAnswer:
    """Log a service account in.

    Assumed: wrong credentials are a refusal, not a 401, which would mean a lapsed token.

    Spec: Endpoints 1; Rules per operation 5; Authentication, rule 1.
    """
    options = ask.world.options
    body = parse(ask.inbound.body, TokenBody)
    given = f"{body.email}\n{body.password}".encode()
    if not hmac.compare_digest(given, f"{credentials.email}\n{credentials.password}".encode()):
        raise RefusedError("Invalid credentials.", "InvalidCredentials")
    if options.login_ends_earlier:
        ask.world.state.tokens.clear()
    now = ask.world.clock()
    token = tokens.mint(ask.world.state, now)
    keys = options.token_keys([key for key, child in ask.world.state.institutions.items() if child.owned])
    return TokenAnswer(token=token, expires_on=now + tokens.LIFETIME, institution_keys=keys)


def request_user_token(ask: Ask) -> UserTokenAnswer:
    """Mint a login token for the institution of the request.

    Spec: Endpoints 2; Rules per operation 5.
    """
    token = tokens.mint_user_token(ask.world.state, ask.session.institution_key, ask.world.clock())
    return UserTokenAnswer(token=token)


def queue(ask: Ask) -> QueueAnswer:
    """List the live calls of an institution.

    Spec: Queue query.
    """
    query, options = ask.inbound.query, ask.world.options
    begin = _integer(query, "continueFrom", 0)
    size = options.page_size(_integer(query, "pageSize", 1))
    search = _Search(
        ignored=frozenset(ask.world.state.institutions[ask.session.institution_key].ignored),
        text=query.get("searchString", "").casefold(),
        start=_instant(query, "startDate", options),
        end=_instant(query, "endDate", options),
    )
    live = _live(ask.world, ask.session.institution_key)
    calls = options.queue_order(call for call in live if search.shows(ask.world, call))
    page = options.page(calls, begin, size)
    if not page and begin:
        page = options.past_end(calls, size)
    return QueueAnswer(phone_calls=[views.queue_entry(ask.world, call) for call in page])


def _live(world: World, institution_key: str) -> list[Call]:
    """Return the calls that the queue lists as live."""
    ended_after = world.clock() - dt.timedelta(seconds=world.options.listed_after_end_s)
    over = [call for call in world.over[institution_key] if call.ended_at and call.ended_at > ended_after]
    live = world.live[institution_key].values()
    return [*over, *live]


class _Search(msgspec.Struct, frozen=True):
    ignored: frozenset[str]
    text: str
    start: dt.datetime | None
    end: dt.datetime | None

    def shows(self, world: World, call: Call) -> bool:
        return (
            call.listed_at <= world.clock()
            and call.phone_number not in self.ignored
            and self._is_within(world.options.shown_start(call.started_at))
            and (not self.text or _matches(world, call, self.text))
        )

    def _is_within(self, at: dt.datetime) -> bool:
        return (self.start is None or at >= self.start) and (self.end is None or at <= self.end)


def _matches(world: World, call: Call, wanted: str) -> bool:
    names = (member.person.name for member in world.candidates(call))
    return wanted in call.phone_number or any(wanted in name.casefold() for name in names)


def _integer(query: Mapping[str, str], name: str, low: int) -> int:
    try:
        value = int(query[name])
    except (KeyError, ValueError):
        raise RefusedError(f"{name} is required and must be an integer.", "Malformed") from None
    if not low <= value <= _MAX_INTEGER:
        raise RefusedError(f"{name} must be {low} to {_MAX_INTEGER}.", "Malformed")
    return value


def _instant(query: Mapping[str, str], name: str, options: Options) -> dt.datetime | None:
    """Read a date-time; without a zone it is UTC (Assumed)."""
    if not query.get(name):
        return None
    try:
        value = dt.datetime.fromisoformat(query[name])
    except ValueError:
        raise RefusedError(f"{name} must be a date-time.", "Malformed") from None
    value = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return value - dt.timedelta(seconds=options.clock_ahead_s)


def _resolve(ask: Ask, given_id: str | None, *, alternate: bool) -> Call:
    call = ask.world.call(ask.session.institution_key, given_id or "", alternate=alternate)
    if call is None:
        raise RefusedError("Phone call not found.", "PhoneCallNotFound")
    if call.ended_at is not None and ask.inbound.operation in ask.world.options.refused_after_end:
        raise RefusedError("The phone call has ended.", "PhoneCallEnded")
    return call


def assign(ask: Ask) -> AssignAnswer:
    """Assign a person to a call: by phone number when one is given, otherwise by voice id.

    Assumed: a call that has ended can still be assigned by its voice id.

    Spec: Rules per operation 1.
    """
    body = parse(ask.inbound.body, AssignBody)
    if body.phone_number:
        call = ask.world.by_phone(ask.session.institution_key, body.phone_number)
        if call is None:
            raise RefusedError("Phone call not found.", "PhoneCallNotFound")
    elif body.voice_id:
        call = _resolve(ask, body.voice_id, alternate=True)
    else:
        raise RefusedError("A phone number or voice id must be provided.", "PhoneNumberOrVoiceIdMissing")
    effects.assign(ask.world, call, body.person_id, ask.session.requested_by, ask.world.clock())
    return AssignAnswer(voice_id=ask.world.spelled(call.voice_id, "assign"))


def details(ask: Ask) -> dict[str, Any]:
    """Show a call's record, after a check if requested.

    Spec: Endpoints 5; Rules per operation 2.
    """
    if ask.inbound.query.get("checkVoiceAuthentication", "").lower() not in ("true", "false"):
        raise RefusedError("checkVoiceAuthentication is required and must be a boolean.", "Malformed")
    call = _resolve(ask, ask.inbound.path_id, alternate=True)
    if ask.inbound.operation is Operation.CHECK:
        effects.check(call, ask.session.requested_by, ask.world.clock())
    options = ask.world.options
    record: dict[str, Any] = msgspec.to_builtins(views.phone_call(ask.world, call))
    base: dict[str, Any] = msgspec.to_builtins(Base())
    return {**base, "phoneCall": record, **(record if options.shows_top else {})}


def enroll(ask: Ask) -> Base:
    """Enroll the caller's voice.

    Spec: Endpoints 6; Rules per operation 3.
    """
    body = parse(ask.inbound.body, EnrollBody)
    call = _resolve(ask, ask.inbound.path_id, alternate=True)
    by, now = ask.session.requested_by, ask.world.clock()
    effects.enroll(ask.world, call, body.person_id, body.validation_type, body.notes, by, now)
    return Base()


def reject_voice(ask: Ask) -> Base:
    """Reject the caller's voice. Alternate ids are not resolved here.

    Spec: Endpoints 7; What the service does 5.
    """
    call = _resolve(ask, ask.inbound.path_id, alternate=False)
    effects.reject(ask.world, call, ask.session.requested_by, ask.world.clock())
    return Base()
