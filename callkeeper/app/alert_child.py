"""Sends alerts with apprise in a short-lived child process: ``python -m callkeeper.app.alert_child``.

Importing apprise costs 40 MiB and 0.8 s of CPU (*measured*). It is synchronous and reads whole answers, so it runs in a
process that the parent ends at a deadline. The log of apprise may contain secrets from the addresses, so the parent
discards it. Standard input and standard output are one JSON object each.
"""

import resource
import sys
from typing import Final

import msgspec

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


class AlertReport(msgspec.Struct, frozen=True):
    """The indexes of invalid addresses, and for each note whether it was accepted."""

    invalid: list[int]
    taken: list[bool]


def carry_out(order: Order) -> AlertReport:
    """Validate the addresses and send the notes one after the other."""
    import apprise  # noqa: PLC0415  (the reason for this process)
    from requests import sessions  # noqa: PLC0415

    # No redirects: the message goes only to the address in the settings.
    vars(sessions)["DEFAULT_REDIRECT_LIMIT"] = 0
    services = [apprise.Apprise.instantiate(url) for url in order.urls]

    def bring(note: AlertNote) -> bool:
        service, bringer = services[0], apprise.Apprise()
        if service is None or not bringer.add(service):
            return False
        tone, form = apprise.NotifyType(note.tone), apprise.NotifyFormat.TEXT
        try:
            return bool(bringer.notify(body=note.body, title=note.title, notify_type=tone, body_format=form))
        except Exception:  # noqa: BLE001  (a plugin's bug, or too much memory: the note was not sent)
            return False

    return AlertReport([n for n, service in enumerate(services) if not service], [bring(note) for note in order.notes])


def main() -> None:
    """Carry out the order on standard input."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.stdout.buffer.write(msgspec.json.encode(carry_out(order)))


if __name__ == "__main__":
    main()
