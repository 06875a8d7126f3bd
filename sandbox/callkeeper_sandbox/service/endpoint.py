"""The twelve endpoints over HTTP: receive, choose a fault, authenticate, apply, answer.

Spec: Endpoints.
"""

from collections.abc import Callable

import msgspec
from starlette.datastructures import Headers, QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from callkeeper_sandbox.service import institution_operations, operations, tokens
from callkeeper_sandbox.service.access import (
    OF_RESELLERS,
    Ask,
    Inbound,
    Operation,
    Session,
    authenticate,
    authorize,
    surplus_headers,
)
from callkeeper_sandbox.service.answers import (
    BUSY,
    UNAUTHORIZED,
    UNSERVED,
    ProblemError,
    RefusedError,
    Reply,
    UnauthorizedError,
    reply,
)
from callkeeper_sandbox.service.connection import line_of
from callkeeper_sandbox.service.distortion import SILENCES, distort, transmit
from callkeeper_sandbox.service.effects import happen_now
from callkeeper_sandbox.service.faults import Action, Fault, Matter
from callkeeper_sandbox.service.forms import written
from callkeeper_sandbox.service.ledger import Arrival
from callkeeper_sandbox.service.service import Sandbox
from callkeeper_sandbox.service.state import Call
from callkeeper_sandbox.service.world import World

_Rule = Callable[[Ask], object]

_RULES: dict[Operation, _Rule] = {
    Operation.USER_TOKEN: operations.request_user_token,
    Operation.QUEUE: operations.queue,
    Operation.ASSIGN: operations.assign,
    Operation.CHECK: operations.details,
    Operation.READ: operations.details,
    Operation.ENROLL: operations.enroll,
    Operation.REJECT_VOICE: operations.reject_voice,
    Operation.INSTITUTIONS: institution_operations.list_all,
    Operation.ADD_INSTITUTION: institution_operations.add,
    Operation.INSTITUTION: institution_operations.get,
    Operation.UPDATE_INSTITUTION: institution_operations.update,
    Operation.LOGIN_AS: institution_operations.login_as,
}
_ENDPOINTS = (
    ("POST", "/token/request", Operation.TOKEN),
    ("POST", "/token/request/user", Operation.USER_TOKEN),
    ("GET", "/calls/queue", Operation.QUEUE),
    ("POST", "/calls/assign", Operation.ASSIGN),
    ("GET", "/calls/{id:path}/details", Operation.READ),
    ("POST", "/calls/{id:path}/enroll", Operation.ENROLL),
    ("POST", "/calls/{id:path}/reject-voice", Operation.REJECT_VOICE),
    ("GET", "/institutions", Operation.INSTITUTIONS),
    ("POST", "/institutions", Operation.ADD_INSTITUTION),
    ("GET", "/institutions/{id:path}", Operation.INSTITUTION),
    ("PUT", "/institutions/{id:path}", Operation.UPDATE_INSTITUTION),
    ("POST", "/institutions/{id:path}/login", Operation.LOGIN_AS),
)
_NO_FAULT = Fault(target="*")
_OF_CALLS = frozenset({Operation.ASSIGN, Operation.CHECK, Operation.READ, Operation.ENROLL, Operation.REJECT_VOICE})


def routes(sandbox: Sandbox) -> list[Route]:
    """Return the routes under `/external`."""
    return [
        Route(f"/external{path}", Endpoint(sandbox, operation), methods=[method])
        for method, path, operation in _ENDPOINTS
    ]


