"""The SSO token in Redis, shared by all processes of the group.

There are three keys: the token, which expires with its lifetime; the gate, which says who may log in and when; and the
refusals, which say which operations of which institutions get 401 although the token is good. Every operation is one
script (``calls/lua/token_*.lua``): atomic, timed by Redis, and idempotent, because the Redis client may repeat it.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

import msgspec
from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from callkeeper.calls.claimed_item import instant
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import KEYS, Keys
from callkeeper.calls.store.script import Script
from callkeeper.service.config import MAX_RETRY_AFTER_S, LoginPolicy
from callkeeper.service.endpoints import institution_of, operation_of
from callkeeper.service.secret import Secret
from callkeeper.service.tokens import (
    ALIVE_S,
    FIRST_WAIT_S,
    OVERTAKE_S,
    PROBE_EVERY_S,
    SUSPICION_S,
    TOKEN_TTL_S,
    Login,
    LoginGranted,
    LoginPending,
    LoginShut,
    LoginTurn,
    Refusal,
    Shut,
    SsoToken,
)

_Name = Literal["load", "slide", "refuse", "clear", "probe", "claim", "save", "fail"]


class RedisTokenStore:
    """A `callkeeper.service.tokens.TokenStore` in Redis.

    Args:
        redis: May decode answers or not.
        keys: The names of our keys.
        clock: Seconds, instead of Redis's own clock; for tests.

    Raises:
        redis.exceptions.RedisError: By every method, if Redis is down or refuses writes.
    """

    def __init__(self, redis: Redis, keys: Keys = KEYS, *, clock: Callable[[], float] | None = None) -> None:
        self._known = {name: _script(keys, name) for name in get_args(_Name)}
        self._scripts = {name: AsyncScript(redis, script.source) for name, script in self._known.items()}
        self._claimer_key = keys.claimer(secrets.token_hex(8))
        self._calls = 0
        self._clock = clock

    async def load(self) -> SsoToken | None:
        """Return the token unless it has expired."""
        return _maybe_token(await self._run("load"))

    async def slide(self, generation: str, *, min_interval_s: float) -> None:
        """Extend the expiry. The first time, mark the token as proven and open the gate."""
        await self._run("slide", generation=generation, opens_after_ms=_ms(min_interval_s))

    async def refuse(self, generation: str, scope: str) -> Refusal:
        """Record a 401. Bar the scope if the previous token was refused for it as well."""
        is_current, is_proven, barred_ms, is_news = await self._run(
            "refuse",
            generation=generation,
            scope=scope,
            within_ms=_ms(SUSPICION_S),
            wait_ms=_ms(FIRST_WAIT_S),
            alive_ms=_ms(ALIVE_S),
            institution=institution_of(scope),
        )
        barred_s = None if barred_ms < 0 else barred_ms / 1000
        return Refusal(bool(is_current), bool(is_proven), barred_s, bool(is_news))

    async def clear(self, scope: str) -> bool:
        """Forget a refusal, and let the institution's other barred scopes be tried."""
        return bool(await self._run("clear", scope=scope, institution=institution_of(scope)))

    async def probe(self, scope: str) -> float | None:
        """Let one request at a time try a barred scope."""
        wait_ms = await self._run("probe", scope=scope, shortest_ms=_ms(FIRST_WAIT_S))
        return None if wait_ms is None else wait_ms / 1000

    async def claim_login(self, nonce: str, *, instead_of: str | None, lease_s: float, account: str = "") -> LoginTurn:
        """Return a usable token, the right to log in, or why there is neither."""
        return _turn(
            await self._run(
                "claim",
                nonce=nonce,
                other_than=instead_of or "",
                lease_ms=_ms(lease_s),
                lease_after_failure_ms=_ms(min(lease_s, OVERTAKE_S)),
                account=account,
            )
        )

    async def save_login(self, nonce: str, login: Login, *, pause_s: float) -> SsoToken | None:
        """Store the token of the process that may log in."""
        institutions = msgspec.json.encode(sorted(login.institution_keys))
        value, pause_ms = login.value.reveal(), _ms(pause_s)
        return _maybe_token(
            await self._run("save", nonce=nonce, value=value, institutions=institutions, pause_ms=pause_ms)
        )

    async def fail_login(self, nonce: str, reason: Shut, *, pause_s: float, account: str = "") -> None:
        """Close the gate for the process that may log in."""
        await self._run("fail", nonce=nonce, reason=str(reason), pause_ms=_ms(pause_s), account=account)

    async def _run(self, name: _Name, **given: str | bytes | int) -> Any:
        now = "" if self._clock is None else _ms(self._clock())
        self._calls += 1
        given |= {"claimer_key": self._claimer_key, "number": self._calls}
        return await self._scripts[name](*self._known[name].arguments(now, given))


@dataclass(frozen=True, slots=True)
class Barred:
    """An operation of an institution that gets 401 although the token is good, and since when."""

    institution_key: str
    operation: str
    since: datetime


async def barred_scopes(redis: Redis, keys: Keys = KEYS) -> list[Barred]:
    """Return what is barred, the longest first."""
    client = in_bytes(redis)
    return barred_of(await client.hgetall(keys.refused))


def barred_of(stored: Mapping[bytes, bytes]) -> list[Barred]:
    """Read stored refusals, the longest first."""
    found = []
    for scope, refusal in stored.items():
        since_ms = int(_text(refusal).split(" ")[3])
        if since_ms:
            name, since = _text(scope), instant(since_ms)
            found.append(Barred(institution_of(name), operation_of(name), since))
    return sorted(found, key=lambda barred: barred.since)


def _script(keys: Keys, name: _Name) -> Script:
    waits = {
        "TOKEN_TTL_MS": TOKEN_TTL_S,
        "PROBE_EVERY_MS": PROBE_EVERY_S,
        "LONGEST_SHUT_MS": MAX_RETRY_AFTER_S,
        "LONGEST_REFUSED_MS": LoginPolicy().max_pause_s,
    }
    constants = {constant: _ms(wait_s) for constant, wait_s in waits.items()}
    return Script(keys, f"token_{name}", constants=constants)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _turn(reply: list[Any]) -> LoginTurn:
    match _text(reply[0]):
        case "token":
            return _token(reply)
        case "granted":
            return LoginGranted(int(reply[1]))
        case "pending":
            return LoginPending()
        case "shut":
            return LoginShut(Shut(_text(reply[1])), int(reply[2]) / 1000)
        case kind:
            raise ValueError(f"token_claim.lua answered {kind}")


def _maybe_token(reply: list[Any] | None) -> SsoToken | None:
    return None if reply is None else _token(reply)


def _token(reply: list[Any]) -> SsoToken:
    _, generation, value, institutions, age_ms, is_proven, barred = reply
    return SsoToken(
        generation=_text(generation),
        value=Secret(_text(value)),
        institution_keys=msgspec.json.decode(institutions, type=frozenset[str]),
        age_s=int(age_ms) / 1000,
        is_proven=_text(is_proven) == "1",
        barred={_text(scope): int(ms) / 1000 for scope, ms in zip(barred[::2], barred[1::2], strict=True)},
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
