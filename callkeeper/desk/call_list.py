"""The list of calls, in pages: live ones, settled ones in Redis, archived ones. The desk API, the board and commands use it.

A page is found by reading records one after the other, because Redis has no index of states, rules or policies. Each page
reads at most `SCAN_LIMIT` records and says how many it read; the next page goes on there.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from callkeeper.archive.errors import ArchiveAway
from callkeeper.calls.call_query import NEEDS_PERSON, OPEN, SETTLED, CallQuery, filtered, parse_query
from callkeeper.calls.institutions import KnownInstitutions
from callkeeper.calls.item_names import CallId
from callkeeper.calls.phone_number import same_number
from callkeeper.calls.record import Call, Phase, Reason
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.store.queries import SCAN_LIMIT, Lookup, Page
from callkeeper.calls.trail import Entry
from callkeeper.desk.access.rights import Rights
from callkeeper.desk.archived_calls import ArchivedCalls
from callkeeper.desk.board.states import state_named, state_names, state_of, state_words
from callkeeper.service.endpoints import canonical_id

_SKEW: Final = timedelta(minutes=5)
"""How far the service's clock, which says when a call began, may be ahead of Redis's, which says when it was settled."""


class ListSection(StrEnum):
    """A part of the list. Its name begins the positions in it, except in the first part of a list."""

    LIVE = "live"
    SETTLED = "settled"
    ARCHIVED = "archive"


WHOLE: Final = tuple(ListSection)
OF_STATE: Final[Mapping[str, tuple[ListSection, ...]]] = {
    OPEN: (ListSection.LIVE,),
    SETTLED: (ListSection.SETTLED, ListSection.ARCHIVED),
}
"""Which parts of the list can have calls of a state, where not all have."""


@dataclass(frozen=True, slots=True)
class ListedPage:
    """A page. ``searched``: how many records were read for it. ``is_archive_away``: the archive did not answer."""

    calls: tuple[Call, ...]
    next: str | None
    searched: int
    is_archive_away: bool = False


FOUND: Final = 100
"""How many calls a search returns at most."""

SEARCH_S: Final = 5.0
"""How long pages are read for one search, in seconds. A busier process finds fewer of the old calls."""


@dataclass(frozen=True, slots=True)
class FoundCalls:
    """What a search found, live calls first. ``is_cut``: there are more; ``is_partial``: not all calls were read.

    ``is_archive_missing``: the archive does not answer.
    """

    calls: Sequence[Call]
    known: KnownInstitutions
    is_cut: bool = False
    is_partial: bool = False
    is_archive_missing: bool = False


@dataclass(frozen=True, slots=True)
class CallList:
    """Reads pages. ``book`` are the rules that the states are computed by."""

    lookup: Lookup
    archive: ArchivedCalls | None
    book: RuleBook

    async def page(
        self,
        rights: Rights,
        query: CallQuery,
        sections: Sequence[ListSection],
        after: str | None,
        limit: int,
        *,
        is_wanted: Callable[[Call], bool] = lambda _: True,
        newest_first: bool = True,
    ) -> ListedPage:
        """Return the next calls that match.

        ``rights`` limit what is found and what it may be searched by. Settled calls always come newest first.

        Raises:
            ValueError: ``after`` was not ours.
        """
        if not _may_ask(rights, query):
            return ListedPage((), None, 0)
        sections = [section for section in sections if section in OF_STATE.get(_state(query), WHOLE)]
        if self.archive is None:
            sections = [section for section in sections if section is not ListSection.ARCHIVED]
        search = _Search(
            query,
            rights,
            await self.lookup.institutions() if query.words else KnownInstitutions({}),
            await self.lookup.attention() if query.state == NEEDS_PERSON else {},
            self.book,
            is_wanted,
        )
        found: list[Call] = []
        searched, here = 0, _parsed(sections, after)
        while here is not None and len(found) < limit and searched < SCAN_LIMIT:
            section, position = here
            try:
                left = limit - len(found), SCAN_LIMIT - searched
                page = await self._read(section, search, position, *left, newest_first=newest_first)
            except ArchiveAway:
                return ListedPage(tuple(found), None, searched, is_archive_away=True)
            found += page.calls
            searched += page.searched
            if page.next is not None:
                return ListedPage(tuple(found), _written(sections, section, page.next), searched)
            here = next(((later, "") for later in sections[sections.index(section) + 1 :]), None)
        return ListedPage(tuple(found), _written(sections, *here) if here is not None else None, searched)

    async def find(
        self,
        rights: Rights,
        query: CallQuery,
        sections: Sequence[ListSection] = WHOLE,
        *,
        any_id: str = "",
        most: int = FOUND,
    ) -> FoundCalls:
        """Return the first calls that match, from as many pages as that takes: live ones oldest first.

        ``any_id``: the typed text, if it may be a whole id. Such a call is found however old it is.
        """
        known = await self.lookup.institutions()
        found: dict[CallId, Call] = {}
        for call_id in await self.lookup.find(any_id) if any_id and _may_ask(rights, query) else ():
            if rights.may_see(call_id.institution_key) and (call := await self.lookup.load(call_id)) is not None:
                found[CallId(call.institution_key, call.voice_id)] = call
        is_partial = is_archive_away = False
        for section in sections:
            until_s, page = time.monotonic() + SEARCH_S, ListedPage((), "", 0)
            while page.next is not None and len(found) <= most and time.monotonic() < until_s:
                page = await self.page(rights, query, (section,), page.next, most + 1 - len(found), newest_first=False)
                for call in page.calls:
                    found.setdefault(CallId(call.institution_key, call.voice_id), call)
            is_partial, is_archive_away = is_partial or page.next is not None, page.is_archive_away
        is_cut = len(found) > most
        return FoundCalls(tuple(found.values())[:most], known, is_cut, is_partial and not is_cut, is_archive_away)

    async def _read(
        self, section: ListSection, search: "_Search", position: str, limit: int, most: int, *, newest_first: bool
    ) -> Page:
        if section is ListSection.ARCHIVED:
            return await self._archived(search, position, limit)
        query, is_settled = search.query, section is ListSection.SETTLED
        return await self.lookup.page(
            settled=is_settled,
            after=position or None,
            limit=limit,
            matches=search.matches,
            newest_first=newest_first or is_settled,
            since=query.since - _SKEW if query.since is not None else None,
            with_trails=query.needs_trail,
            may_be=search.may_be,
            most=most,
        )

    async def _archived(self, search: "_Search", position: str, limit: int) -> Page:
        """Return calls from the archive, without those that Redis lists as settled."""
        assert self.archive is not None  # noqa: S101  (else there is no such section)
        institutions, without_terms = search.rights.institutions, search.without_terms()
        found = await self.archive.ask(
            self.archive.reader.find,
            search.query,
            matches=lambda call: without_terms.matches(call, ()),
            most=limit,
            names=search.known.names,
            institutions=None if institutions is None else sorted(institutions),
            after=position,
        )
        places = [CallId(call.institution_key, call.voice_id) for call in found.calls]
        listed = await self.lookup.listed_settled(places)
        calls = tuple(call for call, place in zip(found.calls, places, strict=True) if place not in listed)
        return Page(calls, found.next, found.tested)


@dataclass(frozen=True, slots=True)
class _Search:
    """A query with what is needed to test calls. ``attention``: the members that are marked for a person."""

    query: CallQuery
    rights: Rights
    known: KnownInstitutions
    attention: Mapping[str, str]
    book: RuleBook
    is_wanted: Callable[[Call], bool]

    def may_be(self, member: str) -> bool:
        """Tell whether a member can be that of a wanted call, by its institution."""
        asked, visible = self.query.institution_key, self.rights.institutions
        keys = visible if asked is None else {asked}
        return keys is None or member.startswith(tuple(CallId(key, "").member for key in keys))

    def without_terms(self) -> "_Search":
        """Return the search for calls whose terms were tested already: the archive does that, by its index."""
        return replace(self, query=replace(self.query, terms=()))

    def matches(self, call: Call, trail: tuple[Entry, ...]) -> bool:
        query = self.query
        if not (self.rights.may_see(call.institution_key) and self.is_wanted(call) and query.has_terms(call, trail)):
            return False
        is_marked = CallId(call.institution_key, call.voice_id).member in self.attention
        return query.matches(
            call if self.rights.sees_people else _without_people(call),
            name=self.known.names.get(call.institution_key) or "",
            state=state_words(call, self.book) if query.words else "",
            states=state_names(call, self.book, is_marked=is_marked) if query.state else (),
        )


def _may_ask(rights: Rights, query: CallQuery) -> bool:
    """Tell whether rights include what is looked for: viewers do not see who acted."""
    return rights.sees_people or all(kind != "operator" for kind, _ in query.terms)


def _without_people(call: Call) -> Call:
    """Return a call without names and numbers, for viewers: a search by them would reveal them."""
    return msgspec.structs.replace(
        call,
        names=msgspec.structs.replace(call.names, phone_number=None),
        seen=msgspec.structs.replace(call.seen, candidates=()),
    )


def _state(query: CallQuery) -> str:
    """Return the state that a query asks for. A call that has an outcome is settled."""
    has_outcome = any(kind == "outcome" and value in list(Reason) for kind, value in query.terms)
    return query.state or (SETTLED if has_outcome else "")


def _parsed(sections: Sequence[ListSection], after: str | None) -> tuple[ListSection, str] | None:
    """Return the section and the position in it where a page begins; None if there is nothing to read.

    Raises:
        ValueError: It is none of ours.
    """
    if not sections:
        return None
    if not after:
        return sections[0], ""
    name, colon, position = after.partition(":")
    if colon and name in sections:
        return ListSection(name), position
    return sections[0], after


def _written(sections: Sequence[ListSection], section: ListSection, position: str) -> str:
    return position if section is sections[0] and section is not ListSection.ARCHIVED else f"{section}:{position}"


_ALL: Final = "all"
PHASES: Final = (Phase.LIVE, Phase.ENDED, Phase.SETTLED, _ALL)
"""What the desk API can list: calls in one phase, or all."""

_SECTIONS: Final = {_ALL: WHOLE, Phase.SETTLED.value: OF_STATE[SETTLED]}


@dataclass(frozen=True, slots=True)
class DeskListing:
    """The list as the desk API asks for it. ``country`` is where phone numbers without a country's code belong."""

    calls: CallList
    country: str
    now: Callable[[], datetime]

    async def page(self, rights: Rights, query: Mapping[str, str], phase: str | None, limit: int) -> ListedPage:
        """Return the next calls that a request asks for.

        Raises:
            callkeeper.calls.call_query.FilterWrong: A filter has a value that it cannot have.
            ValueError: ``after`` was not ours.
        """
        phone, any_id = query.get("phone"), query.get("id")
        typed = parse_query(query.get("q", ""), country=self.country, zone=UTC)
        asked = filtered(typed, query, state_named=state_named, now=self.now())
        numbers = (*asked.numbers, *((phone,) if phone is not None else ()))

        def is_wanted(call: Call) -> bool:
            return (
                (phone is None or same_number(call.names.phone_number or "", phone, self.country))
                and (any_id is None or bool({any_id, canonical_id(any_id)} & {call.voice_id, call.names.alternate_id}))
                and phase in {None, _ALL, call.life.phase}
            )

        return await self.calls.page(
            rights,
            replace(asked, numbers=numbers, id_prefix=any_id or ""),
            _SECTIONS.get(phase, OF_STATE[OPEN]) if phase else OF_STATE.get(_state(asked), OF_STATE[OPEN]),
            query.get("after"),
            limit,
            is_wanted=is_wanted,
            newest_first=phase == _ALL,
        )


CSV_COLUMNS: Final = (
    "started_at",
    "institution_key",
    "voice_id",
    "alternate_id",
    "phone_last4",
    "person_id",
    "state",
    "phase",
    "reason",
    "status",
)


def csv_row(call: Call, book: RuleBook) -> tuple[object, ...]:
    """Return a call's values of `CSV_COLUMNS`: no name, and of a phone number the last digits."""
    return (
        call.life.started_at,
        call.institution_key,
        call.voice_id,
        call.names.alternate_id,
        call.names.last_digits,
        call.seen.person_id,
        state_of(call, book).name,
        call.life.phase,
        call.life.reason,
        call.seen.reading.status if call.seen.reading else None,
    )
