"""The desk API's list of calls: pages from Redis, then from the archive."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC

from callkeeper.calls.call_query import CallQuery, parse_query, same_number
from callkeeper.calls.institutions import KnownInstitutions
from callkeeper.calls.record import Call, Phase
from callkeeper.calls.store.keys import CallId
from callkeeper.calls.store.queries import Lookup, Page
from callkeeper.desk.access.desk_tokens import DeskToken
from callkeeper.desk.archived_calls import POSITION, ArchivedCalls
from callkeeper.desk.call_search import is_for_viewers, without_people
from callkeeper.service.endpoints import canonical_id


@dataclass(frozen=True, slots=True)
class CallList:
    """Reads pages. ``country`` is where phone numbers without a country's code belong."""

    lookup: Lookup
    archive: ArchivedCalls | None
    country: str

    async def page(
        self, token: DeskToken, query: Mapping[str, str], phase: Phase | None, after: str | None, limit: int
    ) -> Page:
        """Return the next calls that a request asks for.

        Raises:
            ValueError: ``after`` was not ours.
            callkeeper.archive.errors.ArchiveAway: The archive is needed and does not answer.
        """
        asked = parse_query(query.get("q", ""), country=self.country, zone=UTC)
        if not (token.sees_people or is_for_viewers(asked)):
            return Page((), None)
        known = await self.lookup.institutions() if asked.words else KnownInstitutions({})
        is_meant = _filter(token, query, phase, self.country)

        def matches(call: Call) -> bool:
            name, state = known.names.get(call.institution_key) or "", f"{call.life.phase} {call.life.reason or ''}"
            seen = call if token.sees_people else without_people(call)
            return is_meant(call) and asked.matches(seen, name=name, state=state)

        settled = phase is Phase.SETTLED
        if self.archive is not None and settled and ((after or "").startswith(POSITION) or asked.terms):
            return await self._archived(self.archive, token, query, asked, after, limit, matches, known)
        if asked.terms:
            return Page((), None)
        page = await self.lookup.page(settled=settled, after=after, limit=limit, matches=matches)
        goes_on = self.archive is not None and settled and page.next is None
        return replace(page, next=POSITION) if goes_on else page

    async def _archived(
        self,
        archive: ArchivedCalls,
        token: DeskToken,
        query: Mapping[str, str],
        asked: CallQuery,
        after: str | None,
        limit: int,
        matches: Callable[[Call], bool],
        known: KnownInstitutions,
    ) -> Page:
        """Return settled calls from the archive: those that Redis no longer lists, or cannot find."""
        phone = query.get("phone")
        where = replace(
            asked,
            numbers=(*asked.numbers, *((phone,) if phone else ())),
            id_prefix=query.get("id", ""),
            institution_key=query.get("institution"),
        )
        found = await asyncio.to_thread(
            archive.reader.find,
            where,
            matches=matches,
            most=limit,
            names=known.names,
            institutions=None if token.institutions is None else sorted(token.institutions),
            after=(after or "").removeprefix(POSITION),
        )
        calls = found.calls
        if not asked.terms:
            listed = await self.lookup.listed_settled([CallId(call.institution_key, call.voice_id) for call in calls])
            calls = tuple(call for call in calls if CallId(call.institution_key, call.voice_id) not in listed)
        return Page(calls, found.next and POSITION + found.next)


def _filter(token: DeskToken, query: Mapping[str, str], phase: Phase | None, country: str) -> Callable[[Call], bool]:
    institution, phone, any_id = query.get("institution"), query.get("phone"), query.get("id")

    def matches(call: Call) -> bool:
        return (
            token.may_see(call.institution_key)
            and institution in {None, call.institution_key}
            and (phone is None or same_number(call.names.phone_number or "", phone, country))
            and (any_id is None or bool({any_id, canonical_id(any_id)} & {call.voice_id, call.names.alternate_id}))
            and phase in {None, call.life.phase}
        )

    return matches