class Endpoint:
    """One endpoint as an ASGI application."""

    def __init__(self, sandbox: Sandbox, operation: Operation) -> None:
        self._sandbox = sandbox
        self._operation = operation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. If the client disconnects before its request is complete, nothing is recorded."""
        try:
            inbound = await self._receive(scope, receive)
        except ClientDisconnect:
            return
        await Exchange(self._sandbox, inbound).run(scope, receive, send)

    async def _receive(self, scope: Scope, receive: Receive) -> Inbound:
        query = QueryParams(scope["query_string"])
        operation = self._operation
        if operation is Operation.READ and query.get("checkVoiceAuthentication", "").lower() == "true":
            operation = Operation.CHECK
        return Inbound(
            operation=operation,
            path_id=scope["path_params"].get("id"),
            query=query,
            headers=Headers(scope=scope),
            body=await Request(scope, receive).body(),
        )


class Exchange:
    """The handling of one request."""

    def __init__(self, sandbox: Sandbox, inbound: Inbound) -> None:
        self._sandbox = sandbox
        self._inbound = inbound
        sandbox.tick()
        self._given_id, self._call = _named(sandbox.world, inbound)
        self._filed_under = self._call.voice_id if self._call else self._given_id
        self._arrival = self._arrive()
        self._fault = self._meet_fault()

    def _arrive(self) -> Arrival:
        sandbox, inbound = self._sandbox, self._inbound
        arrival = Arrival(
            number=0,
            operation=inbound.operation,
            at=sandbox.world.clock(),
            monotonic_s=sandbox.monotonic(),
            institution_key=inbound.headers.get("institutionkey", ""),
            requested_by=inbound.headers.get("requestedby", ""),
            voice_id=self._given_id,
        )
        sandbox.ledger.arrive(arrival, self._filed_under)
        sandbox.ledger.note_surplus(inbound.operation, surplus_headers(inbound))
        return arrival

    def _meet_fault(self) -> Fault:
        known = {self._call.voice_id, self._call.alternate_id} if self._call else set()
        given = {self._given_id} if self._given_id else set()
        inbound = self._inbound
        about = (inbound.path_id or "") if inbound.operation in OF_RESELLERS else self._arrival.institution_key
        matter = Matter(inbound.operation, about, frozenset(known | given))
        fault = self._sandbox.faults.take(matter)
        if fault is None:
            return _NO_FAULT
        self._arrival.fault = fault.action
        return fault

    async def run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or fail as scripted."""
        fault, line = self._fault, line_of(scope)
        if fault.latency_s:
            await self._sandbox.sleep(fault.latency_s)
            self._sandbox.tick()
        answer = self._turned_away() or distort(self._written(self._serve()), fault)
        self._settle(answer)
        if answer is None:
            await SILENCES[fault.action](line, receive)
            return
        is_truncated = fault.action is Action.TRUNCATED
        await transmit(answer, send, is_truncated=is_truncated)
        if is_truncated:
            await line.close(receive)

    def _settle(self, answer: Reply | None) -> None:
        """Complete the arrival in the ledger before the first byte of the answer."""
        self._arrival.status = answer.status if answer is not None else None
        self._sandbox.ledger.settle(self._arrival, self._filed_under)
        self._sandbox.pusher.pump()

    def _turned_away(self) -> Reply | None:
        """Return the answer to a request that is refused unread, because there are too many."""
        return None if self._sandbox.admits() else reply(BUSY, 429)

    def _written(self, answer: Reply) -> Reply:
        return msgspec.structs.replace(answer, body=written(answer.body, self._sandbox.world.options))

    def _serve(self) -> Reply:
        """Return the service's answer, before a fault changes it."""
        try:
            answer = self._admitted()
        except UnauthorizedError:
            return reply(UNAUTHORIZED, 401)
        except RefusedError as refused:
            self._arrival.success = False
            return reply(refused.answer(), self._sandbox.world.options.refusal_status(refused.code or ""))
        except ProblemError as error:
            self._arrival.success = False
            return reply(error.problem, 400, "application/problem+json")
        return reply(answer)

    def _admitted(self) -> object:
        """Authenticate, then apply unless the fault comes first."""
        fault, arrival, world = self._fault, self._arrival, self._sandbox.world
        if fault.happening is not None and self._call is not None:
            happen_now(world, self._call, fault.happening)
        if fault.action is Action.UNAUTHORIZED and not fault.is_applied:
            raise UnauthorizedError
        if fault.turns_away:
            return UNSERVED
        session = authenticate(world, self._sandbox.credentials, self._inbound)
        arrival.authenticated = True
        if not fault.is_applied:
            return UNSERVED
        answer = self._apply(session)
        arrival.success = arrival.applied = True
        if fault.action is Action.UNAUTHORIZED:
            raise UnauthorizedError
        return answer

    def _apply(self, session: Session) -> object:
        world, inbound = self._sandbox.world, self._inbound
        ask = Ask(world, session, inbound)
        if inbound.operation is Operation.TOKEN:
            return operations.request_token(ask, self._sandbox.credentials)
        authorize(world, session, inbound.operation)
        answer = _RULES[inbound.operation](ask)
        tokens.slide(world.state, session.token, world.clock())
        return answer


class _NamesACall(msgspec.Struct, rename="camel"):
    voice_id: str | None = None
    phone_number: str | None = None


def _named(world: World, inbound: Inbound) -> tuple[str | None, Call | None]:
    """Return the id by which a request names a call, and the call. An assign may name it only by phone number."""
    if inbound.operation not in _OF_CALLS:
        return None, None
    if inbound.operation is not Operation.ASSIGN:
        return inbound.path_id, world.any_call(inbound.path_id or "")
    try:
        named = msgspec.json.decode(inbound.body, type=_NamesACall)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, None
    if named.phone_number:
        return None, world.by_phone(inbound.headers.get("institutionkey", ""), named.phone_number)
    return named.voice_id, world.any_call(named.voice_id or "")
