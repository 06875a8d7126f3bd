"""Scripted faults over real sockets: what a client sees when a connection is really cut."""

import socket
from urllib.parse import urlsplit

import httpx
import pytest

from callkeeper_sandbox.service.server import bind
from tests.sandbox_fixtures import ServedSandbox

INSTITUTIONS = "/external/institutions"


def connect(served: ServedSandbox) -> socket.socket:
    """Open a raw connection."""
    address = urlsplit(served.url)
    return socket.create_connection((address.hostname or "", address.port or 0), timeout=10)


def read_json_message(sock: socket.socket) -> bytes:
    """Read a message up to the end of its JSON object; head and body may come apart."""
    message = b""
    while not message.endswith(b"}"):
        received = sock.recv(65536)
        assert received
        message += received
    return message


REQUEST = f"GET {INSTITUTIONS} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_reset_is_a_real_rst(sandbox_server: ServedSandbox) -> None:
    """A reset arrives as RST, not as an orderly end."""
    sandbox_server.fault("institutions", "reset")
    with connect(sandbox_server) as sock:
        sock.sendall(REQUEST)
        with pytest.raises(ConnectionResetError):
            sock.recv(1)


def test_drop_is_a_fin_without_an_answer(sandbox_server: ServedSandbox) -> None:
    """A dropped connection ends in good order without a byte."""
    sandbox_server.fault("institutions", "drop")
    with connect(sandbox_server) as sock:
        sock.sendall(REQUEST)
        assert sock.recv(1) == b""


def test_kept_alive_connection_can_be_dropped_on_its_second_request(sandbox_server: ServedSandbox) -> None:
    """The second request on a connection is accepted, counted and never answered."""
    sandbox_server.fault("institutions", "drop", skip=1)
    with connect(sandbox_server) as sock:
        sock.sendall(REQUEST)
        assert read_json_message(sock).startswith(b"HTTP/1.1 401")
        sock.sendall(REQUEST)
        assert sock.recv(65536) == b""
    assert sandbox_server.control("GET", "/summary")["requests"]["arrived"] == {"institutions": 2}


def test_truncated_body_ends_before_its_length(sandbox_server: ServedSandbox) -> None:
    """A truncated answer promises more than it sends."""
    sandbox_server.fault("institutions", "truncated")
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
        httpx.get(sandbox_server.url + INSTITUTIONS, trust_env=False)


def test_hanging_request_holds_nothing_else_up(sandbox_server: ServedSandbox) -> None:
    """While one request hangs, others are answered, and a stop of the server does not wait for it."""
    sandbox_server.fault("institutions", "hang", times=1)
    with connect(sandbox_server) as sock:
        sock.sendall(REQUEST)
        while not sandbox_server.control("GET", "/summary")["requests"]["arrived"]:
            pass
        answer = httpx.get(sandbox_server.url + INSTITUTIONS, trust_env=False)
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(1)
    assert answer.status_code == 401


def test_listening_socket_names_its_protocol() -> None:
    """The protocol is named: only then does asyncio switch Nagle's algorithm off, which costs 40 ms an answer."""
    with bind() as sock:
        assert sock.proto == socket.IPPROTO_TCP


def test_time_passes_and_pushes_leave_by_themselves(sandbox_server: ServedSandbox) -> None:
    """On a served stand-in scripts run and pushes are sent without anybody asking.

    Spec: Events.
    """
    with socket.create_server(("127.0.0.1", 0)) as receiver:
        receiver.settimeout(10)
        port = receiver.getsockname()[1]
        sandbox_server.control("PUT", "/institutions/cu-1/push", {"url": f"http://127.0.0.1:{port}/push"})
        sandbox_server.call()
        connection, _ = receiver.accept()
        with connection:
            assert read_json_message(connection).startswith(b"POST /push HTTP/1.1")
            connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok")
            while (attempt := sandbox_server.control("GET", "/push")[0])["status"] is None:
                pass
    assert (attempt["status"], attempt["body"]) == (202, "ok")
