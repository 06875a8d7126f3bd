"""What one call, for example a test call, showed of ten promises: its record and its trail are read, nobody is asked.

The lines have instants and counts, and nothing of the caller. docs/guarantees.md has the promises.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from redis.asyncio import Redis

from callkeeper.app.doctor.finding import Finding, Topic, fault, ok, warning
from callkeeper.app.redis_query import redis_now
from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import CHECK_LIMIT, Call
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Queries
from callkeeper.calls.trail import Entry

SOON: Final = timedelta(seconds=10)
"""From the first sign of a call to its push and to its listing, and from the push of its end to its being noticed."""
SETTLED_WITHIN: Final = timedelta(seconds=120)
"""From the noticed end to the settled call: the provider's final analysis may be waited for."""
CLOCK_AHEAD: Final = timedelta(seconds=3)
CLOCK_BEHIND: Final = timedelta(seconds=15)
"""More than the clock's own difference, because a call may be found up to ten seconds after its start."""

_ASK: Final = "callkeeper calls explain VOICE_ID shows everything that happened to the call"
_NO_PUSH: Final = "look at the attempts in the dashboard (Settings, Push Notifications): address, header, answer"


async def call_findings(redis: Redis, keys: Keys, any_id: str) -> list[Finding]:
    """Judge a call by its voice id or alternate id, live or settled; empty: nothing is known of it."""
    queries, now = Queries(redis, keys=keys), await redis_now(redis)
    found = []
    for call_id in await queries.find(any_id):
        call = await queries.load(call_id)
        if call is not None:
            found += judge(call_id, call, await queries.trail(call_id), now)
    return found


@dataclass(frozen=True, slots=True)
class WatchedCall:
    """A call with its trail. All instants are by Redis's clock, but for the start that the service tells."""

    call: Call
    trail: tuple[Entry, ...]
    now: datetime

    @property
    def first_sign_at(self) -> datetime:
        """Return when callkeeper first heard of the call, by a push or by the queue."""
        return min((entry.at for entry in self.trail), default=self.now)

    def entries(self, *what: str) -> list[Entry]:
        """Return the entries of the trail that say this, oldest first."""
        return [entry for entry in self.trail if entry.what in what]

    def first(self, what: str, kind: str | None = None) -> Entry | None:
        """Return the first entry that says this, of one kind if given."""
        return next((entry for entry in self.entries(what) if kind is None or entry.kind == kind), None)


def judge(call_id: CallId, call: Call, trail: Sequence[Entry], now: datetime) -> list[Finding]:
    """Return a finding for each promise, in the order of a call's life. What was not seen is a warning. Pure."""
    seen = WatchedCall(call, tuple(trail), now)
    found = (look(seen) for look in _PROMISES)
    return [Finding(each.topic, each.severity, each.detail, each.remedy, call_id.institution_key) for each in found]


def _pushed_start(seen: WatchedCall) -> Finding:
    pushed = seen.first("pushed", "start")
    if pushed is None:
        return _fault("it came without a CallStart, and was found by the queue", _NO_PUSH)
    late = pushed.at - seen.first_sign_at
    words = f"CallStart came at {_at(pushed.at)}, {_s(late)} after its first sign"
    return _ok(words) if late <= SOON else _fault(words, "ask the service's operator why its pushes are late")


def _listed(seen: WatchedCall) -> Finding:
    listed = seen.first("listed")
    if listed is None:
        return _fault("the queue never listed it", f"is its number on the institution's ignore list? {_ASK}")
    late = listed.at - seen.first_sign_at
    words = f"the queue listed it at {_at(listed.at)}, {_s(late)} after its first sign"
    return _ok(words) if late <= SOON else _fault(words, "see the lines about service and workers of callkeeper doctor")


def _named(seen: WatchedCall) -> Finding:
    if seen.call.names.other_voice_id is not None:
        return _fault(
            "an answer about it named another call, and was not used",
            "ask the service's operator how alternate ids are resolved; docs/assumptions.md says what is assumed",
        )
    kinds = {"push": ("pushed",), "queue": ("listed",), "details": ("read", "checked")}
    sources = [name for name, what in kinds.items() if seen.entries(*what)]
    if len(sources) < 2:
        return _warning(f"named by one source: {', '.join(sources) or 'none'}", _ASK)
    return _ok(f"one call for {', '.join(sources)}{', under two ids' if seen.entries('merged') else ''}")


