"""The names of all our keys in Redis, under one prefix, and how long they are kept."""

from urllib.parse import quote

import msgspec

from callkeeper.calls.item_names import institution_part

KEPT_S = 14 * 86400
"""How long a settled call can be read, in seconds, by default."""

MOST_TOMBSTONES = 20
"""How many tombstones of merged calls are followed at most."""

CHANGES_KEPT = 100_000
"""How many entries of the stream of changes are kept at least (``MAXLEN ~``)."""

REMEMBERED_S = 86400
"""How long an Idempotency-Key is remembered, and a repetition recognised: of a statement, a claim, a report or a batch."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept in Redis.

    ``calls_s``: settled calls, their trails, their delivery state, and the event log. ``events``: maximum number of
    lines in that log.
    """

    calls_s: int = KEPT_S
    events: int = 100_000


PREFIX = "ck"
"""The default prefix of our keys, as it is set."""

LAYOUT = 2
"""The number of this layout. It follows the prefix in the name of each key, so that ``callkeeper migrate`` can copy an
older layout (releases up to 0.4.0 wrote none) and leave it to the release that wrote it."""

FAILURE_TTL_S = 3600
"""How long a job can be read that failed without a bug, in seconds: its worker was killed, or the service was down."""

QUEUE_NAME = f"calls:{LAYOUT}"
"""The one RQ queue, at ``rq:queue:calls:2``.

RQ's keys always begin with ``rq:``, so under another prefix or layout of ours the queue has another name.
"""


