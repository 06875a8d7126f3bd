"""The control interface under `/control`: set up data, change calls, read the ledger.

It is not part of the service. It uses JSON in snake case, HTTP 400 with a message for an invalid request, 404 for
something that does not exist, and 415 for a body that is not sent as JSON. `GET /control` lists it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callkeeper_sandbox.service import audit, variants
from callkeeper_sandbox.service.access import Credentials
from callkeeper_sandbox.service.effects import happen_now
from callkeeper_sandbox.service.faults import Fault
from callkeeper_sandbox.service.institutions import Core, InstitutionStatus
from callkeeper_sandbox.service.push import EVENT_TYPES
from callkeeper_sandbox.service.records import PersonType
from callkeeper_sandbox.service.service import Sandbox
from callkeeper_sandbox.service.state import Call, Child, Happening, PushSettings

_T = TypeVar("_T")


class ControlError(Exception):
    """A control request that cannot be carried out."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class InstitutionBody(_Body, kw_only=True):
    """An institution to add or replace; `owned` false makes it another reseller's."""

    name: str | None = None
    core: Core = Core.TYPE_A
    status: InstitutionStatus = InstitutionStatus.ACTIVE
    is_test_mode: bool = False
    has_voice_auth: bool = True
    owned: bool = True
    ignored: list[str] = []
    push: PushSettings | None = None


class MemberBody(_Body, kw_only=True):
    """A member to add. Other personal data is invented."""

    institution_key: str
    person_id: str
    phones: list[str]
    first_name: str = "Test"
    last_name: str = "Person"
    person_type: PersonType = PersonType.PRIMARY


class CallBody(_Body, kw_only=True):
    """A call to start now, with the script of what will happen to it."""

    institution_key: str
    phone_number: str
    script: list[Happening] = []
    voice_id: str | None = None
    alternate_id: str | None = None
    persons: list[dict[str, Any]] | None = None


class PushBody(_Body, kw_only=True):
    """Any payload to push unchanged: forged, malformed, repeated."""

    institution_key: str
    payload: Any


class SampleBody(_Body, kw_only=True):
    """A sample event to send."""

    institution_key: str
    type: str = "CallStart"


class PauseBody(_Body, kw_only=True):
    """Whether the scenario is paused."""

    is_paused: bool


Handler = Callable[["Control", Request], Awaitable[object]]


class Control:
    """The handlers. Each returns a value that is encoded as JSON."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    async def index(self, request: Request) -> object:
        """List the control interface."""
        return [f"{method} {path}: {(handler.__doc__ or '').splitlines()[0]}" for method, path, handler in _TABLE]

    async def put_institution(self, request: Request) -> object:
        """Add or replace an institution."""
        body = await _body(request, InstitutionBody)
        fields = msgspec.structs.asdict(body)
        ignored = fields.pop("ignored")
        child = self.sandbox.world.add_institution(request.path_params["key"], **fields)
        child.ignored = ignored
        return child

    async def put_push_settings(self, request: Request) -> object:
        """Set an institution's push address and headers."""
        child = self._child(request.path_params["key"])
        child.push = await _body(request, PushSettings)
        return child.push

    async def put_ignored(self, request: Request) -> object:
        """Set an institution's list of ignored numbers."""
        child = self._child(request.path_params["key"])
        child.ignored = await _body(request, list[str])
        return child.ignored

    async def add_member(self, request: Request) -> object:
        """Add a member with phone numbers and invented personal data."""
        body = await _body(request, MemberBody)
        self._child(body.institution_key)
        return self.sandbox.world.add_member(**msgspec.structs.asdict(body))

    async def add_call(self, request: Request) -> object:
        """Start a call with a script."""
        body = await _body(request, CallBody)
        self._child(body.institution_key)
        try:
            call = self.sandbox.start_call(**msgspec.structs.asdict(body))
        except ValueError as error:
            raise ControlError(400, str(error)) from error
        return self._account(call)

    async def list_calls(self, request: Request) -> object:
        """List the live calls."""
        live = self.sandbox.world.live.values()
        return [audit.account(self.sandbox, call, with_arrivals=False) for calls in live for call in calls.values()]

    async def get_call(self, request: Request) -> object:
        """Show one call, with every request that named it."""
        return self._account(self._call(request))

    async def happen(self, request: Request) -> object:
        """Change a call's state now."""
        call = self._call(request)
        happen_now(self.sandbox.world, call, await _body(request, Happening))
        return self._account(call)

    async def add_faults(self, request: Request) -> object:
        """Script a fault, or a list of faults."""
        body = await _body(request, Fault | list[Fault])  # type: ignore[arg-type]  # msgspec accepts a union as a type
        scripted = body if isinstance(body, list) else [body]
        return [self.sandbox.faults.add(fault) for fault in scripted]

    async def list_faults(self, request: Request) -> object:
        """List the scripted faults with how often each was met."""
        return self.sandbox.faults.scripted

    async def clear_faults(self, request: Request) -> object:
        """Lift all faults."""
        self.sandbox.faults.clear()
        return []

    async def clear_fault(self, request: Request) -> object:
        """Lift one fault."""
        self.sandbox.faults.clear(int(request.path_params["id"]))
        return self.sandbox.faults.scripted

    async def lapse_tokens(self, request: Request) -> object:
        """Let every SSO token lapse."""
        lapsed = len(self.sandbox.world.state.tokens)
        self.sandbox.world.state.tokens.clear()
        return {"lapsed": lapsed}

    async def push(self, request: Request) -> object:
        """Push any payload once, as it is."""
        body = await _body(request, PushBody)
        self._child(body.institution_key)
        return await self.sandbox.pusher.send(body.institution_key, body.payload)

    async def push_sample(self, request: Request) -> object:
        """Push a sample event."""
        body = await _body(request, SampleBody)
        self._child(body.institution_key)
        if body.type not in EVENT_TYPES:
            raise ControlError(400, f"type is one of {', '.join(EVENT_TYPES)}")
        return await self.sandbox.pusher.send_sample(body.institution_key, body.type)

    async def list_pushes(self, request: Request) -> object:
        """List the latest push attempts, oldest first."""
        return list(self.sandbox.pusher.attempts)

    async def put_credentials(self, request: Request) -> object:
        """Change the credentials of the login; issued tokens stay valid."""
        self.sandbox.credentials = await _body(request, Credentials)
        return {"email": self.sandbox.credentials.email}

    async def list_variants(self, request: Request) -> object:
        """List the open questions of the service's document, all variants, and those in force."""
        return {"chosen": self.sandbox.world.state.variants, "questions": variants.listed()}

    async def put_variants(self, request: Request) -> object:
        """Set the variants in force, for example ["page-capped"]; other questions get the usual answer."""
        try:
            self.sandbox.choose(await _body(request, list[str]))
        except variants.VariantError as error:
            raise ControlError(400, str(error)) from error
        return self.sandbox.world.state.variants

    async def put_scenario(self, request: Request) -> object:
        """Pause or resume the calls of the scenario: {"is_paused": true}."""
        scenario = self.sandbox.scenario
        if scenario is None:
            raise ControlError(404, "no scenario")
        if (await _body(request, PauseBody)).is_paused:
            scenario.pause()
        else:
            scenario.resume(self.sandbox.world.clock())
        return scenario.progress

    async def ledger(self, request: Request) -> object:
        """Show all calls with their counts; ?arrivals=true adds every request."""
        return audit.report(self.sandbox, with_arrivals=request.query_params.get("arrivals") == "true")

    async def arrivals(self, request: Request) -> object:
        """List the latest requests that named no call: logins, listings, institutions."""
        return self.sandbox.ledger.other_arrivals()

    async def summary(self, request: Request) -> object:
        """Show the totals."""
        return audit.summary(self.sandbox)

    def _account(self, call: Call) -> audit.Account:
        return audit.account(self.sandbox, call, with_arrivals=True)

    def _call(self, request: Request) -> Call:
        call = self.sandbox.world.any_call(request.path_params["id"])
        if call is None:
            raise ControlError(404, "no such call")
        return call

    def _child(self, key: str) -> Child:
        child = self.sandbox.world.state.institutions.get(key)
        if child is None:
            raise ControlError(404, "no such institution")
        return child


