"""Looks at an institution's queue and tells the calls in it that they are there: how new calls are found.

Three sizes: a look after a push (what started since the newest call we know), a regular or wide look (the last minutes), and
every minute the full listing, page by page with a saved cursor, which also finds the calls that are no longer listed.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from calls.held import Held, Placement
from calls.institution import Watch, encode_watch, parse_watch
from calls.keys import CallId
from calls.listings import Listings
from calls.notes import Listed, Unlisted
from calls.reading import fingerprint, listed_of
from calls.store import Ask
from reseller import AccessRefused, QueueEntry, ResellerError, ServiceRefused
from reseller.keys import is_voice_id
from workers.tally import Tally
from workers.tools import Tools

PAGE = 500
"""Entries asked for at once. Assumed: the Spec shows no bounds of pageSize."""

OVERLAP = timedelta(seconds=2)
"""How far before the newest start a look after a push begins: entries may come out of order. What comes later than that is
found by the wide look that its hint asks for half a second later."""

WIDE = timedelta(seconds=120)
"""How far back a wide look goes: the service's clock may differ, and an entry may come late."""

FULL_EVERY_S = 60.0
IDLE_S = 8.0

Choose = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class Listing:
    """Carries out the looks at one institution's queue."""

    tools: Tools
    listings: Listings
    reconcile_s: float
    choose: Choose = random.uniform
    told: Callable[[], None] = lambda: None
    """Called when calls were told something: they are due."""

    async def run(self, held: Held, institution_key: str, tally: Tally) -> bool:
        """Look as much as was asked for, plan the next look, and return whether the service refused the institution.

        Raises:
            LeaseLost: Somebody else looks at this queue now.
        """
        watch = parse_watch(held.record) if held.record else Watch(institution_key=institution_key)
        asked = {note.decode() for note in held.notes}
        tally.add("institutions")
        retry_s: float | None = None
        is_refused = False
        try:
            watch = await self._look(held, watch, asked, tally)
            watch = replace(watch, failures=0)
        except AccessRefused as error:
            retry_s, is_refused = error.retry_after_s, True
        except ResellerError as error:
            self.tools.log.warning("listing_failed", institution=institution_key, error=type(error).__name__)
            tally.add("listings_failed")
            is_refused = isinstance(error, ServiceRefused)
            watch = replace(watch, failures=watch.failures + 1)
        due_in_ms = await self._due_in_ms(watch) if retry_s is None else int(retry_s * 1000) + 1
        await self.tools.store.save(held, encode_watch(watch), Placement(due_in_ms))
        return is_refused

    async def _look(self, held: Held, watch: Watch, asked: set[str], tally: Tally) -> Watch:
        now = held.now
        full_is_due = watch.full_at is None or not 0 <= (now - watch.full_at).total_seconds() < FULL_EVERY_S
        if full_is_due or watch.cursor is not None or Ask.FULL in asked:
            return await self._full(held, watch, tally)
        since = min(watch.looked_at or now, now) - WIDE
        if asked == {Ask.LOOK} and watch.newest_at is not None:
            since = max(since, min(watch.newest_at, now) - OVERLAP)
        watch = await self._pages(held, watch, tally, since=since)
        return replace(watch, looked_at=now)

    async def _full(self, held: Held, watch: Watch, tally: Tally) -> Watch:
        key, now = watch.institution_key, held.now
        if watch.cursor is None:
            await self.listings.begin_listing(key)
            watch = replace(watch, cursor=0)
        watch = await self._pages(held, watch, tally, since=None)
        absent = await self.listings.absent(key)
        tally.found(key, gone=len(absent))
        for voice_id in absent:
            taken, _ = await self.tools.store.note(CallId(key, voice_id), Unlisted(listed_at=now))
            if not taken:
                await self.listings.forget_listed(key, voice_id)
        return replace(watch, cursor=None, full_at=now, looked_at=now)

    async def _pages(self, held: Held, watch: Watch, tally: Tally, *, since: datetime | None) -> Watch:
        """Read page after page.

        A full listing saves how far it is and ends when a page brings nothing new; a look ends with the first page that is
        not full, and begins anew.

        Assumed: the Spec shows neither bounds of pageSize nor whether a page may be short; what a look misses for that, the
        next full listing finds.
        """
        is_full = since is None
        cursor = (watch.cursor or 0) if is_full else 0
        seen: set[str] = set()
        while True:
            entries = await self._page(watch.institution_key, cursor, since)
            news = {entry.voice_id for entry in entries} - seen
            told = await self._tell(watch.institution_key, entries, held.now, is_full=is_full)
            if is_full:
                tally.found(watch.institution_key, listed=len(news), told=told)
            watch = replace(watch, newest_at=_newest(watch, entries))
            if not news or (not is_full and len(entries) < PAGE):
                return watch
            seen |= news
            cursor += len(entries)
            if is_full:
                watch = replace(watch, cursor=cursor)
            await self.tools.store.keep(held, encode_watch(watch) if is_full else None)

    async def _page(self, key: str, cursor: int, since: datetime | None) -> Sequence[QueueEntry]:
        entries = await self.tools.service.queue(
            key, continue_from=cursor, page_size=PAGE, start_at=since, requested_by=self.tools.requested_by(key)
        )
        self.tools.clock.see(entry.started_at for entry in entries)
        return entries

    async def _tell(self, key: str, entries: Sequence[QueueEntry], now: datetime, *, is_full: bool) -> int:
        """Leave a note on every call whose entry is new or has changed; return how many those are."""
        found: dict[str, Listed] = {}
        for entry in entries:
            if entry.is_usable and is_voice_id(entry.voice_id):
                found[entry.voice_id] = listed_of(entry, now)
        if not found:
            return 0
        prints = {voice_id: fingerprint(listed) for voice_id, listed in found.items()}
        known = await self.listings.fingerprints(key, list(prints))
        changed = {
            voice_id: told for (voice_id, told), before in zip(prints.items(), known, strict=True) if told != before
        }
        await asyncio.gather(*(self.tools.store.note(CallId(key, voice_id), found[voice_id]) for voice_id in changed))
        if changed:
            self.told()
        await self.listings.listed(key, changed, list(found) if is_full else None)
        return len(changed)

    async def _due_in_ms(self, watch: Watch) -> int:
        """Return the wait until the next regular look: shorter while calls are live, longer after failures."""
        is_live = await self.listings.has_open(watch.institution_key)
        period_s = self.reconcile_s if is_live else max(IDLE_S, self.reconcile_s)
        if watch.failures:
            period_s = min(30.0, 2.0 ** min(watch.failures, 5) / 2)
        return int(period_s * self.choose(0.8, 1.0) * 1000)


def _newest(watch: Watch, entries: Sequence[QueueEntry]) -> datetime | None:
    """Return the latest start that was ever listed, by the service's clock."""
    starts = [entry.started_at for entry in entries]
    return max(starts if watch.newest_at is None else [*starts, watch.newest_at], default=None)
