"""What the service last listed: the institutions and their standing, and how far each queue's listing is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec
from redis.asyncio import Redis

from callkeeper.calls.institutions import NO_VOICE_AUTH, NOT_ACTIVE, TEST_MODE
from callkeeper.calls.item_names import institution_member
from callkeeper.calls.store.in_bytes import RedisInBytes, in_bytes
from callkeeper.calls.store.keys import KEYS, Keys
from callkeeper.calls.stored_value import readable
from callkeeper.service.config import PATIENCE_S
from callkeeper.service.endpoints import institution_of

DISOWNED_S = 3600
"""For this many seconds the list alone does not bring back an institution whose queue was refused."""

LOOK_BACKS_A_MINUTE = 300
"""How many ended, unlisted calls may be read per minute, over all institutions."""

MOST_UNLISTED = 50_000
"""How many calls may wait for the queue to list them, or for their look-back. More are not waited for, but forgotten."""

STANDING_FRESH = timedelta(minutes=2)
"""How old the standing may be before an enroll or reject. If it is older, the institution is asked for by key first."""

STANDING_BELIEVED = timedelta(minutes=15)
"""For how long the last Active counts if nobody answers: an outage of the service's administration, which calls do not
need, should not stop effects at once."""

ASK_AGAIN = timedelta(seconds=10)
"""How soon an institution is asked for again after no answer, by all workers together."""

_SKEW = timedelta(seconds=5)
"""An instant may be ahead by this much, because a claim counts on from Redis's time. One further ahead is from before
Redis's clock was set back, and counts as old."""


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the service says of an institution that we may manage: five fields of its record. Spec: Institution.

    The secrets in that record never leave the parser. ``is_handled_in_test``: the settings say that its calls are handled
    although it is in test mode. ``told_at`` is when the service said so, by Redis's clock; a stored one has it.
    ``unanswered_at`` is when it was asked last without an answer since; None if it answered.
    """

    key: str
    name: str | None = None
    status: str | None = None
    has_voice_auth: bool = False
    is_test_mode: bool = False
    is_handled_in_test: bool = False
    told_at: datetime | None = None
    unanswered_at: datetime | None = None

    def is_younger(self, age: timedelta, now: datetime) -> bool:
        """Tell whether the service said so at most this long ago."""
        return _is_within(self.told_at, age, now)

    def held_until(self, now: datetime) -> datetime | None:
        """Return until when enrolls and rejects wait because the last Active is too old and nobody answered; else None.

        Then the service is asked again. An institution that is not Active is held for that reason alone.
        """
        if self.unanswered_at is None or not self.is_unanswered(now) or not self.is_unknown(now):
            return None
        return self.unanswered_at + ASK_AGAIN

    def is_unanswered(self, now: datetime) -> bool:
        """Tell whether the service was asked a moment ago and did not answer."""
        return _is_within(self.unanswered_at, ASK_AGAIN, now)

    def is_unknown(self, now: datetime) -> bool:
        """Tell whether the last Active is too old to count, and the service did not answer when it was asked again."""
        is_believed = self.is_younger(STANDING_BELIEVED, now)
        return self.obstacle is None and self.unanswered_at is not None and not is_believed

    @property
    def obstacle(self) -> str | None:
        """Return why nothing may be done for its calls; None if there is no obstacle."""
        if self.status != "Active":
            return NOT_ACTIVE
        if not self.has_voice_auth:
            return NO_VOICE_AUTH
        return TEST_MODE if self.is_test_mode and not self.is_handled_in_test else None


class Paging(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was learned of the paging of an institution's queue, which the Spec does not describe.

    ``size`` is how many entries can be asked for; None while no size was refused. ``refused`` is the size that was
    refused last, while no smaller one was answered. ``largest`` is the most entries that a page has had, or
    fewer if another page followed a smaller one. ``counts_pages`` says whether `continueFrom` counts pages instead of
    entries; None while unknown.
    """

    size: int | None = None
    refused: int | None = None
    largest: int = 0
    counts_pages: bool | None = None


class ListingProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the listing of an institution's queue is. Stored as the record of its member in the due set.

    ``newest_at`` is the latest start of a listed call, by the service's clock; ``newest_id`` is that call.
    ``misread_at`` is when a look did not list that call although it was live: the service compares other start times
    than it shows. ``regular_at`` is the last look that no push asked for. ``whole_at`` is when the whole queue was last
    listed, in ``pages`` pages; ``to_the_end_at`` when it was last listed until a page brought nothing new. ``unlisted``
    are the open calls that it did not contain; each got a note.
    """

    institution_key: str
    newest_at: datetime | None = None
    newest_id: str | None = None
    misread_at: datetime | None = None
    regular_at: datetime | None = None
    whole_at: datetime | None = None
    to_the_end_at: datetime | None = None
    pages: int = 1
    unlisted: frozenset[str] = frozenset()
    failures: int = 0
    paging: Paging = Paging()


OVERLAP = timedelta(seconds=1)
"""How far before the newest start a look after a push begins, because entries may come out of order. Later entries are
found by the wide look that the hint asks for half a second later."""

WIDE = timedelta(seconds=120)
"""How far back a wide look goes, because the service's clock may differ and an entry may come late."""

TO_THE_END_EVERY_S = 60.0
"""How often a queue is listed until a page brings nothing new, in seconds."""

IDLE_S = 8.0
"""How often, in seconds, the queue of an institution without live calls is looked at."""

LONGEST_RETRY_S = 5.0
"""The longest wait, in seconds, before a failed listing is tried again, so that calls are found soon after."""

EARLIEST = 0.8
"""Regular looks are spread out: each comes after at least this share of the period."""

BORNE_OUT = timedelta(hours=1)
"""A start time is trusted if another one lies within this time before it. Until then a look lists a little more."""

MISREAD = timedelta(hours=1)
"""For how long looks list all calls after the service misread a start time."""


def list_from(progress: ListingProgress, now: datetime, *, after_push: bool) -> datetime | None:
    """Return the start time from which a look lists calls, by the service's clock, which may be hours behind ours.

    It is never later than our own time: a start ahead of that may be a local time without a zone, which the service
    compares differently. If the service's clock is ahead, a look lists all live calls.

    Assumed (`queue-start-bounds`): ``startDate`` compares the starts that the queue shows.

    None means all calls. That is so if no start is known, because the service may have none to compare, and if a look
    recently missed a live call that started later (local times without a zone, or a clock that is behind).
    """
    is_misread = progress.misread_at is not None and timedelta() <= now - progress.misread_at < MISREAD
    if progress.newest_at is None or is_misread:
        return None
    return min(progress.newest_at, now) - (OVERLAP if after_push else WIDE)


def newest_start(progress: ListingProgress, starts: Sequence[datetime]) -> datetime | None:
    """Return the latest start ever listed that another start confirms, by the service's clock.

    Assumed (`queue-order`): the order of a queue says nothing.

    A single start far ahead of all others is an error. If looks began there, they would find nothing.
    """
    known = sorted([*starts, progress.newest_at] if progress.newest_at else starts)
    borne_out = [later for earlier, later in pairwise(known) if later - earlier <= BORNE_OUT]
    return max(
        [*borne_out, *known[:1]] if progress.newest_at is None else [*borne_out, progress.newest_at], default=None
    )


def is_due_to_the_end(progress: ListingProgress, now: datetime) -> bool:
    """Tell whether the queue must be listed until a page brings nothing new."""
    return _is_over(progress.to_the_end_at, TO_THE_END_EVERY_S, now)


def is_first_listing(progress: ListingProgress, since: datetime, now: datetime) -> bool:
    """Tell whether the queue was not yet listed until a page brought nothing new. ``since``: when this Redis was new."""
    return progress.to_the_end_at is None or not since <= progress.to_the_end_at <= now


def is_due_whole(progress: ListingProgress, now: datetime, reconcile_s: float) -> bool:
    """Tell whether the whole queue must be listed: less often if it has several pages."""
    return _is_over(progress.whole_at, min(TO_THE_END_EVERY_S, progress.pages * EARLIEST * reconcile_s), now)


def _is_within(at: datetime | None, age: timedelta, now: datetime) -> bool:
    return at is not None and -_SKEW <= now - at <= age


def _is_over(at: datetime | None, for_s: float, now: datetime) -> bool:
    """Tell whether ``at`` is None, at least ``for_s`` seconds ago, or in the future because a clock was set back."""
    return at is None or not 0 <= (now - at).total_seconds() < for_s


def next_listing_ms(
    progress: ListingProgress,
    now: datetime,
    reconcile_s: float,
    *,
    is_live: bool,
    choose: Callable[[float, float], float],
) -> int:
    """Return the wait until the next regular look: shorter while calls are live, longer after failures.

    Looks after pushes do not delay it. ``choose`` picks the share of the period, between two bounds.
    """
    period_s = reconcile_s if is_live else max(IDLE_S, reconcile_s)
    since_s = 0.0 if progress.regular_at is None else max(0.0, (now - progress.regular_at).total_seconds())
    if progress.failures:
        period_s, since_s = min(LONGEST_RETRY_S, progress.failures / 2), 0.0
    return int(max(0.0, period_s * choose(EARLIEST, 1.0) - since_s) * 1000)