class Keys:
    """Every key, built from one prefix (``ck`` by default).

    ``setting`` is the prefix as it is set; no key of another installation begins with it and a colon. ``prefix`` is what
    our keys begin with: the setting, the layout, and the family (``outbox``, ``archive``, or none). ``queue_name`` is the
    RQ queue: ``calls:<layout>``, or ``calls-<setting>:<layout>`` under another prefix.
    """

    def __init__(self, setting: str = PREFIX, *, family: str = "") -> None:
        self.setting = setting
        prefix = self.prefix = f"{setting}:{LAYOUT}:{family}".rstrip(":")
        self.queue_name = QUEUE_NAME if setting == PREFIX else f"calls-{setting}:{LAYOUT}"
        self.due = f"{prefix}:due"
        self.wake = f"{prefix}:wake"
        self.wakeup = f"{prefix}:wakeup"
        self.events = f"{prefix}:events"
        self.live = f"{prefix}:live"
        self.settled = f"{prefix}:settled"
        self.attention = f"{prefix}:attention"
        self.left = f"{prefix}:left"
        self.standings = f"{prefix}:institutions"
        self.owned = f"{prefix}:owned"
        self.disowned = f"{prefix}:disowned"
        self.pause = f"{prefix}:pause"
        self.pauses_restored = f"{prefix}:pause:restored"
        self.pause_history = f"{prefix}:pause:history"
        self.rules = f"{prefix}:rules"
        self.rules_history = f"{prefix}:rules:history"
        self.rules_texts = f"{prefix}:rules:texts"
        self.breakers = f"{prefix}:breakers"
        self.endpoints = f"{prefix}:endpoints"
        self.errors = f"{prefix}:errors"
        self.acknowledged = f"{prefix}:acknowledged"
        self.survey = f"{prefix}:survey"
        self.replicated = f"{prefix}:replicated"
        self.looked = f"{prefix}:looked"
        self.token = f"{setting}:token"  # of the account, so of all layouts; the web process's user may not read it
        self.refused = f"{prefix}:refused"
        self.outage_reported = f"{prefix}:outage-reported"
        self.epoch = f"{prefix}:epoch"
        self.changes = f"{prefix}:changes"
        self.statements = f"{prefix}:statements"
        self.figures = f"{prefix}:figures"
        self.counted = f"{prefix}:figures:last"
        self.lately = f"{prefix}:figures:lately"
        self.hours_since = f"{prefix}:hours:since"
        self.running = f"{prefix}:running"
        self.unstarted = f"{prefix}:unstarted"
        self.writable = f"{prefix}:writable"
        self.settings = f"{prefix}:settings"
        self.budget = f"{prefix}:permits"
        self.processes = f"{prefix}:processes"
        self.alerts = f"{prefix}:alerts"
        self.alert_leader = f"{prefix}:alerts:leader"
        self.alert_targets = f"{prefix}:alerts:targets"
        self.alert_refusals = f"{prefix}:alerts:refusals"
        self.deliveries = f"{prefix}:deliveries"
        self.receiver = f"{prefix}:receiver"
        self.untaken = f"{prefix}:untaken"
        self.login_gate = f"{setting}:token:gate"
        self.audit = f"{prefix}:audit"
        self.audit_archived = f"{prefix}:audit:archived"
        self.people = f"{prefix}:people"
        self.issued_tokens = f"{prefix}:desk-tokens"
        self.issued_tokens_used = f"{prefix}:desk-tokens:used"
        self.access_changes = f"{prefix}:access-changes"
        self.emergency_login = f"{prefix}:emergency-login"
        self.migration = f"{prefix}:migration"
        self.queue = f"rq:queue:{self.queue_name}"
        self.failed_jobs = f"rq:failed:{self.queue_name}"

    @property
    def outbox(self) -> "Keys":
        """Return the keys of the outbox, which holds undelivered outcomes: same structures, same member names."""
        return Keys(self.setting, family="outbox")

    @property
    def archive(self) -> "Keys":
        """Return the keys of the archive's outbox, which holds calls that wait to be archived: same structures."""
        return Keys(self.setting, family="archive")

    @property
    def attentions(self) -> tuple[str, ...]:
        """Return the keys of what needs a person: about calls, their outcomes and their archiving."""
        return self.attention, self.outbox.attention, self.archive.attention

    def account_use(self, account: str) -> str:
        """Return the key of the installations that use an account of the service: the only one that prefixes share.

        It begins as RQ's keys do, which the Redis user of every installation may use.
        """
        return f"rq:callkeeper:{account}"

    def minute(self, number: int | str) -> str:
        """Return the key of the figures of one minute, counted from 1970."""
        return f"{self.prefix}:figures:{number}"

    def hours(self, day: int | str, institution_key: str) -> str:
        """Return the key of the hourly sums of an institution (empty: of all) on a day, counted from 1970."""
        return f"{self.prefix}:hours:{day}:{institution_part(institution_key)}"

    def rule_hits(self, day: int | str) -> str:
        """Return the key of the hits of rules on a day, counted from 1970."""
        return f"{self.prefix}:rules:hits:{day}"

    def process(self, name: str) -> str:
        """Return the key of the hash that shows that a process is alive."""
        return f"{self.prefix}:process:{name}"

    def claimer(self, claimer: str) -> str:
        """Return the key of a process's last numbered claim, report and batch, by which repetitions are recognised."""
        return f"{self.prefix}:claimer:{claimer}"

    def session(self, digest: str) -> str:
        """Return the key of a person's session, by the SHA-256 of the cookie."""
        return f"{self.prefix}:session:{digest}"

    def login(self, digest: str) -> str:
        """Return the key of a login that has begun at the identity provider, by the SHA-256 of its state."""
        return f"{self.prefix}:login:{digest}"

    def ticket(self, digest: str) -> str:
        """Return the key of a ticket for one connection to the desk's stream, by the SHA-256 of the ticket."""
        return f"{self.prefix}:ticket:{digest}"

    def agent_token(self, digest: str) -> str:
        """Return the key of a desk token that was minted for one agent, by the SHA-256 of the token."""
        return f"{self.prefix}:agent-token:{digest}"

    def statement(self, action_id: str) -> str:
        """Return the key that shows that a statement was received, so that repeating it changes nothing."""
        return f"{self.prefix}:statement:{action_id}"

    def wish(self, owner: str, idempotency_key: str) -> str:
        """Return the key that stores the action of an idempotency key. ``owner`` is the token's holder."""
        return f"{self.prefix}:wish:{quote(owner, safe='')}:{quote(idempotency_key, safe='')}"

    def item(self, member: str) -> str:
        """Return the key of the hash that holds a member's record, nonce, checks and epoch."""
        return f"{self.prefix}:item:{member}"

    def inbox(self, member: str) -> str:
        """Return the key of the hash of notes that are not folded yet."""
        return f"{self.prefix}:inbox:{member}"

    def trail(self, member: str) -> str:
        """Return the key of the list of what happened to a member, and why."""
        return f"{self.prefix}:trail:{member}"

    def alias(self, institution_key: str, alternate_id: str) -> str:
        """Return the key that holds the voice id that a push gave with an alternate id."""
        return f"{self.prefix}:alias:{institution_part(institution_key)}:{alternate_id}"

    def enrolled(self, institution_key: str, person_id: str) -> str:
        """Return the key of a person's calls that were enrolled by hand: voice ids by the time this became known."""
        return f"{self.prefix}:enrolled:{institution_part(institution_key)}:{quote(person_id, safe='')}"

    def established(self, institution_key: str, person_id: str) -> str:
        """Return the key of the calls whose caller is established as a person: voice ids by the time this became known."""
        return f"{self.prefix}:established:{institution_part(institution_key)}:{quote(person_id, safe='')}"

    def rejected(self, institution_key: str, person_id: str) -> str:
        """Return the key that exists for a short time after a person's voice was rejected: the call's voice id."""
        return f"{self.prefix}:rejected:{institution_part(institution_key)}:{quote(person_id, safe='')}"

    def earlier(self, institution_key: str, whose: str) -> str:
        """Return the key of the marks that calls of a member or a phone number left: ``kind:voice id`` by time."""
        return f"{self.prefix}:earlier:{institution_part(institution_key)}:{whose}"

    def look_backs(self, minute: int) -> str:
        """Return the key that counts the look-backs of a minute, and the calls that asked for one in vain."""
        return f"{self.prefix}:look-backs:{minute}"

    def asking(self, about: str, period: int) -> str:
        """Return the key that a worker sets before it asks for the standing of an institution, or (empty) for all."""
        return f"{self.prefix}:asking:{period}:{institution_part(about)}"

    def parked(self, institution_key: str) -> str:
        """Return the key of an institution's calls that wait until its breaker closes."""
        return f"{self.prefix}:parked:{institution_part(institution_key)}"

    def sample(self, institution_key: str) -> str:
        """Return the key that holds the time of an institution's last sample push."""
        return f"{self.prefix}:sample:{institution_part(institution_key)}"

    def opened(self, institution_key: str) -> str:
        """Return the key of an institution's open calls: voice id to the fingerprint of its last queue entry."""
        return f"{self.prefix}:open:{institution_part(institution_key)}"


KEYS = Keys()
"""The keys under the default prefix."""
