"""Sends alerts with apprise in a short-lived child process: ``python -m callkeeper.app.alert_child``.

Importing apprise costs 40 MiB and 0.8 s of CPU (*measured*). It is synchronous and reads whole answers, so it runs in a
process that the parent ends at a deadline. The log of apprise may contain secrets from the addresses, so of a line only
the status is kept and the kind of error. Standard input is one JSON object. Standard output is a line of JSON for each
answer, as soon as it is known, because the parent may end us at any time.
"""

import logging
import re
import resource
import sys
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from callkeeper.service.network_failure import NetworkFailure, network_failure

MOST_MEMORY: Final = 768 * 2**20
"""Address space in bytes. It stops an endless answer."""


class AlertNote(msgspec.Struct, frozen=True):
    """The text of one message."""

    title: str
    body: str
    tone: str


class Order(msgspec.Struct, frozen=True):
    """Notes to send to the first address. Without notes, the addresses are only validated."""

    urls: list[str]
    notes: list[AlertNote] = []


Answer: TypeAlias = list[int] | str
"""The indexes of invalid addresses, then for each note why it was not accepted; empty if it was."""

NO_ADDRESS: Final = "not an address of apprise"
UNKNOWN: Final = "unknown cause"
_STATUS: Final = re.compile(r"\berror=(\d{3})\b")


class RefusalLog(logging.Handler):
    """Keeps why a note was not accepted. apprise tells it only in its log, where it also catches the errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.why = UNKNOWN

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the status in a line, or what went wrong when it was written."""
        error = sys.exc_info()[1]
        answer = getattr(error, "response", None)  # of requests
        status = getattr(error, "smtp_code", getattr(answer, "status_code", None))
        if found := _STATUS.search(record.getMessage()):
            status = int(found[1])
        if isinstance(status, int):
            self.why = f"status {status}"
        elif error is not None and (why := network_failure(error)) != NetworkFailure.OTHER:
            self.why = why


def carry_out(order: Order) -> Iterator[Answer]:
    """Validate the addresses and send the notes one after the other."""
    import apprise  # noqa: PLC0415  (the reason for this process)
    from requests import sessions  # noqa: PLC0415

    # No redirects: the message goes only to the address in the settings.
    vars(sessions)["DEFAULT_REDIRECT_LIMIT"] = 0
    services = [apprise.Apprise.instantiate(url) for url in order.urls]

    def bring(note: AlertNote) -> str:
        """Send a note; return why it was not accepted, or nothing."""
        service, bringer = services[0], apprise.Apprise()
        if service is None or not bringer.add(service):
            return NO_ADDRESS
        tone, form = apprise.NotifyType(note.tone), apprise.NotifyFormat.TEXT
        log = RefusalLog()
        logging.getLogger("apprise").handlers = [log]
        try:
            was_taken = bringer.notify(body=note.body, title=note.title, notify_type=tone, body_format=form)
        except Exception:  # noqa: BLE001  (a plugin's bug, or too much memory: the note was not sent)
            was_taken = False
        return "" if was_taken else log.why

    yield [n for n, service in enumerate(services) if not service]
    yield from map(bring, order.notes)


def main() -> None:
    """Carry out the order on standard input."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    for answer in carry_out(order):
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
