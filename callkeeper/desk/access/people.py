"""Accounts and sessions: who can log in, and who is logged in.

An account is a person whom the identity provider has let in, or the shared login of ``CALLKEEPER_ADMIN``. Its ``stamp``
changes with everything that a session depends on, so a changed role or a removal ends every session.

Redis holds a session under the SHA-256 of its cookie: reading Redis does not give a usable session.
"""

import hmac
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import asdict, replace
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from callkeeper.calls.store.in_bytes import RedisInBytes, in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.access_changes import note_change
from callkeeper.desk.access.rights import Person, Rights

IDLE: Final = timedelta(minutes=30)
"""Time without use after which a session ends. Every request and every open stream renews it."""

LONGEST: Final = timedelta(hours=12)
"""Time after which a session ends in any case. People who have left the provider lose access then."""

OIDC: Final = "oidc:"
"""Prefix of the ids of people whom an identity provider knows: ``oidc:SUBJECT@ISSUER``, the issuer without ``https://``."""

SHARED: Final = "shared:"
"""Prefix of the id that stands for the login of ``CALLKEEPER_ADMIN``."""


class Account(Rights, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody who can log in."""

    id: str
    operator: str
    stamp: str = ""
    changed_at: datetime

    @property
    def person(self) -> Person:
        return Person(id=self.id, operator=self.operator, role=self.role, institutions=self.institutions)


def id_at_provider(subject: str, issuer: str) -> str:
    """Return a person's id. The issuer belongs to it: another provider may give the same subject to somebody else."""
    return f"{OIDC}{subject}@{issuer.split('://', 1)[-1]}"


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts in Redis of everybody who can log in.

    Accounts of another issuer are not found, nor the users with passwords that releases before 0.6.0 stored.

    Attributes:
        issuer: The identity provider; None if there is none.
        shared: The account of ``CALLKEEPER_ADMIN``, which Redis does not hold; None if it is not set.
    """

    redis: Redis
    keys: Keys
    issuer: str | None = None
    shared: Account | None = None

    @property
    def client(self) -> RedisInBytes:
        return in_bytes(self.redis)

    async def find(self, account_id: str) -> Account | None:
        if self.shared is not None and account_id == self.shared.id:
            return self.shared
        stored = await self.client.hget(self.keys.people, account_id)
        if stored is None:
            return None
        end = id_at_provider("", self.issuer).removeprefix(OIDC) if self.issuer is not None else None
        is_theirs = end is not None and account_id.endswith(end)
        return msgspec.json.decode(stored, type=Account) if is_theirs else None

    async def keep(self, account: Account) -> Account:
        """Store an account. If it has changed, its sessions end."""
        stamped = replace(account, stamp=secrets.token_hex(8))
        await self.client.hset(self.keys.people, stamped.id, msgspec.json.encode(stamped))
        await note_change(self.client, self.keys)
        return stamped

    async def keep_of_provider(self, person: Person) -> Account:
        """Store the identity provider's claims about a person. Sessions continue unless something has changed."""
        known = await self.find(person.id)
        if known is not None and known.person == person:
            return known
        return await self.keep(Account(**asdict(person), changed_at=datetime.now(UTC)))

    async def remove(self, account_id: str) -> bool:
        """Remove an account and end its sessions; tell whether there was one."""
        is_removed = bool(await self.client.hdel(self.keys.people, account_id))
        await note_change(self.client, self.keys)
        return is_removed


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What Redis holds of a session."""

    account: str
    stamp: str
    began_at: datetime


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of everybody who is logged in; Redis holds them beside the accounts."""

    accounts: Accounts

    async def begin(self, account: Account) -> str:
        """Begin a session; return its cookie, always a new one."""
        cookie = secrets.token_urlsafe(32)
        record = SessionRecord(account=account.id, stamp=account.stamp, began_at=datetime.now(UTC))
        await self.accounts.client.set(self._key(cookie), msgspec.json.encode(record), ex=IDLE)
        return cookie

    async def renew(self, cookie: str) -> Person | None:
        """Return the person of a session and renew it; None if it is over."""
        stored = await self.accounts.client.get(self._key(cookie))
        if stored is None:
            return None
        record = msgspec.json.decode(stored, type=SessionRecord)
        account = await self.accounts.find(record.account)
        if account is not None and hmac.compare_digest(account.stamp, record.stamp):
            left = record.began_at + LONGEST - datetime.now(UTC)
            if left > timedelta(0):
                with suppress(ResponseError):  # Redis refuses writes: the session ends a little earlier
                    await self.accounts.client.pexpire(self._key(cookie), min(IDLE, left))
                return account.person
        await self.end(cookie)
        return None

    async def end(self, cookie: str) -> None:
        await self.accounts.client.delete(self._key(cookie))
        await note_change(self.accounts.client, self.accounts.keys)

    def _key(self, cookie: str) -> str:
        return self.accounts.keys.session(sha256(cookie.encode("utf-8", "replace")).hexdigest())
