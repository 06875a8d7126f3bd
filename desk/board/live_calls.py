"""The live calls as this process knows them: read all at once, then kept up to date by the feed."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from calls.keys import CallId
from calls.queries import Queries
from calls.record import Call
from calls.rules.book import RuleBook
from desk.board.rows import address_of, slot_of
from desk.board.states import Standing, standing_of
from desk.feed import Change

BREATH: Final = 50
"""Calls that are read at a stretch: whatever else the process serves gets its turn in between."""


@dataclass(frozen=True, slots=True)
class LiveCall:
    """A live call and its state: what every one of them is counted and sorted by. ``slot`` names its place in the page."""

    slot: str
    call: Call
    standing: Standing

    @property
    def since(self) -> datetime | None:
        """Return the call's start, or the first that was heard of it."""
        return self.call.started_at or self.call.first_seen_at or self.call.hinted_at

    @property
    def last_digits(self) -> str:
        """Return what is shown of the phone number."""
        return (self.call.phone_number or "")[-4:]

    @property
    def address(self) -> str:
        """Return the address of the call's own page, below the board's."""
        return address_of(self.call.institution_key, self.call.voice_id)


class LiveCalls:
    """The live calls, by member. One that has not changed stays the same object."""

    def __init__(self, queries: Queries, book: RuleBook) -> None:
        self._queries = queries
        self._book = book
        self._calls: dict[str, LiveCall] = {}

    async def load(self) -> None:
        """Read every live call."""
        calls: dict[str, LiveCall] = {}
        async for call in self._queries.live():
            member = _member(call)
            known = self._calls.get(member)
            calls[member] = known if known is not None and known.call == call else self._live(member, call)
            if len(calls) % BREATH == 0:
                await asyncio.sleep(0)
        self._calls = calls

    def heard(self, change: Change) -> None:
        """Take a change in."""
        call, member = change.call, change.call_id.member
        if call is None or call.is_settled or _member(call) != member:  # gone, over, or one with another record now
            self._calls.pop(member, None)
        if call is None:
            return
        if call.is_settled:
            self._calls.pop(_member(call), None)
        else:
            self._calls[_member(call)] = self._live(_member(call), call)

    def _live(self, member: str, call: Call) -> LiveCall:
        return LiveCall(slot_of(member), call, standing_of(call, self._book))

    def __iter__(self) -> Iterator[LiveCall]:
        """Yield the calls in no order."""
        return iter(self._calls.values())

    def __len__(self) -> int:
        """Count the live calls."""
        return len(self._calls)


def _member(call: Call) -> str:
    return CallId(call.institution_key, call.voice_id).member
