"""A port that stays ours while nobody listens on it."""

import socket


class HeldPort:
    """A port of this machine, chosen by the system, for a server that is killed and started again.

    It is held by a socket that is bound and never listens, so that nobody takes it while the server is away: neither another
    server nor a client's own end of a connection.
    """

    def __init__(self) -> None:
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.number: int = self._holder.getsockname()[1]

    def release(self) -> None:
        """Let go of the port."""
        self._holder.close()