_TABLE: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/control", Control.index),
    ("PUT", "/control/institutions/{key}", Control.put_institution),
    ("PUT", "/control/institutions/{key}/push", Control.put_push_settings),
    ("PUT", "/control/institutions/{key}/ignored", Control.put_ignored),
    ("POST", "/control/members", Control.add_member),
    ("POST", "/control/calls", Control.add_call),
    ("GET", "/control/calls", Control.list_calls),
    ("GET", "/control/calls/{id:path}", Control.get_call),
    ("POST", "/control/calls/{id:path}/now", Control.happen),
    ("POST", "/control/faults", Control.add_faults),
    ("GET", "/control/faults", Control.list_faults),
    ("DELETE", "/control/faults", Control.clear_faults),
    ("DELETE", "/control/faults/{id:int}", Control.clear_fault),
    ("POST", "/control/tokens/lapse", Control.lapse_tokens),
    ("POST", "/control/push", Control.push),
    ("POST", "/control/push/sample", Control.push_sample),
    ("GET", "/control/push", Control.list_pushes),
    ("PUT", "/control/credentials", Control.put_credentials),
    ("GET", "/control/variants", Control.list_variants),
    ("PUT", "/control/variants", Control.put_variants),
    ("PUT", "/control/scenario", Control.put_scenario),
    ("GET", "/control/ledger", Control.ledger),
    ("GET", "/control/arrivals", Control.arrivals),
    ("GET", "/control/summary", Control.summary),
)


def routes(sandbox: Sandbox) -> list[Route]:
    """Return the routes under `/control`."""
    control = Control(sandbox)
    return [Route(path, _served(control, handler), methods=[method]) for method, path, handler in _TABLE]


def _served(control: Control, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        control.sandbox.tick()
        try:
            _hold_to_json(request, await request.body())
            return _json(await handler(control, request), 200)
        except ControlError as error:
            return _json({"error": str(error)}, error.status)
        finally:
            control.sandbox.pusher.pump()

    return serve


def _json(answer: object, status: int) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def _hold_to_json(request: Request, body: bytes) -> None:
    """Refuse a body that is not declared as JSON, because a form of another site could have sent it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if (body or kind) and kind != "application/json":
        raise ControlError(415, "the body must be sent as application/json: curl --json")


async def _body(request: Request, shape: type[_T]) -> _T:
    try:
        return msgspec.json.decode(await request.body(), type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ControlError(400, str(error)) from error
