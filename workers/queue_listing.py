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
from functools import partial

from msgspec.structs import replace

from callkeeper.calls.claimed_item import ClaimedItem, Placement
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.notes import (
    Listed,
    Unlisted,
    fingerprint,
    is_same_entry,
    listed_of,
    plausible_start,
    why_unusable,
)
from callkeeper.calls.store.breakers import EndpointKind
from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.inbox import Ask
from callkeeper.calls.store.last_listing import (
    ListingProgress,
    Paging,
    encode_progress,
    is_due_to_the_end,
    is_due_whole,
    is_first_listing,
    list_from,
    newest_start,
    next_listing_ms,
)
from callkeeper.calls.store.request_budget import Permit
from callkeeper.service import AccessRefused, QueueEntry, ResellerError, ServiceBusy, ServiceRefused
from callkeeper.service.endpoints import QUEUE
from workers.claimed_call import Tools
from workers.job_summary import JobSummary
from workers.queue_pages import QueuePages
from workers.service_gate import Wanted

LIST_EVERY_S = 5.0
"""Seconds between two searches for new calls of an institution while calls are live."""

PAGE = 500
"""Entries of the queue that are requested at once. Where the service refuses that many, they are halved."""

LISTED_LATER_S = 3.0
"""If a breaker has just opened, the queue is looked at again after this many seconds. A probe that is answered makes it
due before."""

RENEW_AFTER_S = 1.0
"""If the lease of a listing is older than this, it is renewed before the next request."""


class ListingFailed(Exception):
    """A look failed with ``error``. What it learned of the paging before, ``paging``, is kept."""

    def __init__(self, error: ResellerError, paging: Paging) -> None:
        super().__init__(error, paging)
        self.error, self.paging = error, paging


def _outcome_of(error: ResellerError | None) -> str:
    """Return how a look went, as a figure names it."""
    match error:
        case None:
            return "answered"
        case AccessRefused() | ServiceRefused():
            return "refused"
        case ServiceBusy():
            return "busy"
        case _:
            return "failed"


@dataclass(slots=True)
class PageRequests:
    """Requests the pages of one look. Keeps the lease while it waits for a permit, and while the service is slow."""

    tools: Tools
    item: ClaimedItem
    institution_key: str
    since: datetime | None
    renewed_at_s: float
    has_permit: bool = True
    """The permit of the first page is taken before the look begins."""

    async def send(self, cursor: int, size: int) -> Sequence[QueueEntry]:
        """Request a page, and first renew the lease if it is old: several slow pages would outlast it.

        While it is late, request it again over new connections: the first may hang. What comes first counts.

        Raises:
            ResellerError: As for the queue.
            WriteRefused: Another worker lists this queue now.
        """
        wait_s = 0.0 if self.has_permit else await self._wait_s()
        self.has_permit = False
        while wait_s or self.tools.monotonic() - self.renewed_at_s > RENEW_AFTER_S:
            await self.renew_lease()
            if wait_s:
                await self.tools.sleep(min(wait_s, RENEW_AFTER_S))
                wait_s = await self._wait_s()
        key, service = self.institution_key, self.tools.service
        bot = self.tools.requested_by(key)
        ask = partial(service.queue, key, continue_from=cursor, page_size=size, start_at=self.since, requested_by=bot)
        first = asyncio.ensure_future(ask(keep=self.renew_lease))
        pages = {first}
        try:
            while pages:
                ended, pages = await asyncio.wait(
                    pages, timeout=service.deadline_s, return_when=asyncio.FIRST_COMPLETED
                )
                for page in ended:
                    if page.exception() is None:
                        return page.result()
                if pages == {first} and not service.is_late(QUEUE, key) and not await self._wait_s():
                    pages.add(asyncio.ensure_future(ask(connects=True)))
            return first.result()
        finally:
            await end({first, *pages})

    async def renew_lease(self) -> None:
        await self.tools.store.keep(self.item)
        self.renewed_at_s = self.tools.monotonic()

    async def _wait_s(self) -> float:
        """Take a permit, or return how long to wait for it. A listing that has begun is finished even if a breaker opens."""
        wanted = Wanted(self.institution_key, self.item.member, Permit.LISTING, kind=EndpointKind.QUEUE)
        held = await self.tools.gate.ask(wanted, self.item.now)
        return 0.0 if held is None else held.wait_s


