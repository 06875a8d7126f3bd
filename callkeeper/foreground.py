"""Who gets Ctrl-C when ``callkeeper run`` is started by another program, as it is by ``make run``."""

import os
import signal
from types import FrameType
from typing import Final

_FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def take_foreground() -> None:
    """Continue in a process group of our own that has the terminal, if we share the terminal with our parent.

    GNU make that receives Ctrl-C reports an error although the program it runs ends well, and at a second Ctrl-C it leaves
    before that program has ended. In its own foreground group the program alone receives Ctrl-C. The original process stays
    behind for make: it forwards signals, waits, gives the terminal back and exits with the same code.

    Does nothing without a terminal, in the background, or if a shell has given us a group of our own.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return
    group = os.getpgrp()
    if group == os.getpid() or os.tcgetpgrp(terminal) != group:
        os.close(terminal)
        return
    # Whoever is not in the foreground is stopped for changing the foreground, unless it ignores this signal.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    child = os.fork()
    if child:
        code = _wait_for(child)
        os.tcsetpgrp(terminal, group)
        os._exit(code)
    os.setpgid(0, 0)
    os.tcsetpgrp(terminal, os.getpid())
    # Ctrl-Z would stop this group only: the shell waits for make, and nobody could continue us.
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.close(terminal)


def _wait_for(child: int) -> int:
    """Forward signals to a child until it has ended; return its exit code as a shell would say it."""

    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
