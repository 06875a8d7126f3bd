"""Looks at an institution's queue and tells the calls in it that they are there: how new calls are found.

Three sizes: a look after a push (what started since the newest call we know), a regular or wide look (the last
minutes), and every minute the full listing, page by page with a saved cursor, which also finds the calls that are no
longer listed.

The Spec shows neither the bounds of `pageSize` nor the meaning of `continueFrom`. What a service does is learnt from
what it answers, and remembered with the institution's listing progress.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from calls.institutions import ListingProgress, Paging, encode_progress, parse_progress
from calls.lease import ClaimedItem, Placement
from calls.metrics import catalogue as figure
from calls.notes import Unlisted, fingerprint, listed_of, plausible_start
from calls.store.inbox import Ask
from calls.store.keys import CallId
from calls.store.listings import Listings
from reseller import AccessRefused, InstitutionNotFound, QueueEntry, ResellerError, ServiceRefused
from reseller.endpoints import is_voice_id
from workers.claim import Tools
from workers.measurements import JobSummary

AskPage = Callable[[int, int], Awaitable[Sequence[QueueEntry]]]
"""Asks for a page: `continueFrom`, `pageSize`."""

SMALLEST = 5
"""A page of so few entries is refused for another reason than its size."""

SHORT = 10
"""A page with fewer entries is the last one, to a look. Assumed: a service gives ten entries at once if it has them."""


@dataclass(slots=True)
class QueuePages:
    """Reads a queue from ``cursor`` on.

    Attributes:
        ask: Asks for one page.
        size: How many entries to ask for, where the service is not known to refuse that.
        paging: What was learnt of the service, and is learnt now.
        cursor: The `continueFrom` of the next page.
        to_the_end: Whether to go on until a page brings nothing new, however short the pages are.
        is_over: Whether the page that was read last is the last one.
        news: How many calls it brought that no page before had.
    """

    ask: AskPage
    size: int
    paging: Paging
    cursor: int = 0
    to_the_end: bool = False
    is_over: bool = False
    news: int = 0
    _seen: set[str] = field(default_factory=set)
    _first: list[str] = field(default_factory=list)

    async def read(self) -> Sequence[QueueEntry]:
        """Return the next page.

        Raises:
            ResellerError: As the queue does; a refusal past the first page is the end.
        """
        entries = await self._page(self.cursor)
        ids = [entry.voice_id for entry in entries]
        news = set(ids) - self._seen
        is_full = len(entries) >= min(self._size, max(SHORT, self.paging.largest))
        self.paging = replace(self.paging, largest=max(self.paging.largest, len(entries)))
        await self._learn(ids, is_full=is_full)
        # The first page may have the number 0 or 1: nothing new on page 1 says nothing.
        has_more = bool(news) or (self.paging.counts_pages is True and self.cursor == 1)
        self.is_over = not has_more or not (is_full or self.to_the_end)
        self.news = len(news)
        self._seen |= news
        # An entry that names no call may not count where the service counts: rather a call twice than none.
        self.cursor += 1 if self.paging.counts_pages else sum(map(bool, ids))
        return entries

    @property
    def _size(self) -> int:
        return min(self.size, self.paging.size or self.size)

    async def _page(self, begin: int) -> Sequence[QueueEntry]:
        try:
            return await self.ask(begin, self._size)
        except ServiceRefused as refused:
            if begin:
                return ()
            if isinstance(refused, InstitutionNotFound):
                raise
            return await self._smaller_page(refused)

    async def _smaller_page(self, refused: ServiceRefused) -> Sequence[QueueEntry]:
        """Halve the size until a page is answered, and remember it if the larger one is still refused then."""
        size = self._size
        while (size := size // 2) >= SMALLEST:
            with suppress(ServiceRefused):
                entries = await self.ask(0, size)
                break
        else:
            raise refused
        try:
            return await self.ask(0, self._size)
        except ServiceRefused:
            self.paging = Paging(size=size, counts_pages=self.paging.counts_pages)
            return entries

    async def _learn(self, ids: list[str], *, is_full: bool) -> None:
        """Find out whether `continueFrom` counts entries or pages, from a page that begins in the middle of the first.

        If it counts entries that page begins with a call that is known and is not the first. If it counts pages it has
        other calls, or none. If it is the first page again, nothing is known.
        """
        if self.cursor == 0:
            self._first = ids
        elif self.paging.counts_pages and self._shows_entries(ids):
            self.paging = replace(self.paging, counts_pages=False)
        if self.cursor == 0 and is_full and self.paging.counts_pages is None:
            middle = [entry.voice_id for entry in await self._page(len(ids) // 2)]
            if self._shows_entries(middle):
                self.paging = replace(self.paging, counts_pages=False)
            elif not set(middle) & set(ids):
                self.paging = replace(self.paging, counts_pages=True)

    def _shows_entries(self, ids: list[str]) -> bool:
        return bool(ids) and bool(self._first) and ids[0] != self._first[0] and bool(set(ids) & set(self._first))


OVERLAP = timedelta(seconds=2)
"""How far before the newest start a look after a push begins: entries may come out of order. What comes later than that is
found by the wide look that its hint asks for half a second later."""

WIDE = timedelta(seconds=120)
"""How far back a wide look goes: the service's clock may differ, and an entry may come late."""

