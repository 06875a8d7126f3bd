"""Reads the pages of a queue, and learns from the answers how the service pages.

The Spec shows neither the bounds of `pageSize` nor the meaning of `continueFrom`. Both are learned from the answers and
stored with the institution's listing progress. Assumed (`queue-page-size`): a page may be smaller than it was asked for,
or refused. Assumed (`queue-paging`): `continueFrom` counts entries or pages. Assumed (`queue-past-end`): a page past the
end is empty, refused, or one that was listed before.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from callkeeper.calls.store.last_listing import Paging
from callkeeper.service import InstitutionNotFound, QueueEntry, ServiceRefused

AskPage = Callable[[int, int], Awaitable[Sequence[QueueEntry]]]
"""Asks for a page: `continueFrom`, `pageSize`."""

SMALLEST = 5
"""A page of this size is never too large: if it is refused, the reason is another one."""

SMALLEST_KNOWN = 10
"""A size up to this that is answered is reported as page-refused, a larger one as page-refused-100."""

OVERLAPPING = 2
"""How many entries a page repeats if it overlaps with the page before."""

SHORT = 10
"""A shorter page ends a look. Assumed (`queue-page-short`): a service gives ten entries at once if it has them."""


@dataclass(slots=True)
class QueuePages:
    """Reads a queue from ``cursor`` on.

    Attributes:
        ask: Asks for one page.
        size: How many entries to ask for, unless the service is known to refuse that many.
        paging: What is known of the service's paging. Updated with each page.
        cursor: The `continueFrom` of the next page.
        to_the_end: Whether to go on until a page brings nothing new, however short the pages are.
        is_over: Whether the page that was read last is the last one.
        pages: How many pages brought a call that no earlier page had.
        seen: The ids of all calls on the pages.
    """

    ask: AskPage
    size: int
    paging: Paging
    cursor: int = 0
    to_the_end: bool = False
    is_over: bool = False
    pages: int = 0
    seen: set[str] = field(default_factory=set)
    _first: list[str] = field(default_factory=list)
    _last: list[str] = field(default_factory=list)

    async def read(self) -> Sequence[QueueEntry]:
        """Return the next page.

        Raises:
            ResellerError: As for the queue. A refusal after the first page is read as the end.
        """
        entries = await self._page(self.cursor)
        if self.to_the_end and not self.cursor and self.paging.size is not None and len(entries) >= self._size:
            entries = await self._larger_page(entries)
        ids = [entry.id for entry in entries]
        news = set(ids) - self.seen
        # A service may have begun to make smaller pages. Only a look to the end shows it: there is more behind one.
        is_full = len(entries) >= min(self._size, SHORT if self.to_the_end else max(SHORT, self.paging.largest))
        largest = min(self.paging.largest, len(self._last)) if news and self.cursor else self.paging.largest
        self.paging = replace(self.paging, largest=max(largest, len(entries)))
        if self.cursor == 0:
            self._first = ids
        await self._learn(ids, is_full=is_full)
        self._last = ids
        # Pages may be numbered from 0 or from 1, so page 1 may repeat the first page.
        has_more = bool(news) or (self.paging.counts_pages is True and self.cursor == 1)
        self.is_over = not has_more or not (is_full or self.to_the_end)
        self.pages += bool(news)
        self.seen |= news
        # The service may not count an entry without an id. Reading a call twice is better than missing one.
        self.cursor += 1 if self.paging.counts_pages else sum(map(bool, ids))
        return entries

    @property
    def _size(self) -> int:
        return min(self.size, self.paging.size or self.size)

    async def _page(self, begin: int) -> Sequence[QueueEntry]:
        if self.paging.refused is not None and begin == 0:
            return await self._smaller_page()
        try:
            return await self.ask(begin, self._size)
        except ServiceRefused as refused:
            if begin:
                return ()
            if isinstance(refused, InstitutionNotFound) or self._size // 2 < SMALLEST:
                raise
        self.paging = replace(self.paging, refused=self._size)
        return await self._smaller_page()

    async def _smaller_page(self) -> Sequence[QueueEntry]:
        """Halve the size until a page is answered. Remember that size if the larger one is then still refused.

        If a request fails for another reason, the next look goes on from the size that was refused last.
        """
        entries: Sequence[QueueEntry] | None = None
        while entries is None:
            size = min(self.paging.refused or self._size, self._size) // 2
            try:
                entries = await self.ask(0, size)
            except ServiceRefused:
                is_smallest = size // 2 < SMALLEST
                self.paging = replace(self.paging, refused=None if is_smallest else size)
                if is_smallest:
                    raise
        asked = self._size
        with suppress(ServiceRefused):
            entries, size = await self.ask(0, asked), asked
        self.paging = replace(self.paging, size=None if size == self.size else size, refused=None)
        return entries

    async def _larger_page(self, entries: Sequence[QueueEntry]) -> Sequence[QueueEntry]:
        """Ask for twice as many entries, because a larger page may not be refused any more. Return what there is."""
        size = min(2 * self._size, self.size)
        with suppress(ServiceRefused):
            entries = await self.ask(0, size)
            self.paging = replace(self.paging, size=None if size == self.size else size)
        return entries

    async def _learn(self, ids: list[str], *, is_full: bool) -> None:
        """Find out whether `continueFrom` counts entries or pages, by asking for the middle of the first page.

        If it counts entries, the answer begins there. If it counts pages, the answer has other calls or none. Anything
        else teaches nothing: between two requests a call may have come or gone, which moves all that follow. Each look to
        the end learns it anew, because what was learned wrongly would hide all calls but those of the first page.
        """
        is_known = self.paging.counts_pages is not None and not self.to_the_end
        if self.cursor or not is_full or is_known:
            return
        begin = len(ids) // 2
        middle = [entry.id for entry in await self._page(begin)]
        if middle and middle[0] in ids[max(1, begin - OVERLAPPING) : begin + 1]:
            self.paging = replace(self.paging, counts_pages=False)
        elif not set(middle) & set(ids):
            self.paging = replace(self.paging, counts_pages=True)
