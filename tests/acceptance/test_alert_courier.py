"""Sending alerts in child processes to receivers of every kind on this machine."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from callkeeper.app.alert_courier import AlertCourier
from callkeeper.app.cli import main
from callkeeper.app.parsing import alert_addresses
from callkeeper.calls.alerts import AlertMessage, AlertTone
from tests.waiting import until_async

SECRET = "canary-alert-0123456789"
PATIENCE_S = 100.0
"""The deadline where none is tested. Each child process imports apprise, which takes long on a busy machine."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


class Chat:
    """A receiver of alerts over HTTP, with a given answer."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") -> None:
        self.answer = answer
        self.got: list[dict[str, Any]] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Receive one message."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            self.got.append(json.loads(await reader.readexactly(length)))
            await self.reply(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def reply(self, writer: asyncio.StreamWriter) -> None:
        """Send the answer."""
        writer.write(self.answer)
        await writer.drain()


class Stuck(Chat):
    """A receiver that does not complete its answer until ``released`` is set. Then it drops the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()


class Silent(Stuck):
    """Receives a message and never answers."""

    async def reply(self, writer: asyncio.StreamWriter) -> None:
        """Wait."""
        await self.released.wait()


class Endless(Stuck):
    """Answers with an endless body, as fast as it is read."""

    async def reply(self, writer: asyncio.StreamWriter) -> None:
        """Answer endlessly."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n")
        while not self.released.is_set():
            writer.write(b"x" * 2**20)
            await writer.drain()


@asynccontextmanager
async def open_chat(chat: Chat) -> AsyncIterator[str]:
    """Run a receiver; yield its address for alerts."""
    server = await asyncio.start_server(chat.serve, "127.0.0.1", 0)
    chat.port = server.sockets[0].getsockname()[1]
    try:
        yield f"json://user:{SECRET}@127.0.0.1:{chat.port}/"
    finally:
        server.close()


def message(target: str = "1") -> AlertMessage:
    """Return a message."""
    return AlertMessage(target, "no_worker", is_over=False, tone=AlertTone.FAILURE, title="callkeeper: x", body="y")


async def bring(*urls: str, deadline_s: float = PATIENCE_S) -> list[str]:
    """Send a message to each address; return the targets that accepted it."""
    courier = AlertCourier(alert_addresses(", ".join(urls)), deadline_s=deadline_s)
    sent = [message(target.name) for target in courier.targets]
    refused = await courier.bring(sent)
    return [each.target for each in sent if each not in refused]


async def test_message_arrives_once() -> None:
    """Title, text and tone reach an address of apprise."""
    chat = Chat()
    async with open_chat(chat) as url:
        assert await bring(url) == ["1"]
    [got] = chat.got
    assert (got["title"], got["message"], got["type"]) == ("callkeeper: x", "y", "failure")


async def test_receiver_that_hangs_or_never_ends_delays_no_other() -> None:
    """A receiver that hangs, sends endlessly or is down does not delay the others.

    Here the first two are stuck until the last one has received its message.
    """
    chat, silent, endless = Chat(), Silent(), Endless()
    async with open_chat(silent) as first, open_chat(endless) as second, open_chat(chat) as third:
        addresses = (first, second, "json://127.0.0.1:1/", "nonsense://x", third)
        sending = asyncio.create_task(bring(*addresses))
        await until_async(lambda: chat.got and silent.got and endless.got)
        assert not sending.done()
        silent.released.set()
        endless.released.set()
        taken = await sending
    assert "5" in taken
    assert not {"1", "3", "4"} & set(taken)
    assert len(chat.got) == 1


async def test_deadline_ends_the_wait_for_a_receiver_that_hangs() -> None:
    """A message whose receiver has not answered at the deadline counts as not accepted."""
    silent, deadline_s = Silent(), 2.0
    async with open_chat(silent) as url:
        while not silent.got:  # on a busy machine the child needs longer than that to start
            courier = AlertCourier(alert_addresses(url), deadline_s=deadline_s)
            assert await courier.bring([message()]) == {message(): f"no answer within {deadline_s:g} s"}
            deadline_s *= 2
        silent.released.set()


class StuckLater(Silent):
    """Accepts one message, and does not answer the next."""

    async def reply(self, writer: asyncio.StreamWriter) -> None:
        """Answer the first message."""
        await (Chat if len(self.got) == 1 else Silent).reply(self, writer)


async def test_deadline_forgets_no_message_that_was_accepted() -> None:
    """A slow receiver accepts some messages until the deadline: only the others are sent again."""
    slow, deadline_s, sent = StuckLater(), 2.0, [message(), replace(message(), key="late")]
    async with open_chat(slow) as url:
        while len(slow.got) < len(sent):
            slow.got.clear()
            courier = AlertCourier(alert_addresses(f"{url}?rto=60"), deadline_s=deadline_s)
            refused = await courier.bring(sent)
            deadline_s *= 2
        slow.released.set()
    assert refused == {sent[1]: f"no answer within {deadline_s / 2:g} s"}


@pytest.mark.parametrize("status", [pytest.param(302, marks=pytest.mark.night), 307])
async def test_message_follows_no_redirect(status: int) -> None:
    """A redirect cannot send a message to another machine. For every change: one that would repeat the message."""
    trap = Chat()
    async with open_chat(trap):
        target = f"http://127.0.0.1:{trap.port}/"
        away = f"HTTP/1.1 {status} x\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        async with open_chat(Chat(away.encode())) as url:
            assert await bring(url) == []
    assert trap.got == []


async def test_refusal_has_its_cause_and_no_secret() -> None:
    """No such name, nobody there, no TLS, a hang-up, a status, a redirect, a mail server: each has words of its own."""

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def refuse_mail(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"554 {SECRET}\r\n".encode())
        writer.close()

    servers = [await asyncio.start_server(each, "127.0.0.1", 0) for each in (hang_up, refuse_mail)]
    closing, mail = [server.sockets[0].getsockname()[1] for server in servers]
    elsewhere = b"HTTP/1.1 302 x\r\nLocation: /x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    missing = b"HTTP/1.1 404 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % SECRET.encode()
    addresses = {
        f"json://user:{SECRET}@no-such-host.invalid/": "name not found",
        f"json://user:{SECRET}@127.0.0.1:1/": "connection refused",
        f"json://user:{SECRET}@127.0.0.1:{closing}/": "connection closed",
        f"jsons://user:{SECRET}@127.0.0.1:{mail}/": "no TLS on this port",
        f"mailto://user:{SECRET}@127.0.0.1:{mail}?from=a@b.example&to=c@d.example": "status 554",
        f"slak://{SECRET}": "not an address of apprise",
    }
    async with open_chat(Chat(missing)) as lost, open_chat(Chat(elsewhere)) as away, servers[0], servers[1]:
        addresses |= {lost: "status 404", away: "status 302"}
        courier = AlertCourier(alert_addresses(", ".join(addresses)), deadline_s=PATIENCE_S)
        refused = await courier.bring([message(target.name) for target in courier.targets])
    assert dict(zip(addresses, refused.values(), strict=True)) == addresses


async def test_wrong_addresses_are_named_by_their_place() -> None:
    """Addresses that apprise does not know are named by number and scheme only."""
    addresses = alert_addresses(f"json://u:{SECRET}@127.0.0.1/, page=slak://{SECRET}, no address {SECRET}")
    courier = AlertCourier(addresses, deadline_s=PATIENCE_S)
    assert await courier.wrong() == ["2"], "a part without :// belongs to the address before it"
    assert courier.called("2") == "2 (slak)"


def test_apprise_is_imported_by_its_own_process_only() -> None:
    """Neither web nor a worker nor the courier imports apprise, because it costs 40 MiB and most of a second."""
    parts = "callkeeper.app.alert_watch, callkeeper.app.web_app, callkeeper.app.wiring"
    program = f"import sys, {parts}; print('apprise' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    assert told.stdout == "False\n"


def test_command_sends_a_test_and_shows_no_address() -> None:
    """`callkeeper alerts test` shows each target's result by number and scheme, and fails if one failed."""

    async def run() -> tuple[Any, Chat]:
        chat = Chat()
        async with open_chat(chat) as url:
            environ = {**os.environ, "CALLKEEPER_ALERT_URLS": f"{url} slak://{SECRET}"}
            result = await asyncio.to_thread(CliRunner().invoke, main, ["alerts", "test"], env=environ)
            return result, chat

    result, chat = asyncio.run(run())
    assert result.exit_code == 1
    assert "1 (json): accepted" in result.output
    assert "2 (slak): not accepted: not an address of apprise" in result.output
    assert SECRET not in result.output
    assert [got["type"] for got in chat.got] == ["info"]
