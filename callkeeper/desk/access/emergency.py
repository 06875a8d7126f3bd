"""The login of ``CALLKEEPER_ADMIN``: for emergencies, and for `make run` on this machine."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import ResponseError
from starlette.requests import HTTPConnection

from callkeeper.calls.store.audit_log import AuditEntry, AuditEvent, AuditLog
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.configured_logins import AdminLogin
from callkeeper.desk.access.people import SHARED, Account
from callkeeper.desk.access.rights import Role, operator_in
from callkeeper.desk.access.visitor import origin_of
from callkeeper.service.config import is_loopback

SHOWN: Final = timedelta(hours=24)
"""How long the board shows that it was used."""

_NOTED_EVERY_S: Final = 900.0

_BY_A_ROUTER: Final = ("x-forwarded-for", "forwarded", "via")


def is_on_loopback(request: HTTPConnection) -> bool:
    """Tell whether a browser on this machine sent a request to its loopback address, through no router."""
    if any(name in request.headers for name in _BY_A_ROUTER):
        return False
    return is_loopback(origin_of(request)) and is_loopback(request.url.hostname or "")


class EmergencyLogin:
    """The shared login: its user, and a record of its uses."""

    def __init__(self, login: AdminLogin, redis: Redis, audit: AuditLog, *, keys: Keys) -> None:
        self.login = login
        self.account = Account(
            id=f"{SHARED}{login.user}",
            operator=operator_in(login.user),
            role=Role.ADMIN,
            stamp=login.key_for("sessions").hex(),
            changed_at=datetime.now(UTC),
        )
        self._redis = in_bytes(redis)
        self._audit = audit
        self._key = keys.emergency_login
        self._noted_at: dict[str, float] = {}

    async def note_use(self, request: HTTPConnection) -> None:
        """Record a use, once in a quarter of an hour for each address. Outside this machine each is an incident.

        While Redis refuses writes, an address whose use was recorded within a day is let in: somebody must see why.

        Raises:
            redis.exceptions.RedisError: Nobody is let in while Redis is away, or if the use was not recorded.
        """
        origin, now_s = origin_of(request), time.monotonic()
        self._noted_at = {one: at_s for one, at_s in self._noted_at.items() if now_s - at_s < SHOWN.total_seconds()}
        noted_at_s = self._noted_at.get(origin)
        try:
            if noted_at_s is not None and now_s - noted_at_s < _NOTED_EVERY_S:
                await self._redis.ping()
                return
            await self._write(origin, is_alarming=not is_on_loopback(request))
        except ResponseError:
            if noted_at_s is None:
                raise
        else:
            self._noted_at[origin] = now_s

    async def _write(self, origin: str, *, is_alarming: bool) -> None:
        event = AuditEvent.EMERGENCY_LOGIN if is_alarming else AuditEvent.LOGIN
        await self._audit.write(
            AuditEntry(event=event, who=self.account.id, operator=self.account.operator, origin=origin)
        )
        if is_alarming:
            await self._redis.set(self._key, datetime.now(UTC).isoformat(timespec="seconds"), ex=SHOWN)
