"""The proxy disturbs connections as it is told, and changes nothing otherwise."""

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.faults.proxy import UNDISTURBED, Disturbance, Proxy, proxied
from tests.waiting import until

MESSAGE = bytes(range(256)) * 64


class _Echo(socketserver.BaseRequestHandler):
    """Sends back what it receives, and remembers it."""

    def handle(self) -> None:
        """Echo until the client stops sending."""
        try:
            while piece := self.request.recv(4096):
                self.server.heard += piece  # type: ignore[attr-defined]
                self.request.sendall(piece)
        except OSError:
            self.server.resets += 1  # type: ignore[attr-defined]


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    heard = b""
    resets = 0


@pytest.fixture
def echo() -> Iterator[_Server]:
    """Return a server that echoes."""
    with _Server(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: _Server) -> Iterator[Proxy]:
    """Return a proxy in front of the echo server."""
    with proxied(echo.server_address[1], seed=1) as running:
        yield running


@contextmanager
def connected(proxy: Proxy) -> Iterator[socket.socket]:
    """Connect to a proxy."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as line:
        yield line


def receive(line: socket.socket, size: int) -> bytes:
    """Receive up to this many bytes, until the end or a reset."""
    got = b""
    with suppress(ConnectionError):
        while len(got) < size and (piece := line.recv(size - len(got))):
            got += piece
    return got


def refuses(proxy: Proxy) -> bool:
    """Tell whether a new connection is reset or closed at once."""
    try:
        with connected(proxy) as line:
            return line.recv(1) == b""
    except ConnectionError:
        return True


def send(line: socket.socket, message: bytes) -> None:
    """Send as much of a message as the other end accepts."""
    with suppress(ConnectionError):
        line.sendall(message)


def test_undisturbed_proxy_changes_nothing(proxy: Proxy) -> None:
    """Every byte arrives in order in both directions, and closing one direction leaves the other open."""
    with connected(proxy) as line:
        line.sendall(MESSAGE)
        line.shutdown(socket.SHUT_WR)
        assert receive(line, len(MESSAGE) + 1) == MESSAGE


def test_proxy_delays_by_its_latency_in_each_direction(proxy: Proxy) -> None:
    """A round trip takes at least twice the latency."""
    proxy.set(Disturbance(latency_s=0.1, jitter_s=0.05))
    with connected(proxy) as line:
        started_s = time.monotonic()
        line.sendall(b"x")
        assert receive(line, 1) == b"x"
        assert time.monotonic() - started_s >= 0.2


def test_proxy_passes_no_more_than_its_bandwidth(proxy: Proxy) -> None:
    """A message takes at least its size divided by the bandwidth, for each direction."""
    proxy.set(Disturbance(bytes_per_s=len(MESSAGE) * 5))
    with connected(proxy) as line:
        started_s = time.monotonic()
        line.sendall(MESSAGE)
        assert receive(line, len(MESSAGE)) == MESSAGE
        assert time.monotonic() - started_s >= 0.4


@pytest.mark.parametrize("n", [0, 1, 1000])
def test_proxy_cuts_a_request_after_n_bytes(proxy: Proxy, echo: _Server, n: int) -> None:
    """The server gets exactly n bytes, then the connection is reset."""
    proxy.set(Disturbance(cut_up_after=n))
    with connected(proxy) as line:
        send(line, MESSAGE)
        assert len(receive(line, len(MESSAGE))) <= n
    until(lambda: len(echo.heard) >= n, 5, "the bytes that were let through")
    assert echo.heard == MESSAGE[:n]


@pytest.mark.parametrize("n", [0, 1, 1000])
def test_proxy_cuts_an_answer_after_n_bytes(proxy: Proxy, echo: _Server, n: int) -> None:
    """The server gets the request, the client at most n bytes of the answer."""
    proxy.set(Disturbance(cut_down_after=n))
    with connected(proxy) as line:
        line.sendall(MESSAGE[:2000])
        assert len(receive(line, 2000)) <= n
        until(lambda: echo.heard == MESSAGE[:2000], 5, "the whole request")


def test_proxy_resets_what_is_open(proxy: Proxy) -> None:
    """A reset reaches a waiting client."""
    with connected(proxy) as line:
        line.sendall(b"x")
        receive(line, 1)
        proxy.reset_all()
        with pytest.raises(ConnectionResetError):
            line.recv(1)


def test_proxy_refuses_new_connections(proxy: Proxy) -> None:
    """New connections are reset until the proxy is told to accept them again."""
    proxy.set(Disturbance(refuses=True))
    assert refuses(proxy)
    proxy.set(UNDISTURBED)
    with connected(proxy) as line:
        line.sendall(b"x")
        assert receive(line, 1) == b"x"


def test_proxy_swallows_until_it_is_over(proxy: Proxy, echo: _Server) -> None:
    """In a black hole no data passes and connections stay open; afterwards everything arrives in order."""
    proxy.set(Disturbance(swallows=True))
    with connected(proxy) as line:
        line.sendall(b"first")
        line.settimeout(0.3)
        with pytest.raises(TimeoutError):
            line.recv(1)
        assert echo.heard == b""
        line.settimeout(5)
        proxy.set(UNDISTURBED)
        line.sendall(b"second")
        assert receive(line, 11) == b"firstsecond"


def test_proxy_resets_clients_of_a_server_that_is_away(proxy: Proxy, echo: _Server) -> None:
    """If no server listens behind the proxy, the client's connection is reset and does not hang."""
    proxy.target_port = 1
    assert refuses(proxy)