BORNE_OUT = timedelta(hours=1)
"""How far apart two starts may be of which one bears out the other. Until then a look lists a little more."""

FULL_EVERY_S = 60.0
IDLE_S = 8.0
LONGEST_RETRY_S = 5.0
"""A queue that cannot be listed is tried this often at least, so that its calls are found soon when it can."""

RENEW_AFTER_S = 1.0
"""A listing whose lease is older renews it before it asks again."""

Choose = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class Listing:
    """Carries out the looks at one institution's queue."""

    tools: Tools
    listings: Listings
    reconcile_s: float
    page_size: int = 500
    choose: Choose = random.uniform
    told: Callable[[], None] = lambda: None
    """Called when calls were told something: they are due."""

    async def run(self, item: ClaimedItem, institution_key: str, tally: JobSummary) -> bool:
        """Look as much as was asked for, plan the next look, and return whether the service refused the institution.

        Raises:
            LeaseLost: Somebody else looks at this queue now.
        """
        progress = self._progress(item, institution_key)
        asked = {note.decode() for note in item.notes}
        tally.add("institutions")
        retry_s: float | None = None
        is_refused = False
        try:
            progress = await self._look(item, progress, asked, tally)
            progress, outcome = replace(progress, failures=0), "answered"
        except AccessRefused as error:
            retry_s, is_refused, outcome = error.retry_after_s, True, "refused"
        except ResellerError as error:
            self.tools.log.warning(
                "listing_failed", institution=institution_key, error=type(error).__name__, said=error.plain
            )
            tally.add("listings_failed")
            is_refused = isinstance(error, ServiceRefused)
            progress, outcome = replace(progress, failures=progress.failures + 1), "refused" if is_refused else "failed"
        self.tools.counting.figures.count(figure.LISTINGS, self.tools.counting.label(institution_key), outcome)
        due_in_ms = await self._due_in_ms(progress) if retry_s is None else int(retry_s * 1000) + 1
        await self.tools.store.save(item, encode_progress(progress), Placement(due_in_ms))
        return is_refused

    def _progress(self, item: ClaimedItem, institution_key: str) -> ListingProgress:
        """Return how far the listing is; if that cannot be read it begins anew, with a full one."""
        try:
            return parse_progress(item.record) if item.record else ListingProgress(institution_key=institution_key)
        except msgspec.MsgspecError:
            self.tools.store.unreadable("listing", institution_key)
            return ListingProgress(institution_key=institution_key)

    async def _look(
        self, item: ClaimedItem, progress: ListingProgress, asked: set[str], tally: JobSummary
    ) -> ListingProgress:
        now, is_narrow = item.now, asked == {Ask.LOOK} and progress.newest_at is not None
        full_is_due = progress.full_at is None or not 0 <= (now - progress.full_at).total_seconds() < FULL_EVERY_S
        if full_is_due or progress.cursor is not None or Ask.FULL in asked:
            progress, is_narrow = await self._full(item, progress, tally), False
        else:
            progress = await self._pages(item, progress, tally, since=_since(progress, asked, now), is_full=False)
        if not is_narrow:
            await self.tools.store.note_look(progress.institution_key, now)
        return progress

    async def _full(self, item: ClaimedItem, progress: ListingProgress, tally: JobSummary) -> ListingProgress:
        key, now = progress.institution_key, item.now
        if progress.cursor is None:
            await self.listings.begin_listing(key)
            progress = replace(progress, cursor=0, newest_at=None)  # the service's clock may have been set back
        progress = await self._pages(item, progress, tally, since=None, is_full=True)
        absent = await self.listings.absent(key)
        tally.found(key, gone=len(absent))
        for voice_id in absent:
            taken, _ = await self.tools.store.note(CallId(key, voice_id), Unlisted(listed_at=now))
            if not taken:
                await self.listings.forget_listed(key, voice_id)
        return replace(progress, cursor=None, full_at=now)

    async def _pages(
        self, item: ClaimedItem, progress: ListingProgress, tally: JobSummary, *, since: datetime | None, is_full: bool
    ) -> ListingProgress:
        """Read page after page.

        A full listing saves how far it is and ends when a page brings nothing new; a look ends with the first page that is
        not full, and begins anew.
        """
        monotonic = self.tools.monotonic
        renewed_at_s = monotonic()

        async def ask(cursor: int, size: int) -> Sequence[QueueEntry]:
            # To read one page may take several requests: where each is slow the lease would end between them.
            nonlocal renewed_at_s
            if monotonic() - renewed_at_s > RENEW_AFTER_S:
                await self.tools.store.keep(item)
                renewed_at_s = monotonic()
            return await self._page(progress.institution_key, since, cursor, size)

        pages = QueuePages(
            ask,
            self.page_size,
            progress.paging,
            cursor=(progress.cursor or 0) if is_full else 0,
            to_the_end=is_full,
        )
        while True:
            entries = await pages.read()
            starts = [start for entry in entries if (start := plausible_start(entry, item.now))]
            self.tools.clock.see(starts)
            told = await self._tell(progress.institution_key, entries, item.now, is_full=is_full)
            if is_full:
                tally.found(progress.institution_key, listed=pages.news, told=told)
            progress = replace(progress, newest_at=_newest(progress, starts), paging=pages.paging)
            if pages.is_over:
                return progress
            if is_full:
                progress = replace(progress, cursor=pages.cursor)
            await self.tools.store.keep(item, encode_progress(progress) if is_full else None)
            renewed_at_s = monotonic()

    async def _page(self, key: str, since: datetime | None, cursor: int, size: int) -> Sequence[QueueEntry]:
        return await self.tools.service.queue(
            key, continue_from=cursor, page_size=size, start_at=since, requested_by=self.tools.requested_by(key)
        )

    async def _tell(self, key: str, entries: Sequence[QueueEntry], now: datetime, *, is_full: bool) -> int:
        """Leave a note on every call whose entry is new or has changed; return how many those are."""
        reasons = [_unusable(entry) for entry in entries]
        self._note_skipped(key, Counter(reason for reason in reasons if reason))
        usable = [entry for entry, reason in zip(entries, reasons, strict=True) if reason is None]
        found = {entry.voice_id: listed_of(entry, now) for entry in usable}
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

    def _note_skipped(self, key: str, skipped: Counter[str]) -> None:
        """Say which entries are left out: nobody would know of their calls otherwise."""
        for reason, entries in skipped.items():
            self.tools.log.warning("queue_entries_skipped", institution=key, reason=reason, entries=entries)
            self.tools.counting.figures.count(figure.ENTRIES_SKIPPED, key, reason, n=entries)

    async def _due_in_ms(self, progress: ListingProgress) -> int:
        """Return the wait until the next regular look: shorter while calls are live, longer after failures."""
        is_live = await self.listings.has_open(progress.institution_key)
        period_s = self.reconcile_s if is_live else max(IDLE_S, self.reconcile_s)
        if progress.failures:
            period_s = min(LONGEST_RETRY_S, 2.0 ** min(progress.failures, 5) / 2)
        return int(period_s * self.choose(0.8, 1.0) * 1000)


