"""Sending alerts in a thread to receivers of every kind on this machine."""

import asyncio
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from callkeeper.app.alert_sender import BUSY, NO_ADDRESS, AlertSender
from callkeeper.app.cli import main
from callkeeper.app.parsing import alert_addresses
from callkeeper.calls.alerts import AlertMessage, AlertTone

SECRET = "canary-alert-0123456789"
PATIENCE_S = 100.0
"""The deadline where none is tested."""


class Chat:
    """A receiver of alerts over HTTP, with a given answer."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") -> None:
        self.answer = answer
        self.got: list[dict[str, Any]] = []
        self.port = 0
        self.released = asyncio.Event()

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


class Dripping(Chat):
    """Answers a byte at a time, so that no wait of the HTTP library ends, until ``released`` is set."""

    async def reply(self, writer: asyncio.StreamWriter) -> None:
        """Answer slowly."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n")
        while not self.released.is_set():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)


class Endless(Chat):
    """Answers with 2 GB, as fast as they are read, and counts what was taken."""

    sent = 0

    async def reply(self, writer: asyncio.StreamWriter) -> None:
        """Answer until nobody reads."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2000000000\r\n\r\n")
        while self.sent < 2_000_000_000 and not writer.is_closing():
            writer.write(b"x" * 2**20)
            await writer.drain()
            self.sent += 2**20


@asynccontextmanager
async def open_chat(chat: Chat) -> AsyncIterator[str]:
    """Run a receiver; yield its address for alerts."""
    server = await asyncio.start_server(chat.serve, "127.0.0.1", 0)
    chat.port = server.sockets[0].getsockname()[1]
    try:
        yield f"json://user:{SECRET}@127.0.0.1:{chat.port}/"
    finally:
        chat.released.set()
        server.close()


def message(target: str = "1") -> AlertMessage:
    """Return a message."""
    return AlertMessage(target, "no_worker", is_over=False, tone=AlertTone.FAILURE, title="callkeeper: x", body="y")


def sender_to(*urls: str, deadline_s: float = PATIENCE_S) -> AlertSender:
    """Return a sender to some addresses."""
    return AlertSender(alert_addresses(", ".join(urls)), deadline_s=deadline_s)


async def test_message_arrives_once() -> None:
    """Title, text and tone reach an address of apprise."""
    chat = Chat()
    async with open_chat(chat) as url:
        assert await sender_to(url).send(message()) == ""
    [got] = chat.got
    assert (got["title"], got["message"], got["type"]) == ("callkeeper: x", "y", "failure")


async def test_receiver_that_hangs_holds_one_thread_and_no_other_receiver() -> None:
    """At the deadline its message counts as not accepted. It is not tried again before its thread has ended."""
    chat, slow = Chat(), Dripping()
    async with open_chat(slow) as first, open_chat(chat) as second:
        sender = sender_to(first, second, deadline_s=3.0)
        await sender_to("json://").wrong()  # imports apprise
        assert await sender.send(message("1")) == "no answer within 3 s"
        assert await sender.send(message("1")) == BUSY
        assert await sender.send(message("2")) == ""
        assert sum(thread.name == "alert" for thread in threading.enumerate()) == 1
    assert len(slow.got) == len(chat.got) == 1


async def test_endless_answer_is_cut_off() -> None:
    """A receiver that answers with gigabytes has its message, and fills no memory: a megabyte is read, and no more."""
    endless = Endless()
    async with open_chat(endless) as url:
        assert await sender_to(url).send(message()) == ""
    assert endless.sent < 100 * 2**20


@pytest.mark.parametrize("status", [pytest.param(302, marks=pytest.mark.night), 307])
async def test_message_follows_no_redirect(status: int) -> None:
    """A redirect cannot send a message to another machine. For every change: one that would repeat the message."""
    trap = Chat()
    async with open_chat(trap):
        target = f"http://127.0.0.1:{trap.port}/"
        away = f"HTTP/1.1 {status} x\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        async with open_chat(Chat(away.encode())) as url:
            assert await sender_to(url).send(message()) == f"status {status}"
    assert trap.got == []


async def test_refusal_has_its_cause_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """No such name, nobody there, no TLS, a hang-up, a status, a mail server: each has words, and no log the address."""

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def refuse_mail(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"554 {SECRET}\r\n".encode())
        writer.close()

    caplog.set_level(logging.WARNING)
    servers = [await asyncio.start_server(each, "127.0.0.1", 0) for each in (hang_up, refuse_mail)]
    closing, mail = [server.sockets[0].getsockname()[1] for server in servers]
    missing = b"HTTP/1.1 404 %s\r\nno header\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % SECRET.encode()
    addresses = {
        f"json://user:{SECRET}@no-such-host.invalid/": "name not found",
        f"json://user:{SECRET}@127.0.0.1:1/": "connection refused",
        f"json://user:{SECRET}@127.0.0.1:{closing}/": "connection closed",
        f"jsons://user:{SECRET}@127.0.0.1:{mail}/": "no TLS on this port",
        f"mailto://user:{SECRET}@127.0.0.1:{mail}?from=a@b.example&to=c@d.example": "status 554",
        f"slak://{SECRET}": NO_ADDRESS,
    }
    async with open_chat(Chat(missing)) as lost, servers[0], servers[1]:
        addresses[f"{lost}{SECRET}"] = "status 404"
        sender = sender_to(*addresses)
        refused = [await sender.send(message(target.name)) for target in sender.targets]
    assert dict(zip(addresses, refused, strict=True)) == addresses
    assert caplog.text == ""


async def test_bug_of_a_plugin_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What apprise raises counts as not accepted, and its words, which may hold the address, go nowhere."""

    def fail(*_: object) -> bool:
        raise ValueError(SECRET)

    sender = sender_to("json://127.0.0.1:1/")
    monkeypatch.setattr("callkeeper.app.alert_sender._send", fail)
    assert await sender.send(message()) == "unknown cause"


async def test_wrong_addresses_are_named_by_their_place() -> None:
    """Addresses that apprise does not know are named by number and scheme only."""
    sender = sender_to(f"json://u:{SECRET}@127.0.0.1/, page=slak://{SECRET}, no address {SECRET}")
    assert await sender.wrong() == ["2"], "a part without :// belongs to the address before it"
    assert sender.called("2") == "2 (slak)"


def test_command_sends_a_test_and_shows_no_address() -> None:
    """`callkeeper alerts test` shows each target's result by number and scheme, and fails if one failed."""

    async def run() -> tuple[Any, Chat]:
        chat = Chat()
        async with open_chat(chat) as url:
            environ = {**os.environ, "CALLKEEPER_ALERT_URLS": f"{url} slak://{SECRET}"}
            invoke: Callable[..., Any] = CliRunner().invoke
            return await asyncio.to_thread(invoke, main, ["alerts", "test"], env=environ), chat

    result, chat = asyncio.run(run())
    assert result.exit_code == 1
    assert "1 (json): accepted" in result.output
    assert "2 (slak): not accepted: not an address of apprise" in result.output
    assert SECRET not in result.output
    assert [got["type"] for got in chat.got] == ["info"]
