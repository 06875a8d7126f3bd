"""The pages of a queue, one after the other, whatever the service takes a page to be.

The Spec shows neither the bounds of `pageSize` nor the meaning of `continueFrom`. What a service does is learnt from what
it answers, and remembered with the institution's watch.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from calls.institutions import Paging
from reseller import InstitutionNotFound, QueueEntry, ServiceRefused

Ask = Callable[[int, int], Awaitable[Sequence[QueueEntry]]]
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

    ask: Ask
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
