"""Desk tokens, by which software uses the desk: issued by a command, or minted for one agent.

Redis holds the SHA-256 of a token. A token is 256 random bits, so no slow hash is needed. Issuing and
revoking take effect at the next request.

A back end mints a token for one agent's page with its own desk token. It has fewer rights, lasts minutes, and is valid only
as long as the token that it was minted with: withdrawing that one withdraws both.
"""

import secrets
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

import msgspec
from redis.asyncio import Redis

from callkeeper.calls.store.attempt_limiter import AttemptLimiter
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.access_changes import note_change
from callkeeper.desk.access.rights import Rights, Role
from callkeeper.service.secret import Secret

MAX_CREDENTIALS: Final = 512
"""How many bytes of an Authorization header are compared; no token is as long."""

ISSUED: Final = b"ckt_"
"""Prefix of issued tokens. Anything else is not looked up in Redis, except `MINTED`."""

MINTED: Final = b"cka_"
"""Prefix of tokens that were minted for one agent."""

_USED_EVERY_S: Final = 60
"""Seconds between two updates of the last use."""


class NamedRights(Rights, frozen=True, kw_only=True):
    """The rights of a token by its name. ``operators``: whom it may speak for (None: anybody)."""

    name: str
    operators: frozenset[str] | None = None


class DeskToken(NamedRights, frozen=True, kw_only=True):
    """One token, with its SHA-256."""

    role: Role = Role.SUPERVISOR
    secret: Secret
    agent: str | None = None
    """The operator whose page holds it, if it was minted; ``name`` is then that of the token it was minted with."""
    expires_at: datetime | None = None

    @property
    def holder(self) -> str:
        """Return who is counted in quotas and owns idempotency keys: each agent for themselves."""
        return self.name if self.agent is None else f"{self.name} {self.agent}"

    def covers(self, operator: str, institutions: frozenset[str]) -> bool:
        """Tell whether this token may be used for an operator at some institutions."""
        speaks_for = self.operators is None or operator in self.operators
        return speaks_for and self.may(Role.AGENT) and all(map(self.may_see, institutions))


class IssuedToken(NamedRights, frozen=True, kw_only=True, omit_defaults=True):
    """What Redis holds of an issued token, under its SHA-256."""

    issued_at: datetime
    expires_at: datetime | None = None


class MintedToken(msgspec.Struct, frozen=True, kw_only=True):
    """What Redis holds of a token for one agent. ``minted_with``: the SHA-256 of the other token."""

    minted_with: str
    operator: str
    institutions: frozenset[str]
    expires_at: datetime