def _clock(seen: WatchedCall) -> Finding:
    started = seen.call.life.started_at
    if started is None:
        return _warning("the service told no start", _ASK)
    behind = seen.first_sign_at - started
    if -behind > CLOCK_AHEAD or behind > CLOCK_BEHIND:
        which = f"behind Redis by about {_s(behind)}" if behind > timedelta() else f"ahead of Redis by {_s(-behind)}"
        return _fault(f"the service's clock is {which}", "synchronise the clocks (NTP); calls are handled all the same")
    return _ok(f"first seen {_s(behind)} after the start that the service tells")


def _assigned(seen: WatchedCall) -> Finding:
    named = next((entry for entry in seen.entries("read", "checked") if entry.person_id), None)
    if named is None:
        return _warning("nobody was assigned", "assign a test call while it lives, as an agent does")
    who = "callkeeper" if seen.first("sent", EffectKind.ASSIGN) else "somebody else"
    return _ok(f"{who} assigned it; seen at {_at(named.at)}")


def _checked(seen: WatchedCall) -> Finding:
    answered, failed, used = seen.entries("checked"), seen.entries("check_failed"), seen.call.plan.checks_used
    words = f"{len(answered)} of {len(answered) + len(failed)} checks answered, {used} of {CHECK_LIMIT} counted"
    if used > CHECK_LIMIT:
        return _fault(words, _ASK)
    if not answered and not failed:
        return _warning("no check was made", "assign a test call, and let it last at least 20 s from then on")
    return _ok(words) if answered else _fault(words, "see the last errors on the board, and callkeeper doctor")


def _pushed_end(seen: WatchedCall) -> Finding:
    if (pushed := seen.first("pushed", "end")) is not None:
        return _ok(f"CallEnd came at {_at(pushed.at)}")
    if seen.first("ended") is None:
        return _warning("it has not ended", "hang up, and look again")
    return _fault("it ended without a CallEnd", _NO_PUSH)


def _ended(seen: WatchedCall) -> Finding:
    pushed, ended = seen.first("pushed", "end"), seen.first("ended")
    if ended is None:
        is_late = pushed is not None and seen.now - pushed.at > SOON
        return _fault("its end was pushed, and not noticed", _ASK) if is_late else _warning("it has not ended", "")
    late = timedelta() if pushed is None else max(ended.at - pushed.at, timedelta())
    words = f"its end was noticed at {_at(ended.at)}" + ("" if pushed is None else f", {_s(late)} after its push")
    return _ok(words) if late <= SOON else _fault(words, _ASK)


def _settled(seen: WatchedCall) -> Finding:
    ended, settled = seen.first("ended"), seen.first("settled")
    if ended is None and settled is None:
        return _warning("it is not settled", "look again two minutes after its end")
    took = (settled.at if settled else seen.now) - (ended.at if ended else seen.first_sign_at)
    if settled is None:
        words = f"not settled {_s(took)} after its end"
        return _fault(words, _ASK) if took > SETTLED_WITHIN else _warning(words, "look again")
    words = f"settled as {settled.because or 'no reason'}" + (f", {_s(took)} after its end" if ended else "")
    return _fault(words, _ASK) if ended is not None and took > SETTLED_WITHIN else _ok(words)


def _effects(seen: WatchedCall) -> Finding:
    sent = [entry for entry in seen.entries("sent") if entry.kind in {EffectKind.ENROLL, EffectKind.REJECT}]
    nameless = sum(entry.rules is None for entry in seen.entries("decided"))
    if nameless:
        return _fault(f"{nameless} decisions name no rules", "report this: it is a bug")
    if not sent:
        return _ok("no enroll and no reject was sent, and every decision names its rules")
    told = ", ".join(f"{entry.kind} at {_at(entry.at)}" for entry in sent)
    return _warning(f"sent: {told}", f"if this was to be a test under watch-only rules: callkeeper pause. {_ASK}")


_PROMISES: Final[tuple[Callable[[WatchedCall], Finding], ...]] = (
    *(_pushed_start, _listed, _named, _clock, _assigned),
    *(_checked, _pushed_end, _ended, _settled, _effects),
)


def _ok(detail: str) -> Finding:
    return ok(Topic.CALL, detail)


def _warning(detail: str, remedy: str) -> Finding:
    return warning(Topic.CALL, detail, remedy)


def _fault(detail: str, remedy: str) -> Finding:
    return fault(Topic.CALL, detail, remedy)


def _s(span: timedelta) -> str:
    return f"{span.total_seconds():.1f} s"


def _at(at: datetime) -> str:
    return f"{at:%H:%M:%S}"
