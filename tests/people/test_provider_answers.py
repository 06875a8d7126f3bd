"""Answers of an identity provider that are too long, too slow, or lead elsewhere."""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from redis.asyncio import Redis
from starlette.datastructures import QueryParams

from callkeeper.calls.store.breakers import ACCOUNT
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_errors import ErrorArea, parse_errors
from callkeeper.desk.access.configured_logins import Grant, OidcConfig
from callkeeper.desk.access.oidc import LONGEST_ANSWER, WITHIN_S, Provider, ProviderAway, ProviderRefused
from callkeeper.desk.access.rights import Role
from callkeeper.service import Secret
from tests.waiting import until_async

FAR_TOO_LONG = 400 * LONGEST_ANSWER
ANSWERS = ["/.well-known/openid-configuration", "/token", "/jwks"]


@dataclass
class Misbehaving:
    """A provider of which one answer is wrong: ``path`` says which, ``how`` says how."""

    port: int = 0
    path: str = ""
    how: str = ""
    scopes: object = None
    sent: int = 0
    asked: list[str] = field(default_factory=list)
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def issuer(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readline()).split()[1].decode()
        self.asked.append(path)
        writer.write(b"HTTP/1.1 ")
        if path != self.path:
            addresses = {"authorization_endpoint": "/auth", "token_endpoint": "/token", "jwks_uri": "/jwks"}
            about = {name: self.issuer + address for name, address in addresses.items()}
            whole = {"issuer": self.issuer, "id_token": "a.b.c", "keys": [], **about, "scopes_supported": self.scopes}
            writer.write(b"200 OK\r\nConnection: close\r\n\r\n" + json.dumps(whole).encode())
        else:
            await self._misbehave(writer)
        await writer.drain()

    async def _misbehave(self, writer: asyncio.StreamWriter) -> None:
        if self.how == "elsewhere":
            writer.write(b"307 Temporary Redirect\r\nConnection: close\r\nLocation: /elsewhere\r\n\r\n")
        elif self.how.startswith("40"):
            error = json.dumps({"error": self.how[4:]}).encode()
            writer.write(self.how[:3].encode() + b" Refused\r\nConnection: close\r\n\r\n" + error)
        elif self.how == "no json":
            writer.write(b"200 OK\r\nConnection: close\r\n\r\n<html>Down</html>")
        elif self.how == "another issuer":
            writer.write(b'200 OK\r\nConnection: close\r\n\r\n{"issuer": "https://another.example"}')
        elif self.how == "packed":
            body = gzip.compress(b'{"a":"' + b"x" * 20 * LONGEST_ANSWER + b'"}')
            writer.write(b"200 OK\r\nConnection: close\r\nContent-Encoding: gzip\r\n\r\n" + body)
        else:
            piece, pause_s = (b" " * 65536, 0.0) if self.how == "endless" else (b" ", 0.2)
            writer.write(b"200 OK\r\nConnection: close\r\n\r\n")
            while self.sent < FAR_TOO_LONG:
                writer.write(piece)
                await writer.drain()
                self.sent += len(piece)
                await asyncio.sleep(pause_s)


@pytest.fixture
async def misbehaving() -> AsyncIterator[Misbehaving]:
    """Run such a provider."""
    found = Misbehaving()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found
        for task in found.tasks:
            task.cancel()
        await asyncio.gather(*found.tasks, return_exceptions=True)


def provider_of(redis: Redis, misbehaving: Misbehaving) -> Provider:
    """Return a client of the provider."""
    config = OidcConfig(
        issuer=misbehaving.issuer,
        client_id="callkeeper",
        client_secret=Secret("canary-client-5d0b7f2c91-4c07a65e93d2"),
        redirect_uri="https://desk.example/login/callback",
        role_claim="groups",
        operator_claim="name",
        grants=(Grant(value="x", role=Role.VIEWER),),
    )
    return Provider(config, redis, keys=Keys())


async def log_in(redis: Redis, misbehaving: Misbehaving) -> None:
    """Log in up to the keys, with an invented code."""
    provider = provider_of(redis, misbehaving)
    _, state = await provider.begin("")
    await provider.finish(QueryParams({"state": state, "code": "x"}), state)


