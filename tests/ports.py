"""Ports of this machine that no server listens on."""

import socket


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class HeldPort:
    """A port, chosen by the system, for a server that is killed and started again.

    A socket is bound to the port but never listens. While the server is down, neither another server nor an outgoing
    connection can get the port.
    """

    def __init__(self) -> None:
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.number: int = self._holder.getsockname()[1]

    def release(self) -> None:
        """Release the port."""
        self._holder.close()