class DeskTokens:
    """Every token: issued by ``callkeeper tokens``, or minted at the desk."""

    def __init__(self, redis: Redis, *, keys: Keys) -> None:
        self._redis = in_bytes(redis)
        self._keys = keys
        self._uses = AttemptLimiter(allowed=1, every_s=_USED_EVERY_S)

    async def recognise(self, authorization: bytes) -> DeskToken | None:
        """Return the token of an Authorization header (``Bearer ...``); None if it is unknown.

        Raises:
            redis.exceptions.RedisError: Redis is away.
        """
        scheme, _, offered = authorization[:MAX_CREDENTIALS].partition(b" ")
        offered = offered.strip()
        if scheme.lower() != b"bearer":
            return None
        return await self._minted(_digest(offered)) if offered.startswith(MINTED) else await self._issued(offered)

    async def by_name(self, name: str) -> DeskToken | None:
        """Return an issued token that has not expired.

        Raises:
            redis.exceptions.RedisError: Redis is away.
        """
        found = [(digest, issued) for digest, issued in await self._all() if issued.name == name]
        return _token(*found[0], datetime.now(UTC)) if found else None

    async def is_good(self, token: DeskToken) -> bool:
        """Tell whether a token is still valid, with the same rights."""
        if token.agent is not None:
            return await self._minted(token.secret.reveal()) == token
        return await self.by_name(token.name) == token

    async def issue(self, issued: IssuedToken) -> str:
        """Store a new token; return its value, which cannot be read again.

        Raises:
            ValueError: There is a token of this name.
        """
        if any(known.name == issued.name for _, known in await self._all()):
            raise ValueError("there is a token of this name; revoke it first")
        value = (ISSUED + secrets.token_urlsafe(32).encode()).decode()
        await self._redis.hset(self._keys.issued_tokens, _digest(value.encode()), msgspec.json.encode(issued))
        return value

    async def mint(self, token: DeskToken, operator: str, institutions: frozenset[str], *, valid_s: int) -> str:
        """Store a token for one agent; return its value, which cannot be read again. ``token`` must cover it."""
        value = MINTED + secrets.token_urlsafe(32).encode()
        minted = MintedToken(
            minted_with=token.secret.reveal(),
            operator=operator,
            institutions=institutions,
            expires_at=datetime.now(UTC) + timedelta(seconds=valid_s),
        )
        await self._redis.set(self._keys.agent_token(_digest(value)), msgspec.json.encode(minted), ex=valid_s)
        return value.decode()

    async def revoke(self, name: str) -> bool:
        """Revoke an issued token; tell whether there was one."""
        digests = [digest for digest, issued in await self._all() if issued.name == name]
        for digest in digests:
            await self._redis.hdel(self._keys.issued_tokens, digest)
        await self._redis.hdel(self._keys.issued_tokens_used, name)
        await note_change(self._redis, self._keys)
        return bool(digests)

    async def known(self) -> list[tuple[IssuedToken, datetime | None]]:
        """Return every issued token and when it was used last, by name."""
        used = await self._redis.hgetall(self._keys.issued_tokens_used)
        instants = {name.decode(): datetime.fromisoformat(at.decode()) for name, at in used.items()}
        return sorted(
            ((issued, instants.get(issued.name)) for _, issued in await self._all()), key=lambda pair: pair[0].name
        )

    async def _issued(self, offered: bytes) -> DeskToken | None:
        if not offered.startswith(ISSUED):
            return None
        digest = _digest(offered)
        stored = await self._redis.hget(self._keys.issued_tokens, digest)
        if stored is None:
            return None
        now = datetime.now(UTC)
        token = _token(digest, _ISSUED.decode(stored), now)
        if token is not None and not self._uses.count(token.name):
            await self._redis.hset(self._keys.issued_tokens_used, token.name, now.isoformat(timespec="seconds"))
        return token

    async def _minted(self, digest: str) -> DeskToken | None:
        """Return an agent's token by its SHA-256, if it is valid and the one it was minted with still covers it."""
        stored = await self._redis.get(self._keys.agent_token(digest))
        if stored is None:
            return None
        minted, now = msgspec.json.decode(stored, type=MintedToken), datetime.now(UTC)
        issued = await self._redis.hget(self._keys.issued_tokens, minted.minted_with)
        owner = None if issued is None else _token(minted.minted_with, _ISSUED.decode(issued), now)
        if owner is None or minted.expires_at <= now or not owner.covers(minted.operator, minted.institutions):
            return None
        return DeskToken(
            name=owner.name,
            role=Role.AGENT,
            institutions=minted.institutions,
            operators=frozenset({minted.operator}),
            secret=Secret(digest),
            agent=minted.operator,
            expires_at=minted.expires_at,
        )

    async def _all(self) -> list[tuple[str, IssuedToken]]:
        stored = await self._redis.hgetall(self._keys.issued_tokens)
        return [(digest.decode(), _ISSUED.decode(value)) for digest, value in stored.items()]


_ISSUED: Final = msgspec.json.Decoder(IssuedToken)


def _digest(value: bytes) -> str:
    return sha256(value).hexdigest()


def _token(digest: str, issued: IssuedToken, now: datetime) -> DeskToken | None:
    """Return an issued token, unless it has expired."""
    if issued.expires_at is not None and issued.expires_at <= now:
        return None
    rights = {name: getattr(issued, name) for name in NamedRights.__struct_fields__}
    return DeskToken(**rights, secret=Secret(digest))
