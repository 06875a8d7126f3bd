"""Pages as a logged-in person sees them, without the gate."""

from typing import Any

from fakeredis import FakeAsyncRedis, FakeServer
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.store.attempt_limiter import AttemptLimiter
from callkeeper.calls.store.audit_log import AuditLog
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.authorization import Doors, Gate
from callkeeper.desk.access.configured_logins import AdminLogin
from callkeeper.desk.access.emergency import EmergencyLogin
from callkeeper.desk.access.people import Accounts, Sessions
from callkeeper.desk.access.required_roles import rule_of
from callkeeper.desk.access.rights import Person, Role
from callkeeper.desk.access.visitor import Auditor, Visitor, with_note, with_visitor
from callkeeper.desk.signed_tokens import Signer

ANN = Person(id="ann", operator="ann", role=Role.ADMIN)


class SignedIn:
    """An application whose requests all come from one logged-in person. A test may replace the person.

    With an ``auditor`` their audit entries are written, as the gate does it.
    """

    def __init__(self, app: ASGIApp, forms: Signer, person: Person = ANN, *, auditor: Auditor | None = None) -> None:
        self._app = app
        self._forms = forms
        self.person = person
        self._auditor = auditor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the person who sent it."""
        scope = with_visitor(scope, Visitor(self.person, self._forms))
        if self._auditor is not None:
            note = self._auditor.note(self.person, *rule_of(scope["method"], scope["path"]), "")
            scope, send = with_note(scope, note), self._auditor.listening(send, note)
        await self._app(scope, receive, send)


def gate_of(
    app: ASGIApp,
    login: AdminLogin | None,
    log: FilteringBoundLogger,
    *,
    limiter: AttemptLimiter | None = None,
    redis: Any = None,
) -> Gate:
    """Return a gate in front of an application, by default with a Redis of its own.

    Args:
        app: The application.
        login: The shared login.
        log: Where refusals are logged.
        limiter: Counts wrong logins; by default one of its own.
        redis: Where sessions and the audit log are.
    """
    if redis is None:
        redis = FakeAsyncRedis(server=FakeServer())
    audit = AuditLog(redis, keys=Keys())
    shared = EmergencyLogin(login, redis, audit, keys=Keys()) if login is not None else None
    accounts = Accounts(redis, keys=Keys(), shared=shared.account if shared else None)
    limiter = AttemptLimiter() if limiter is None else limiter
    doors = Doors(sessions=Sessions(accounts), shared=shared, limiter=limiter, auditor=Auditor(audit), log=log)
    return Gate(app, doors)
