"""Reads the pages of an institution's queue, and learns how the service pages.

The Spec shows neither the bounds of `pageSize` nor the meaning of `continueFrom`. Both are learned from the answers and
stored with the institution's listing progress.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from calls.store.listings import Paging
from reseller import InstitutionNotFound, QueueEntry, ServiceRefused

AskPage = Callable[[int, int], Awaitable[Sequence[QueueEntry]]]
"""Asks for a page: `continueFrom`, `pageSize`."""

SMALLEST = 5
"""A page of this size is never too large: if it is refused, the reason is another one."""

SHORT = 10
"""A shorter page ends a look. Assumed: a service gives ten entries at once if it has them."""


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

    async def read(self) -> Sequence[QueueEntry]:
        """Return the next page.

        Raises:
            ResellerError: As for the queue. A refusal after the first page is read as the end.
        """
        entries = await self._page(self.cursor)
        ids = [entry.voice_id for entry in entries]
        news = set(ids) - self.seen
        is_full = len(entries) >= min(self._size, max(SHORT, self.paging.largest))
        self.paging = replace(self.paging, largest=max(self.paging.largest, len(entries)))
        await self._learn(ids, is_full=is_full)
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
        with suppress(ServiceRefused):
            entries, size = await self.ask(0, self._size), self._size
        self.paging = replace(self.paging, size=None if size == self.size else size, refused=None)
        return entries

    async def _learn(self, ids: list[str], *, is_full: bool) -> None:
        """Find out whether `continueFrom` counts entries or pages, by asking for the middle of the first page.

        If it counts entries, the answer begins with a known call that is not the first one. If it counts pages, the
        answer has other calls or none. If the answer is the first page again, nothing is learned.
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
