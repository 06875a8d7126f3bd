"""Ends a process that we have started when ours is gone, also if ours is killed and cannot do so itself."""

import subprocess
from typing import Final

_WAIT_AND_END: Final = 'read -r _; kill "$0" 2>&-'
"""Nothing is ever written: the read ends when the only writer, our process, is gone."""


class Guard:
    """Waits in a process of its own until ours is gone, and then sends SIGTERM to another one."""

    def __init__(self, pid: int) -> None:
        """Guard the process ``pid``. Close the guard before its id can become another process's."""
        self._process = subprocess.Popen(  # noqa: S603  (our own arguments)
            ["/bin/sh", "-c", _WAIT_AND_END, str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must not end it before us
        )

    def close(self) -> None:
        """Stop guarding. The process may go on, and may be ended by its owner."""
        self._process.kill()
        self._process.communicate()