def _since(progress: ListingProgress, asked: set[str], now: datetime) -> datetime | None:
    """Return from which start on a look asks, by the service's clock: ours may be hours ahead of it.

    Never later than our own present: starts ahead of that may be local times without a zone, which the service compares as
    others. If its clock is ahead, a look lists all calls that are live.

    None, for all calls, where no start is known: a service that says nothing of starts may have none to compare.
    """
    if progress.newest_at is None:
        return None
    return min(progress.newest_at, now) - (OVERLAP if asked == {Ask.LOOK} else WIDE)


def _unusable(entry: QueueEntry) -> str | None:
    """Return why nothing can be done about an entry's call; None if something can."""
    if not entry.voice_id:
        return "no_voice_id"
    if not is_voice_id(entry.voice_id):
        return "odd_voice_id"
    return None


def _newest(progress: ListingProgress, starts: Sequence[datetime]) -> datetime | None:
    """Return the latest start that was ever listed and that another one bears out, by the service's clock.

    A single start far ahead of all others is an error: later looks would begin there, and find nothing.
    """
    known = sorted([*starts, progress.newest_at] if progress.newest_at else starts)
    borne_out = [later for earlier, later in pairwise(known) if later - earlier <= BORNE_OUT]
    return max(
        [*borne_out, *known[:1]] if progress.newest_at is None else [*borne_out, progress.newest_at], default=None
    )
