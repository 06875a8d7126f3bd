"""Brings messages with apprise, in a process of its own that lives for seconds: ``python -m callkeeper.alert_child``.

apprise costs 40 MiB and 0.8 s of CPU when it is imported (*measured*), is synchronous, and reads whole answers. Here that
slows nothing down; the parent ends this process at a deadline. What apprise would log may hold secrets of the
addresses, and nobody reads it. Standard input is one JSON object, and so is standard output.
"""

import resource
import sys
from typing import Final

import msgspec

MOST_MEMORY: Final = 768 * 2**20
"""Address space in bytes; an endless answer ends here."""


class AlertNote(msgspec.Struct, frozen=True):
    """The text of one message."""

    title: str
    body: str
    tone: str


class Order(msgspec.Struct, frozen=True):
    """What is to be brought, to the first address; without notes the addresses are only looked at."""

    urls: list[str]
    notes: list[AlertNote] = []


class AlertReport(msgspec.Struct, frozen=True):
    """Which addresses make no sense, by their place, and which notes were taken."""

    invalid: list[int]
    taken: list[bool]


def carry_out(order: Order) -> AlertReport:
    """Look at the addresses, and bring the notes one after the other."""
    import apprise  # noqa: PLC0415  (the reason for this process)
    from requests import sessions  # noqa: PLC0415

    # No redirect: an address that was written into the settings cannot send us on to another.
    vars(sessions)["DEFAULT_REDIRECT_LIMIT"] = 0
    services = [apprise.Apprise.instantiate(url) for url in order.urls]

    def bring(note: AlertNote) -> bool:
        service, bringer = services[0], apprise.Apprise()
        if service is None or not bringer.add(service):
            return False
        tone, form = apprise.NotifyType(note.tone), apprise.NotifyFormat.TEXT
        try:
            return bool(bringer.notify(body=note.body, title=note.title, notify_type=tone, body_format=form))
        except Exception:  # noqa: BLE001  (a plugin's bug, or too much memory: this one was not taken)
            return False

    return AlertReport([n for n, service in enumerate(services) if not service], [bring(note) for note in order.notes])


def main() -> None:
    """Carry out the order on standard input."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.stdout.buffer.write(msgspec.json.encode(carry_out(order)))


if __name__ == "__main__":
    main()
