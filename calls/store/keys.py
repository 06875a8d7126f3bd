"""The names of everything we keep in Redis, under one prefix, and for how long it is kept.

A *member* is the name of one thing that falls due: ``c:<institution>:<voice id>`` for a call, ``i:<institution>`` for an
institution. The institution part is percent-encoded, so the first two colons always separate.
"""

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

KEPT_S = 14 * 86400
"""For how long a settled call can be read, unless told otherwise."""

REMEMBERED_S = 86400
"""For how long an Idempotency-Key stands for its wish, and a repetition of a statement or a claim is recognised."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much stays in Redis.

    ``calls_s``: settled calls, their trails, how far their outcomes were sent, and the event log. ``events``: lines of that
    log at most. ``figures_s``: figures by the minute.
    """

    calls_s: int = KEPT_S
    events: int = 100_000
    figures_s: int = 3600

    @property
    def minutes_s(self) -> int:
        """Return how long a minute of figures is kept: a little longer, for the one that is under way."""
        return self.figures_s + 300


PREFIX = "ck"
"""What our keys begin with unless told otherwise."""

QUEUE_NAME = "calls"
"""The one RQ queue; RQ keeps it at ``rq:queue:calls``.

Its keys begin with ``rq:`` whatever ours begin with, so under another prefix the queue has another name.
"""


class CallId(NamedTuple):
    """Which call: the institution's key and the voice id (real or alternate) its record is kept under."""

    institution_key: str
    voice_id: str

    @property
    def member(self) -> str:
        """Return the call's name in the due set."""
        return f"c:{_quoted(self.institution_key)}:{self.voice_id}"


def institution_member(institution_key: str) -> str:
    """Return an institution's name in the due set."""
    return f"i:{_quoted(institution_key)}"


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    """Percent-encode an institution's key: there are few, and each is written millions of times."""
    return quote(text, safe="")


def parse_member(member: str) -> CallId | str:
    """Return the call, or the institution's key, that a name in the due set stands for.

    Raises:
        ValueError: The name is neither; somebody else wrote it.
    """
    kind, _, rest = member.partition(":")
    institution, colon, voice_id = rest.partition(":")
    if kind == "c" and colon:
        return CallId(unquote(institution), voice_id)
    if kind == "i" and institution and not colon:
        return unquote(institution)
    raise ValueError(f"not the name of a call or an institution: {member!r}")


def names_of(member: str) -> tuple[str, str]:
    """Return the institution and the voice id of a member; nothing for a name that somebody else wrote."""
    try:
        owner = parse_member(member)
    except ValueError:
        return "", ""
    return (owner.institution_key, owner.voice_id) if isinstance(owner, CallId) else (owner, "")


class Keys:
    """Every key, built from one prefix (``ck`` unless told otherwise).

    ``queue_name`` is the RQ queue that goes with it: ``calls``, under another prefix ``calls-<prefix>``.
    """

    def __init__(self, prefix: str = PREFIX, *, queue_name: str | None = None) -> None:
        self.prefix = prefix
        self.queue_name = queue_name or (QUEUE_NAME if prefix == PREFIX else f"{QUEUE_NAME}-{prefix}")
        self.due = f"{prefix}:due"
        self.wake = f"{prefix}:wake"
        self.wakeup = f"{prefix}:wakeup"
        self.events = f"{prefix}:events"
        self.live = f"{prefix}:live"
        self.settled = f"{prefix}:settled"
        self.attention = f"{prefix}:attention"
        self.standings = f"{prefix}:institutions"
        self.owned = f"{prefix}:owned"
        self.pause = f"{prefix}:pause"
        self.pause_history = f"{prefix}:pause:history"
        self.rules = f"{prefix}:rules"
        self.breakers = f"{prefix}:breakers"
        self.looked = f"{prefix}:looked"
        self.token = f"{prefix}:token"
        self.refused = f"{prefix}:refused"
        self.outage_reported = f"{prefix}:outage-reported"
        self.epoch = f"{prefix}:epoch"
        self.changes = f"{prefix}:changes"
        self.statements = f"{prefix}:statements"
        self.figures = f"{prefix}:figures"
        self.counted = f"{prefix}:figures:last"
        self.unstarted = f"{prefix}:unstarted"
        self.writable = f"{prefix}:writable"
        self.settings = f"{prefix}:settings"
        self.processes = f"{prefix}:processes"
        self.logins = f"{prefix}:logins"
        self.login_gate = f"{prefix}:token:gate"
        self.queue = f"rq:queue:{self.queue_name}"
        self.failed_jobs = f"rq:failed:{self.queue_name}"

    @property
    def outbox(self) -> "Keys":
        """Return the keys under which outcomes on their way out are kept: the same shapes, members of the same names."""
        return Keys(f"{self.prefix}:outbox", queue_name=self.queue_name)

    def minute(self, number: int | str) -> str:
        """Return the key of the figures of one minute, counted from 1970."""
        return f"{self.prefix}:figures:{number}"

    def process(self, name: str) -> str:
        """Return the key of the hash that says that a process lives."""
        return f"{self.prefix}:process:{name}"

    def claimer(self, claimer: str) -> str:
        """Return the key of what a process did last, by number, so that repetitions are known: claim, report, batch."""
        return f"{self.prefix}:claimer:{claimer}"

    def ticket(self, ticket: str) -> str:
        """Return the key of a ticket for one connection to the desk's stream."""
        return f"{self.prefix}:ticket:{ticket}"

    def statement(self, wish: str) -> str:
        """Return the key that says that a statement was received: a repetition of it changes nothing."""
        return f"{self.prefix}:statement:{wish}"

    def wish(self, owner: str, idempotency_key: str) -> str:
        """Return the key that remembers which wish an idempotency key stands for. ``owner`` is the token's name."""
        return f"{self.prefix}:wish:{quote(owner, safe='')}:{quote(idempotency_key, safe='')}"

    def item(self, member: str) -> str:
        """Return the key of the hash that holds a member's record, nonce, checks and epoch."""
        return f"{self.prefix}:item:{member}"

    def inbox(self, member: str) -> str:
        """Return the key of the hash of notes that wait for a member's mover."""
        return f"{self.prefix}:inbox:{member}"

    def trail(self, member: str) -> str:
        """Return the key of the list of what happened to a member, and why."""
        return f"{self.prefix}:trail:{member}"

    def alias(self, institution_key: str, alternate_id: str) -> str:
        """Return the key that holds the voice id an alternate id was seen with."""
        return f"{self.prefix}:alias:{_quoted(institution_key)}:{alternate_id}"

    def enrolled(self, institution_key: str, person_id: str) -> str:
        """Return the key of a person's calls whose voice was enrolled by hand: voice ids by when that became known."""
        return f"{self.prefix}:enrolled:{_quoted(institution_key)}:{quote(person_id, safe='')}"

    def look_backs(self, minute: int) -> str:
        """Return the key of how many unlisted calls were read in a minute because their end was pushed."""
        return f"{self.prefix}:look-backs:{minute}"

    def sample(self, institution_key: str) -> str:
        """Return the key that holds the instant of an institution's last sample push."""
        return f"{self.prefix}:sample:{_quoted(institution_key)}"

    def opened(self, institution_key: str) -> str:
        """Return the key of an institution's open calls: voice id to the fingerprint of its last listing."""
        return f"{self.prefix}:open:{_quoted(institution_key)}"

    def seen(self, institution_key: str) -> str:
        """Return the key of the ids that the full listing under way has seen so far."""
        return f"{self.prefix}:seen:{_quoted(institution_key)}"