@dataclass(frozen=True, slots=True)
class Listing:
    """Carries out the looks at one institution's queue."""

    tools: Tools
    reconcile_s: float
    page_size: int = 500
    choose: Callable[[float, float], float] = random.uniform
    on_due: Callable[[], None] = lambda: None
    """Called when calls got a note and are due."""

    async def run(self, item: ClaimedItem, institution_key: str, summary: JobSummary) -> bool:
        """Look as asked, and plan the next look. Return whether the service refused the institution.

        Raises:
            WriteRefused: Another worker lists this queue now.
        """
        progress = self.tools.listings.progress(item.record, institution_key)
        asked = {note.decode() for note in item.notes}
        summary.add("institutions")
        # A look that was asked for leads to an assign and then to checks: it does not wait behind idle queues.
        wanted = Wanted(
            institution_key, item.member, Permit.CHECK if asked else Permit.LISTING, kind=EndpointKind.QUEUE
        )
        if (held := await self.tools.gate.ask(wanted, item.now)) is not None:
            wait_s = held.wait_s or LISTED_LATER_S
            await self.tools.store.save(item, None, Placement(int(wait_s * 1000) + 1))  # the notes stay
            return False
        error: ResellerError | None = None
        try:
            progress = await self._list(item, progress, asked, summary)
            progress = replace(progress, failures=0)
        except ListingFailed as failed:
            error, progress = failed.error, self._failed(progress, failed, summary)
        outcome = _outcome_of(error)
        self.tools.counting.listed(institution_key, outcome)
        if isinstance(error, AccessRefused):
            due_in_ms = int(error.retry_after_s * 1000) + 1
        else:
            is_live = await self.tools.listings.has_open(institution_key)
            due_in_ms = next_listing_ms(progress, item.now, self.reconcile_s, is_live=is_live, choose=self.choose)
        await self.tools.store.save(item, encode_progress(progress), Placement(due_in_ms))
        return outcome == "refused"

    def _failed(self, progress: ListingProgress, failed: ListingFailed, summary: JobSummary) -> ListingProgress:
        """Return the progress after a failed look. A 401 that is waited for is no failure: the log has it already."""
        progress, error = replace(progress, paging=failed.paging), failed.error
        if isinstance(error, AccessRefused):
            return progress
        key = progress.institution_key
        self.tools.log.warning("listing_failed", institution=key, error=type(error).__name__, said=error.plain)
        summary.add("listings_failed")
        return replace(progress, failures=progress.failures + 1)

    async def _list(
        self, item: ClaimedItem, progress: ListingProgress, asked: set[str], summary: JobSummary
    ) -> ListingProgress:
        now, is_narrow = item.now, asked == {Ask.LOOK} and progress.newest_at is not None
        to_the_end = is_due_to_the_end(progress, now) or Ask.FULL in asked
        if to_the_end or is_due_whole(progress, now, self.reconcile_s):
            progress, _ = await self._whole(item, progress, summary, to_the_end=to_the_end)
            is_narrow = False
        else:
            since, newest_id = list_from(progress, now, after_push=asked == {Ask.LOOK}), progress.newest_id
            progress, pages = await self._pages(item, progress, summary, since=since)
            if since is not None and not is_narrow and newest_id is not None and newest_id not in pages.seen:
                progress = await self._doubt(item, progress, newest_id, summary)
        if not is_narrow:
            progress = replace(progress, regular_at=now)
            await self.tools.listings.record_listing(progress.institution_key, now)
        return progress

    async def _doubt(
        self, item: ClaimedItem, progress: ListingProgress, newest_id: str, summary: JobSummary
    ) -> ListingProgress:
        """List all calls because a look missed the newest one: it has ended, or the service misread the bound."""
        key = progress.institution_key
        if (await self.tools.listings.fingerprints(key, [newest_id]))[0] is None:
            return progress  # we know that it has ended
        progress, seen = await self._whole(item, progress, summary, to_the_end=True)
        if newest_id not in seen:
            return progress
        self.tools.log.warning("queue_bound_misread", institution=key)
        self.tools.counting.figures.count(figure.QUEUE_MISREAD, key)
        self.tools.counting.figures.see("queue-start-bounds", "bounds-misread", key, "a later call was left out")
        return replace(progress, misread_at=item.now)

    async def _whole(
        self, item: ClaimedItem, progress: ListingProgress, summary: JobSummary, *, to_the_end: bool
    ) -> tuple[ListingProgress, set[str]]:
        key, now = progress.institution_key, item.now
        if to_the_end:
            # The service's clock may have been set back.
            progress = replace(progress, newest_at=None, newest_id=None)
        progress, pages = await self._pages(item, progress, summary, since=None, to_the_end=to_the_end)
        if to_the_end:
            progress = replace(progress, to_the_end_at=now)
        absent = await self.tools.listings.absent(key, pages.seen)
        summary.found(key, listed=len(pages.seen), gone=len(absent))
        await asyncio.gather(*(self._note_gone(CallId(key, voice_id), now) for voice_id in absent - progress.unlisted))
        return replace(progress, whole_at=now, pages=max(1, pages.pages), unlisted=absent), pages.seen

    async def _note_gone(self, call_id: CallId, now: datetime) -> None:
        taken, _ = await self.tools.store.note(call_id, Unlisted(listed_at=now))
        if not taken:
            await self.tools.listings.forget_listed(*call_id)

    async def _pages(
        self,
        item: ClaimedItem,
        progress: ListingProgress,
        summary: JobSummary,
        *,
        since: datetime | None,
        to_the_end: bool = False,
    ) -> tuple[ListingProgress, QueuePages]:
        """Read pages up to the first that is not full, or up to the first that brings nothing new."""
        key = progress.institution_key
        is_first = is_first_listing(progress, item.epoch.first_claimed_at or item.epoch.since, item.now)
        requests = PageRequests(self.tools, item, key, since, self.tools.monotonic())
        pages = QueuePages(requests.send, self.page_size, progress.paging, to_the_end=to_the_end)
        while True:
            try:
                entries = await pages.read()
            except ResellerError as error:
                raise ListingFailed(error, pages.paging) from None
            ids = {start: entry.id for entry in entries if (start := plausible_start(entry, item.now))}
            self.tools.clock.learn(ids)
            noted = await self._leave_notes(progress, entries, item.now, is_first=is_first)
            if since is None:
                summary.found(key, told=noted)
            newest_at = newest_start(progress, list(ids))
            newest_id = ids.get(newest_at, progress.newest_id) if newest_at else None
            progress = replace(progress, newest_at=newest_at, newest_id=newest_id, paging=pages.paging)
            if pages.is_over:
                return progress, pages
            await requests.renew_lease()

    async def _leave_notes(
        self, progress: ListingProgress, entries: Sequence[QueueEntry], now: datetime, *, is_first: bool
    ) -> int:
        """Leave a note on every call whose entry is new or changed. Return how many there are."""
        key = progress.institution_key
        reasons = [why_unusable(entry) for entry in entries]
        self._note_skipped(key, Counter(reason for reason in reasons if reason))
        usable = [entry for entry, reason in zip(entries, reasons, strict=True) if reason is None]
        found = {entry.id: listed_of(entry, now, is_first_look=is_first) for entry in usable}
        if not found:
            return 0
        prints = {voice_id: fingerprint(listed) for voice_id, listed in found.items()}
        known = await self.tools.listings.fingerprints(key, list(prints))
        changed = {
            voice_id: after
            for (voice_id, after), before in zip(prints.items(), known, strict=True)
            if voice_id in progress.unlisted or (after != before and not (before and is_same_entry(after, before)))
        }
        for voice_id, before in zip(prints, known, strict=True):
            if before is None:
                found[voice_id] = self._with_absence(found[voice_id], progress, now)
        await asyncio.gather(*(self.tools.store.note(CallId(key, voice_id), found[voice_id]) for voice_id in changed))
        if changed:
            self.on_due()
            await self.tools.listings.listed(key, changed)
        return len(changed)

    def _with_absence(self, listed: Listed, progress: ListingProgress, now: datetime) -> Listed:
        """Return a note on a new call with a time at which the call was not in the queue: the last regular look.

        If the call had started by then, the look has missed it, and the start counts: an entry may come late, or the
        look did not go back that far.
        """
        if progress.regular_at is None or progress.regular_at > now:
            return listed
        return replace(listed, absent_at=min(progress.regular_at, now - self.tools.clock.least_age(listed.started_at)))

    def _note_skipped(self, key: str, skipped: Counter[str]) -> None:
        """Log and count the entries that are left out, because their calls are not handled."""
        for reason, entries in skipped.items():
            self.tools.log.warning("queue_entries_skipped", institution=key, reason=reason, entries=entries)
            self.tools.counting.figures.count(figure.ENTRIES_SKIPPED, key, reason, n=entries)
