"""Run the command line: ``callkeeper``, or ``python -m callkeeper``."""

import os
import signal


def main() -> None:
    """Run the command line. Signals end it at once while it imports; a command may take them itself later."""
    signal.signal(signal.SIGTERM, _leave)
    at_ctrl_c = signal.getsignal(signal.SIGINT)
    if at_ctrl_c is signal.default_int_handler:  # it is ignored in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from callkeeper.app.cli import main as command_line  # noqa: PLC0415  (this takes a while)

    signal.signal(signal.SIGINT, at_ctrl_c)
    command_line()


def _leave(number: int, _frame: object) -> None:
    """End as by the signal.

    For the first process of a container the kernel does nothing at a signal that the process does not take. Python may
    call this within a weak reference's callback, which ignores exceptions: so this raises none.
    """
    os._exit(128 + number)


if __name__ == "__main__":
    main()