@pytest.mark.parametrize(
    ("offered", "scope"),
    [
        (None, "openid profile"),
        (["openid", "profile", "email"], "openid profile"),
        (["groups", "email"], "openid profile groups"),
        ("groups", "openid profile"),
        ([{}, "groups"], "openid profile groups"),
    ],
)
async def test_login_asks_for_the_scope_that_is_called_as_our_claim(
    offered: object, scope: str, redis: Redis, misbehaving: Misbehaving
) -> None:
    """If the provider has one: some send groups only to those who ask for them, and others refuse unknown scopes."""
    misbehaving.scopes = offered
    address, _ = await provider_of(redis, misbehaving).begin("")
    assert parse_qs(urlsplit(address).query)["scope"] == [scope]


@pytest.mark.parametrize("path", ANSWERS)
async def test_answer_without_end_is_not_read_to_its_end(path: str, redis: Redis, misbehaving: Misbehaving) -> None:
    """Of metadata, tokens and keys that never end, little more is read than a real answer can have."""
    misbehaving.path, misbehaving.how = path, "endless"
    with pytest.raises(ProviderAway):
        await log_in(redis, misbehaving)
    assert misbehaving.sent < 20 * LONGEST_ANSWER
    assert await last_error(redis) == "an answer of over 1 MiB", "the time limit ended it"


async def test_compressed_answer_is_not_unpacked(redis: Redis, misbehaving: Misbehaving) -> None:
    """An answer that is short until it is unpacked is refused as it is: none was asked for."""
    misbehaving.path, misbehaving.how = "/jwks", "packed"
    with pytest.raises(ProviderAway, match="as it should"):
        await log_in(redis, misbehaving)


async def test_slow_answer_is_given_up(redis: Redis, misbehaving: Misbehaving) -> None:
    """The time limit is for the whole answer: one that sends a byte now and then does not extend it."""
    misbehaving.path, misbehaving.how = "/token", "slow"
    began = time.monotonic()
    with pytest.raises(ProviderAway):
        await log_in(redis, misbehaving)
    assert WITHIN_S - 1 < time.monotonic() - began < WITHIN_S + 10


async def test_strangers_together_ask_the_provider_once(redis: Redis, misbehaving: Misbehaving) -> None:
    """However many open the login page at once, its metadata is asked for once, also if the first of them leaves."""
    misbehaving.path, misbehaving.how = ANSWERS[0], "slow"
    provider = provider_of(redis, misbehaving)
    first, *others = (asyncio.create_task(provider.about()) for _ in range(100))
    await until_async(lambda: misbehaving.asked)
    first.cancel()
    answers = await asyncio.gather(first, *others, return_exceptions=True)
    assert {type(answer) for answer in answers[1:]} == {ProviderAway}
    assert len(misbehaving.asked) == 1


@pytest.mark.parametrize("path", ANSWERS)
async def test_provider_cannot_send_us_elsewhere(path: str, redis: Redis, misbehaving: Misbehaving) -> None:
    """Redirects of metadata, tokens and keys are not followed: the client's secret goes to listed addresses only."""
    misbehaving.path, misbehaving.how = path, "elsewhere"
    with pytest.raises((ProviderAway, ProviderRefused)):
        await log_in(redis, misbehaving)
    assert "/elsewhere" not in misbehaving.asked


async def last_error(redis: Redis) -> str:
    """Return what the doctor shows of the provider, without its address; empty if nothing."""
    client: Any = redis
    error = parse_errors([await client.hgetall(Keys().errors)], datetime.now(UTC)).get((ErrorArea.PROVIDER, ACCOUNT))
    return error.words.partition(": ")[2] if error is not None else ""


@pytest.mark.parametrize(
    ("path", "how", "words"),
    [
        (ANSWERS[0], "another issuer", "not the metadata of this issuer"),
        (ANSWERS[0], "no json", "no JSON object"),
        ("/jwks", "no json", "no JSON object"),
        ("/token", "401 invalid_client", "status 401"),
        ("/token", "400 invalid_client", "status 400"),
        (ANSWERS[0], "400 invalid_grant", "status 400"),
        ("/token", "400 invalid_grant", ""),
        ("/token", "400 invalid_request", ""),
    ],
)
async def test_wrong_answer_is_told_to_the_doctor(
    path: str, how: str, words: str, redis: Redis, misbehaving: Misbehaving
) -> None:
    """Whatever keeps everybody out. That a code is refused is not told: a stranger can invent one."""
    misbehaving.path, misbehaving.how = path, how
    with pytest.raises((ProviderAway, ProviderRefused)):
        await log_in(redis, misbehaving)
    assert await last_error(redis) == words
