"""Lists an institution's queue and leaves a note on each call that is new or changed. New calls are found this way.

There are three kinds of look. After a push: calls that started since the newest known one. Every few seconds: the whole
queue, up to 500 calls per request. It shows which calls are live and who is assigned, so that stored details are read
only when that changes. A queue of several pages is listed less often; in between, only its last minutes are read. Every
minute: the whole queue until a page brings nothing new, however short the pages are.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from msgspec.structs import replace

from calls.lease import ClaimedItem, Placement
from calls.metrics import catalogue as figure
from calls.notes import Unlisted, fingerprint, listed_of, plausible_start
from calls.store.inbox import Ask
from calls.store.keys import CallId
from calls.store.listings import ListingProgress, Paging, encode_progress, look_from, newest_start, parse_progress
from calls.store.request_budget import Permit
from reseller import AccessRefused, QueueEntry, ResellerError, ServiceRefused
from reseller.endpoints import is_voice_id
from workers.claim import Tools
from workers.measurements import JobSummary
from workers.queue_pages import QueuePages

TO_THE_END_EVERY_S = 60.0
"""How often a queue is listed until a page brings nothing new, in seconds."""

IDLE_S = 8.0
"""How often, in seconds, the queue of an institution without live calls is looked at."""

LONGEST_RETRY_S = 5.0
"""The longest wait, in seconds, before a failed listing is tried again, so that calls are found soon after."""

EARLIEST = 0.8
"""Regular looks are spread out: each comes after at least this share of the period."""

RENEW_AFTER_S = 1.0
"""If the lease of a listing is older than this, it is renewed before the next request."""

Choose = Callable[[float, float], float]


class LookFailed(Exception):
    """A look failed with ``error``. What it learned of the paging before, ``paging``, is kept."""

    def __init__(self, error: ResellerError, paging: Paging) -> None:
        super().__init__(error, paging)
        self.error, self.paging = error, paging


@dataclass(frozen=True, slots=True)
class Listing:
    """Carries out the looks at one institution's queue."""

    tools: Tools
    reconcile_s: float
    page_size: int = 500
    choose: Choose = random.uniform
    told: Callable[[], None] = lambda: None
    """Called when calls got a note and are due."""

    async def run(self, item: ClaimedItem, institution_key: str, tally: JobSummary) -> bool:
        """Look as asked, and plan the next look. Return whether the service refused the institution.

        Raises:
            LeaseLost: Another worker lists this queue now.
        """
        progress = self._progress(item, institution_key)
        asked = {note.decode() for note in item.notes}
        tally.add("institutions")
        if wait_s := await self._permit_wait_s(item, institution_key):
            await self.tools.store.save(item, None, Placement(int(wait_s * 1000) + 1))  # the notes stay
            return False
        retry_s: float | None = None
        is_refused = False
        try:
            progress = await self._look(item, progress, asked, tally)
            progress, outcome = replace(progress, failures=0), "answered"
        except LookFailed as failed:
            error, progress = failed.error, replace(progress, paging=failed.paging)
            is_refused = isinstance(error, AccessRefused | ServiceRefused)
            outcome = "refused" if is_refused else "failed"
            if isinstance(error, AccessRefused):
                retry_s = error.retry_after_s
            else:
                self.tools.log.warning(
                    "listing_failed", institution=institution_key, error=type(error).__name__, said=error.plain
                )
                tally.add("listings_failed")
                progress = replace(progress, failures=progress.failures + 1)
        self.tools.counting.listed(institution_key, outcome)
        due_in_ms = await self._due_in_ms(progress, item.now) if retry_s is None else int(retry_s * 1000) + 1
        await self.tools.store.save(item, encode_progress(progress), Placement(due_in_ms))
        return is_refused

    async def _permit_wait_s(self, item: ClaimedItem, institution_key: str) -> float:
        return await self.tools.store.budget.wait_s(Permit.LISTING, item.member, institution_key)

    def _progress(self, item: ClaimedItem, institution_key: str) -> ListingProgress:
        """Return the stored progress of the listing. If it cannot be read, start again with a full listing."""
        try:
            return parse_progress(item.record) if item.record else ListingProgress(institution_key=institution_key)
        except msgspec.MsgspecError:
            self.tools.store.unreadable("listing", institution_key)
            return ListingProgress(institution_key=institution_key)

    async def _look(
        self, item: ClaimedItem, progress: ListingProgress, asked: set[str], tally: JobSummary
    ) -> ListingProgress:
        now, is_narrow = item.now, asked == {Ask.LOOK} and progress.newest_at is not None
        to_the_end = _is_over(progress.to_the_end_at, TO_THE_END_EVERY_S, now) or Ask.FULL in asked
        whole_every_s = min(TO_THE_END_EVERY_S, progress.pages * EARLIEST * self.reconcile_s)
        if to_the_end or _is_over(progress.whole_at, whole_every_s, now):
            (progress, _), is_narrow = await self._whole(item, progress, tally, to_the_end=to_the_end), False
        else:
            since, newest_id = look_from(progress, now, after_push=asked == {Ask.LOOK}), progress.newest_id
            progress, pages = await self._pages(item, progress, tally, since=since)
            if since is not None and not is_narrow and newest_id is not None and newest_id not in pages.seen:
                progress = await self._doubt(item, progress, newest_id, tally)
        if not is_narrow:
            progress = replace(progress, regular_at=now)
            await self.tools.listings.note_look(progress.institution_key, now)
        return progress

    async def _doubt(
        self, item: ClaimedItem, progress: ListingProgress, newest_id: str, tally: JobSummary
    ) -> ListingProgress:
        """List all calls because a look missed the newest one: it has ended, or the service misread the bound."""
        key = progress.institution_key
        if (await self.tools.listings.fingerprints(key, [newest_id]))[0] is None:
            return progress  # we know that it has ended
        progress, seen = await self._whole(item, progress, tally, to_the_end=True)
        if newest_id not in seen:
            return progress
        self.tools.log.warning("queue_bound_misread", institution=key)
        return replace(progress, misread_at=item.now)

    async def _whole(
        self, item: ClaimedItem, progress: ListingProgress, tally: JobSummary, *, to_the_end: bool
    ) -> tuple[ListingProgress, set[str]]:
        key, now = progress.institution_key, item.now
        if to_the_end:
            # The service's clock may have been set back.
            progress = replace(progress, newest_at=None, newest_id=None, to_the_end_at=now)
        progress, pages = await self._pages(item, progress, tally, since=None, to_the_end=to_the_end)
        absent = await self.tools.listings.absent(key, pages.seen)
        tally.found(key, listed=len(pages.seen), gone=len(absent))
        for voice_id in absent - progress.unlisted:
            taken, _ = await self.tools.store.note(CallId(key, voice_id), Unlisted(listed_at=now))
            if not taken:
                await self.tools.listings.forget_listed(key, voice_id)
        return replace(progress, whole_at=now, pages=max(1, pages.pages), unlisted=absent), pages.seen

    async def _pages(
        self,
        item: ClaimedItem,
        progress: ListingProgress,
        tally: JobSummary,
        *,
        since: datetime | None,
        to_the_end: bool = False,
    ) -> tuple[ListingProgress, QueuePages]:
        """Read pages up to the first that is not full, or up to the first that brings nothing new."""
        monotonic = self.tools.monotonic
        renewed_at_s = monotonic()
        has_permit = True  # `run` has taken the permit of the first page

        async def ask(cursor: int, size: int) -> Sequence[QueueEntry]:
            # One page may take several requests. If each is slow, the lease would end between them.
            nonlocal renewed_at_s, has_permit
            wait_s = 0.0 if has_permit else await self._permit_wait_s(item, progress.institution_key)
            has_permit = False
            while wait_s or monotonic() - renewed_at_s > RENEW_AFTER_S:
                await self.tools.store.keep(item)
                renewed_at_s = monotonic()
                if wait_s:
                    await self.tools.sleep(min(wait_s, RENEW_AFTER_S))
                    wait_s = await self._permit_wait_s(item, progress.institution_key)
            return await self._page(progress.institution_key, since, cursor, size)

        pages = QueuePages(ask, self.page_size, progress.paging, to_the_end=to_the_end)
        while True:
            try:
                entries = await pages.read()
            except ResellerError as error:
                raise LookFailed(error, pages.paging) from None
            ids = {start: entry.voice_id for entry in entries if (start := plausible_start(entry, item.now))}
            self.tools.clock.see(ids)
            told = await self._tell(progress, entries, item.now)
            if since is None:
                tally.found(progress.institution_key, told=told)
            newest_at = newest_start(progress, list(ids))
            newest_id = ids.get(newest_at, progress.newest_id) if newest_at else None
            progress = replace(progress, newest_at=newest_at, newest_id=newest_id, paging=pages.paging)
            if pages.is_over:
                return progress, pages
            await self.tools.store.keep(item)
            renewed_at_s = monotonic()

    async def _page(self, key: str, since: datetime | None, cursor: int, size: int) -> Sequence[QueueEntry]:
        return await self.tools.service.queue(
            key, continue_from=cursor, page_size=size, start_at=since, requested_by=self.tools.requested_by(key)
        )

    async def _tell(self, progress: ListingProgress, entries: Sequence[QueueEntry], now: datetime) -> int:
        """Leave a note on every call whose entry is new or changed. Return how many there are."""
        key = progress.institution_key
        reasons = [_unusable(entry) for entry in entries]
        self._note_skipped(key, Counter(reason for reason in reasons if reason))
        usable = [entry for entry, reason in zip(entries, reasons, strict=True) if reason is None]
        found = {entry.voice_id: listed_of(entry, now) for entry in usable}
        if not found:
            return 0
        prints = {voice_id: fingerprint(listed) for voice_id, listed in found.items()}
        known = await self.tools.listings.fingerprints(key, list(prints))
        changed = {
            voice_id: told
            for (voice_id, told), before in zip(prints.items(), known, strict=True)
            if told != before or voice_id in progress.unlisted
        }
        await asyncio.gather(*(self.tools.store.note(CallId(key, voice_id), found[voice_id]) for voice_id in changed))
        if changed:
            self.told()
            await self.tools.listings.listed(key, changed)
        return len(changed)

    def _note_skipped(self, key: str, skipped: Counter[str]) -> None:
        """Log and count the entries that are left out, because their calls are not handled."""
        for reason, entries in skipped.items():
            self.tools.log.warning("queue_entries_skipped", institution=key, reason=reason, entries=entries)
            self.tools.counting.figures.count(figure.ENTRIES_SKIPPED, key, reason, n=entries)

    async def _due_in_ms(self, progress: ListingProgress, now: datetime) -> int:
        """Return the wait until the next regular look: shorter while calls are live, longer after failures.

        Looks after pushes do not delay it.
        """
        is_live = await self.tools.listings.has_open(progress.institution_key)
        period_s = self.reconcile_s if is_live else max(IDLE_S, self.reconcile_s)
        since_s = 0.0 if progress.regular_at is None else max(0.0, (now - progress.regular_at).total_seconds())
        if progress.failures:
            period_s, since_s = min(LONGEST_RETRY_S, progress.failures / 2), 0.0
        return int(max(0.0, period_s * self.choose(EARLIEST, 1.0) - since_s) * 1000)


def _is_over(at: datetime | None, for_s: float, now: datetime) -> bool:
    """Tell whether ``at`` is None, at least ``for_s`` seconds ago, or in the future because a clock was set back."""
    return at is None or not 0 <= (now - at).total_seconds() < for_s


def _unusable(entry: QueueEntry) -> str | None:
    """Return why an entry cannot be used; None if it can."""
    if not entry.voice_id:
        return "no_voice_id"
    if not is_voice_id(entry.voice_id):
        return "odd_voice_id"
    return None