_ENCODER = msgspec.json.Encoder()


def encode_progress(progress: ListingProgress) -> bytes:
    """Encode a listing's progress for storage."""
    return _ENCODER.encode(progress)


def parse_standings(stored: Mapping[bytes, bytes]) -> dict[str, Standing]:
    """Decode all standings by institution. Those that cannot be read are left out."""
    found = ((key.decode(errors="replace"), readable(value, Standing)) for key, value in stored.items())
    return {key: standing for key, standing in found if standing is not None}


class LookBackAllowance:
    """The look-backs of the current minute, counted in Redis. Calls beyond its limit get the turns that follow."""

    def __init__(self, redis: RedisInBytes, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    async def are_used_up(self, now: datetime) -> bool:
        """Tell whether no call may be read in this minute any more. Then none needs to take a permit."""
        asked = await self._redis.get(self._keys.look_backs(_minute(now)))
        return asked is not None and int(asked) >= LOOK_BACKS_A_MINUTE

    async def turn_in_s(self, now: datetime) -> float | None:
        """Return 0 if a call may be read now, else after how many seconds to ask again; None if too many wait.

        If Redis repeats the command, one turn is lost. That errs on the safe side.
        """
        key = self._keys.look_backs(_minute(now))
        pipe = self._redis.pipeline(transaction=True)
        pipe.incr(key).expire(key, 120).zcard(self._keys.due).zcard(self._keys.live)
        asked, _, due, live = await pipe.execute()
        if asked <= LOOK_BACKS_A_MINUTE:
            return 0.0
        return 60.0 * asked / LOOK_BACKS_A_MINUTE if due - live <= MOST_UNLISTED else None


def _minute(now: datetime) -> int:
    return int(now.timestamp()) // 60


class Listings:
    """Remembers what was listed, so that only changed calls get a note."""

    def __init__(
        self,
        redis: Redis,
        *,
        keys: Keys = KEYS,
        unreadable: Callable[[str, str], None] = lambda _what, _about: None,
    ) -> None:
        """Set up. ``unreadable`` is called with the kind of a stored value that cannot be read, and its institution."""
        self._redis = in_bytes(redis)
        self.keys = keys
        self._unreadable = unreadable

    def progress(self, stored: bytes, institution_key: str) -> ListingProgress:
        """Decode the stored progress of a listing. If it cannot be read, start again with a full listing."""
        progress = readable(stored, ListingProgress)
        if stored and progress is None:
            self._unreadable("listing", institution_key)
        return progress or ListingProgress(institution_key=institution_key)

    async def may_miss(self, institution_key: str, pushed_at: datetime | None, now: datetime) -> bool:
        """Tell whether looks at an institution's queue may not show a call that was pushed.

        The last look failed, or none has ended that began after the push: one that hangs fails only after `PATIENCE_S`.
        """
        stored = await self._redis.hget(self.keys.item(institution_member(institution_key)), "rec")
        if self.progress(stored or b"", institution_key).failures > 0:
            return True
        if pushed_at is None or (now - pushed_at).total_seconds() > PATIENCE_S:
            return False
        listed_at = await self.last_listed_at(institution_key, now)
        return listed_at is None or listed_at < pushed_at

    async def standings(self) -> dict[str, Standing]:
        """Return what the service last said of the institutions. What cannot be read is left out."""
        stored = await self._redis.hgetall(self.keys.standings)
        found = parse_standings(stored)
        for key in {key.decode(errors="replace") for key in stored} - found.keys():
            self._unreadable("standing", key)
        return found

    async def save_standings(self, standings: Iterable[Standing]) -> None:
        """Store what the service says of institutions. The last answer counts, however old, for all but effects."""
        stored = {standing.key: _ENCODER.encode(standing) for standing in standings}
        if not stored:
            return
        await self._redis.hset(self.keys.standings, mapping=stored)

    async def standing(self, institution_key: str) -> Standing | None:
        """Return what the service last said of one institution; None if nothing or it cannot be read."""
        stored = await self._redis.hget(self.keys.standings, institution_key)
        return readable(stored, Standing)

    async def may_ask(self, about: str, now: datetime, every: timedelta) -> bool:
        """Tell whether this worker is the one that asks the service in the current period.

        Periods are numbered from the epoch on, so that no clock that is set back can make a turn last longer.
        """
        number = int(now.timestamp() // every.total_seconds())
        return bool(await self._redis.set(self.keys.asking(about, number), "1", nx=True, ex=2 * every))

    async def take_owned(
        self, listed: Iterable[str], now: datetime, *, others: Iterable[str] = ()
    ) -> tuple[dict[str, datetime | None], set[str]]:
        """Store the institution keys of a login.

        A key that an earlier login listed is kept, because one answer without it proves nothing.

        Args:
            listed: The keys of this login.
            now: Redis's time.
            others: Keys of institutions that the service named in another way. Those disowned within the last hour do
                not count.

        Returns:
            Every key ever listed and not disowned, with the time since when it is missing or None; and the keys that
            are missing for the first time.
        """
        owned, listed = await self._owned(), set(listed)
        gone = {key for key, since in owned.items() if since is None and key not in listed}
        if new := set(others) - owned.keys() - listed:
            gone |= new - {key.decode() for key in await self._redis.smembers(self.keys.disowned)}
        news: dict[str, datetime | None] = dict.fromkeys(key for key in listed if owned.get(key, now) is not None)
        news |= dict.fromkeys(gone, now)
        if news:
            stored = {key: "" if since is None else since.isoformat() for key, since in news.items()}
            await self._redis.hset(self.keys.owned, mapping=stored)
        return owned | news, gone

    async def missing(self) -> dict[str, datetime]:
        """Return the institutions that the latest logins did not list, and since when."""
        return {key: since for key, since in (await self._owned()).items() if since is not None}

    async def disown(self, institution_key: str) -> None:
        """Forget an institution. A login that lists it brings it back, the list only after an hour."""
        pipe = self._redis.pipeline(transaction=True)
        pipe.hdel(self.keys.standings, institution_key).hdel(self.keys.owned, institution_key)
        await pipe.sadd(self.keys.disowned, institution_key).expire(self.keys.disowned, DISOWNED_S).execute()

    async def forget_refusals(self, institution_key: str) -> None:
        """Forget which operations of an institution got 401 although the token was good."""
        scopes = [scope.decode() for scope in await self._redis.hkeys(self.keys.refused)]
        if its := [scope for scope in scopes if institution_of(scope) == institution_key]:
            await self._redis.hdel(self.keys.refused, *its)

    async def _owned(self) -> dict[str, datetime | None]:
        stored = await self._redis.hgetall(self.keys.owned)
        return {key.decode(): self._missing_since(key.decode(), since) for key, since in stored.items()}

    def _missing_since(self, institution_key: str, stored: bytes) -> datetime | None:
        try:
            return datetime.fromisoformat(stored.decode()) if stored else None
        except ValueError:
            self._unreadable("owned", institution_key)
            return None

    async def record_listing(self, institution_key: str, at: datetime) -> None:
        """Record that a complete look at an institution's queue began, by Redis's clock."""
        await self._redis.hset(self.keys.looked, institution_key, at.isoformat())

    async def last_listed_at(self, institution_key: str, now: datetime) -> datetime | None:
        """Return when the last complete look at an institution's queue began; None if unknown.

        It is unknown if Redis's clock was set back since.
        """
        stored = await self._redis.hget(self.keys.looked, institution_key)
        try:
            listed_at = None if stored is None else datetime.fromisoformat(stored.decode())
        except ValueError:
            return None
        return None if listed_at is None or listed_at - now > _SKEW else listed_at

    async def fingerprints(self, institution_key: str, voice_ids: Sequence[str]) -> list[str | None]:
        """Return the fingerprint of each call's last queue entry; None if it was not listed."""
        if not voice_ids:
            return []
        stored = await self._redis.hmget(self.keys.opened(institution_key), list(voice_ids))
        return [None if value is None else value.decode() for value in stored]

    async def listed(self, institution_key: str, prints: dict[str, str]) -> None:
        await self._redis.hset(self.keys.opened(institution_key), mapping=prints)

    async def has_open(self, institution_key: str) -> bool:
        return bool(await self._redis.exists(self.keys.opened(institution_key)))

    async def absent(self, institution_key: str, seen: set[str]) -> frozenset[str]:
        """Return the ids of open calls that a listing of the whole queue did not contain."""
        opened = await self._redis.hkeys(self.keys.opened(institution_key))
        return frozenset(voice_id.decode() for voice_id in opened) - seen

    async def forget_listed(self, institution_key: str, voice_id: str) -> None:
        """Drop an open call without a record, because its note was refused."""
        await self._redis.hdel(self.keys.opened(institution_key), voice_id)
