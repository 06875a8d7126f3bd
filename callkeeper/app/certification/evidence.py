"""What is known of a test call: its record and trail, the figures since it began, rules, samples, outcomes, the survey.

All instants are by Redis's clock, as in trails, except those that the service tells.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from redis.asyncio import Redis

from callkeeper.app.redis_query import redis_now
from callkeeper.calls.claimed_item import instant
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.snapshot import FigureReader, Process, Snapshot
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.record import Call
from callkeeper.calls.rules.book import EFFECTS, Stage
from callkeeper.calls.rules.file import parse_toml
from callkeeper.calls.store.delivery_log import DeliveryLog, latest_of_each
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.push_intake import EventEntry
from callkeeper.calls.store.queries import Queries
from callkeeper.calls.store.rules_in_force import read_rules_texts
from callkeeper.calls.survey import Survey, SurveyRow, rows_of
from callkeeper.calls.trail import Entry
from callkeeper.service.endpoints import canonical_id

UNREADABLE = "AnswerUnreadable"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a live worker: their digest, and what they would do by themselves for one institution.

    ``sending`` are the live rules that enroll or reject; ``assigns`` tells whether callers are assigned automatically.
    """

    digest: str
    sending: tuple[str, ...] = ()
    assigns: bool = False

    @classmethod
    def parse(cls, digest: str, text: bytes, institution_key: str) -> "Rules":
        """Read the text of rules that a worker has accepted. Their lists are not needed here.

        Raises:
            callkeeper.calls.rules.RulesError: It is not TOML, so that no worker can have accepted it.
        """
        table, _ = parse_toml(text, name=digest)
        written: Any = table
        sending = tuple(
            str(rule["name"])
            for rule in written.get("rule", ())
            if rule["then"] in EFFECTS
            and rule.get("stage", Stage.LIVE) == Stage.LIVE
            and institution_key in rule.get("institutions", (institution_key,))
        )
        return cls(digest, sending, bool(written.get("assign", {}).get("automatic", True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What runs here: the live processes, and the rules of the workers. ``unknown`` are digests without a text."""

    workers: tuple[Process, ...] = ()
    webs: tuple[Process, ...] = ()
    rules: tuple[Rules, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def sending(self) -> tuple[str, ...]:
        """Return the names of the live rules that enroll or reject."""
        return tuple(dict.fromkeys(name for each in self.rules for name in each.sending))

    @property
    def assigns(self) -> bool:
        return any(each.assigns for each in self.rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeDelivery:
    """The outcomes of the call: whether workers post any, and how many of how many the receiver has accepted."""

    is_wanted: bool = False
    due: int = 0
    accepted: int = 0


class StrayPush(NamedTuple):
    """A push from the caller's number, while the call lived, under an id that is none of the call's.

    ``type`` is CallStart or CallEnd.
    """

    type: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvidence:
    """All that verdicts are made of.

    Attributes:
        began_at: Since when samples, refused pushes and answers count; figures reach back an hour at most.
        sample_at: The institution's last sample push.
        call: The record of the test call; None if none came.
        stray: Pushes that seem to be about the call, but name another one.
        hung_up_at: When the caller hung up, as the person at the terminal said.
        refused: Refused pushes by reason, of all institutions.
        requests: Requests to the service by outcome, of all institutions.
        skipped: Entries of the institution's queue that could not be used.
        misnamed: Answers about a call of the institution that named another one.
    """

    institution_key: str
    began_at: datetime
    taken_at: datetime
    installation: Installation = field(default_factory=Installation)
    sample_at: datetime | None = None
    call: Call | None = None
    trail: tuple[Entry, ...] = ()
    stray: tuple[StrayPush, ...] = ()
    hung_up_at: datetime | None = None
    was_silent: bool = True
    refused: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    turned_away: int = 0
    skipped: int = 0
    misnamed: int = 0
    deliveries: OutcomeDelivery = field(default_factory=OutcomeDelivery)
    survey: tuple[SurveyRow, ...] = ()

    @property
    def first_sign_at(self) -> datetime:
        """Return when callkeeper first heard of the call, by a push or by the queue."""
        return min((entry.at for entry in self.trail), default=self.taken_at)

    def first_stray(self, type_: str) -> datetime | None:
        """Return when the first push of a type came that seems to be about the call, but names another one."""
        return next((push.at for push in self.stray if push.type == type_), None)

    def entries(self, what: str) -> list[Entry]:
        """Return the entries of the trail that say this, oldest first."""
        return [entry for entry in self.trail if entry.what == what]

    def first(self, what: str, kind: str | None = None) -> Entry | None:
        """Return the first entry that says this, of one kind if given."""
        return next((entry for entry in self.entries(what) if kind is None or entry.kind == kind), None)


async def read_installation(redis: Redis, keys: Keys, institution_key: str) -> Installation:
    """Read which processes are alive, and what the rules of the workers do for an institution."""
    processes = await FigureReader(redis, keys=keys).processes()
    workers = tuple(process for process in processes if process.kind == "worker")
    digests = sorted({process.rules for process in workers})
    known = await read_rules_texts(redis, keys, digests)
    return Installation(
        workers=workers,
        webs=tuple(process for process in processes if process.kind == "web"),
        rules=tuple(Rules.parse(digest, text, institution_key) for digest, text in known.items()),
        unknown=tuple(digest for digest in digests if digest not in known),
    )


async def sample_at(redis: Redis, keys: Keys, institution_key: str) -> datetime | None:
    """Return when an institution's last sample push arrived."""
    client = in_bytes(redis)
    stored = await client.get(keys.sample(institution_key))
    return instant(int(stored)) if stored else None


async def read_survey(redis: Redis, keys: Keys) -> Survey:
    """Read what traffic says of the assumptions about the service."""
    client = in_bytes(redis)
    return Survey.parse(await client.hgetall(keys.survey))


async def gather(
    redis: Redis,
    keys: Keys,
    *,
    institution_key: str,
    began_at: datetime,
    call_id: CallId | None,
    hung_up_at: datetime | None = None,
    was_silent: bool = True,
) -> CallEvidence:
    """Read everything that is known of a test call. It changes nothing and asks the service nothing."""
    now, queries = await redis_now(redis), Queries(redis, keys=keys)
    minutes = min(60, int((now - began_at).total_seconds() // 60) + 2)
    figures = [minute.figures for minute in await FigureReader(redis, keys=keys).minutes(now, minutes)]
    own = {"institution": institution_key}
    call = await queries.load(call_id) if call_id is not None else None
    trail = await queries.trail(call_id) if call_id is not None else ()
    return CallEvidence(
        institution_key=institution_key,
        began_at=began_at,
        taken_at=now,
        installation=await read_installation(redis, keys, institution_key),
        sample_at=await sample_at(redis, keys, institution_key),
        call=call,
        trail=trail,
        stray=await _stray(redis, keys, call, began_at),
        hung_up_at=hung_up_at,
        was_silent=was_silent,
        refused=_sums(figures, figure.PUSHES_REFUSED, "reason"),
        requests=_sums(figures, figure.SERVICE_REQUESTS, "outcome"),
        turned_away=sum(each.count(figure.REQUESTS_TURNED_AWAY) for each in figures),
        skipped=sum(each.count(figure.ENTRIES_SKIPPED, **own) for each in figures),
        misnamed=sum(each.count(figure.ANSWERS_MISNAMED, **own) for each in figures),
        deliveries=await _deliveries(redis, keys, call, trail),
        survey=tuple(rows_of(await read_survey(redis, keys))),
    )


async def _stray(redis: Redis, keys: Keys, call: Call | None, began_at: datetime) -> tuple[StrayPush, ...]:
    """Return the pushes since then from the caller's number that name another call, oldest first."""
    last4 = call.names.last_digits if call is not None else ""
    if call is None or not last4:
        return ()
    client = in_bytes(redis)
    stored = await client.zrangebyscore(keys.events, began_at.timestamp() * 1000, "+inf", withscores=True)
    own, found = {call.voice_id, call.names.alternate_id}, []
    for text, at_ms in stored:
        event = msgspec.json.decode(text, type=EventEntry)
        ids = {canonical_id(each) for each in (event.voice_id, event.alternate_id) if each}
        is_callers = event.institution_key == call.institution_key and event.phone_last4 == last4
        if is_callers and not event.is_test and not ids & own:
            found.append(StrayPush(event.type, instant(at_ms)))
    return tuple(found)


def _sums(figures: Sequence[Snapshot], what: figure.Figure, label: str) -> Counter[str]:
    return sum((each.by(what, label) for each in figures), Counter[str]())


async def _deliveries(redis: Redis, keys: Keys, call: Call | None, trail: Sequence[Entry]) -> OutcomeDelivery:
    log = DeliveryLog(redis, keys.outbox)
    if call is None or await log.receiver() is None:
        return OutcomeDelivery()
    call_id = CallId(call.institution_key, call.voice_id)
    attempts = latest_of_each([attempt for attempt in await log.read() if attempt.call_id == call_id])
    accepted = sum(attempt.was_taken for attempt in attempts.values())
    return OutcomeDelivery(is_wanted=True, due=len(outcomes(trail)), accepted=accepted)
