"""The institutions we may act for, and what the service says of each.

Keys come from logins and from the service's list. The standing comes from the list, or from a request by key. Both are
refreshed hourly, and at most once a minute when an unknown key appears. A key that a later login omits is kept, unless
two logins a minute apart omit it and the service also refuses its queue. A key that only the settings name is asked for
by key. A push alone proves nothing. Assumed: what the list names is the account's to manage.

``ask_standings`` asks the service, for workers and for the doctor. It reads the list, and asks for each remaining key
by itself, so that one failing key affects only its own institution.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from calls.institutions import FOREIGN, UNKNOWN, KnownInstitutions
from calls.metrics import catalogue as figure
from calls.store.claims_and_leases import Store
from calls.store.last_listing import Listings, Standing
from reseller import Institution, InstitutionSummary, ResellerError, ServiceUnavailable
from reseller.client import Reseller
from workers.measurements import Counting

REFRESH_S = 60.0
"""How old the answers in this process may get, in seconds, before Redis is asked again."""

ENLIST_S = 5.0
"""How often every institution is added to the due set if it is missing there, in seconds."""


class Institutions:
    """Answers from memory. Refreshes itself from Redis, and from the service if Redis has nothing or only old data.

    ``only`` restricts the institutions that are acted for, ``in_test`` are handled although they are in test mode.
    ``named`` are the keys in the settings, by setting.
    """

    def __init__(
        self,
        service: Reseller,
        listings: Listings,
        store: Store,
        *,
        only: frozenset[str] | None,
        in_test: frozenset[str] = frozenset(),
        named: Mapping[str, frozenset[str]] | None = None,
        monotonic: Callable[[], float],
        log: Any,
        counting: Counting,
    ) -> None:
        self._service = service
        self._listings = listings
        self._store = store
        self._only = only
        self._in_test = in_test
        self._named = named or {}
        self._warned_of: set[tuple[str, str]] = set()
        self._monotonic = monotonic
        self._log = log
        self._keys: frozenset[str] = frozenset()
        self._standings: dict[str, Standing] = {}
        self._is_loaded = False
        self._refreshed_at_s: float | None = None
        self._enlisted_at_s: float | None = None
        self._asked_at_s: dict[str, float] = {}
        self._listed_at_s = -math.inf
        self._counting = counting
        counting.ours = self._keys
        self._unknown_because = ""
        self._missing: dict[str, datetime] = {}

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of the institutions that we act for."""
        return self._keys

    @property
    def are_known(self) -> bool:
        """Tell whether this process has got an answer from the service yet."""
        return self._is_loaded

    def obstacle(self, institution_key: str) -> str | None:
        """Return why nothing may be done for an institution's calls; None if there is no obstacle."""
        if self.are_known and institution_key not in self._keys:
            return FOREIGN
        standing = self._standings.get(institution_key)
        return UNKNOWN if standing is None else standing.obstacle

    async def refresh(self) -> None:
        """Refresh what is older than a minute, and enlist. If the service does not answer, keep what is known."""
        now_s = self._monotonic()
        if self._refreshed_at_s is None or now_s - self._refreshed_at_s > REFRESH_S:
            try:
                await self._load()
                self._refreshed_at_s, self._unknown_because = now_s, ""
            except ResellerError as error:
                self._refreshed_at_s = now_s - REFRESH_S + 2.0
                self._warn_unknown(error)
        await self.enlist()

    def _warn_unknown(self, error: ResellerError) -> None:
        """Log that the institutions could not be read, once for each kind of error in a row."""
        if self._unknown_because != type(error).__name__:
            self._unknown_because = type(error).__name__
            self._log.warning("institutions_unknown", error=self._unknown_because)

    async def enlist(self) -> None:
        """Make every institution due that is missing in the due set, at most every few seconds."""
        now_s = self._monotonic()
        if self._enlisted_at_s is None or now_s - self._enlisted_at_s > ENLIST_S:
            self._store.breakers.acted_for = self._keys
            await self._store.enlist(sorted(self._keys))
            self._enlisted_at_s = now_s

    async def knows(self, institution_key: str) -> bool:
        """Tell whether a key is ours. For an unknown key, log in again and look, at most once a minute."""
        if institution_key in self._keys:
            return True
        now_s = self._monotonic()
        asked_at_s = self._asked_at_s.get(institution_key)
        if asked_at_s is None or now_s - asked_at_s > REFRESH_S:
            self._asked_at_s = {**_recent(self._asked_at_s, now_s), institution_key: now_s}
            try:
                await self._service.renew(max_age_s=REFRESH_S)
                await self._load(anew=now_s - self._listed_at_s > REFRESH_S)
            except ResellerError as error:
                self._log.warning("institutions_unknown", error=type(error).__name__)
        return institution_key in self._keys

    async def _load(self, *, anew: bool = False) -> None:
        """Load the institutions. ``anew``: read the service's list even if Redis has a stored one."""
        await self._service.renew()
        listed = await self._service.institution_keys()
        stored = await self._listings.standings()
        owned = await self._owned(listed, stored)
        missing = self._acted_for(owned | (self._only or frozenset())) - stored.keys()
        if missing or anew or not stored:
            # A failure or a 429 of one of the next requests must not be taken for one of the whole account.
            self._store.breakers.acted_for = self._acted_for(owned)
            asked = await self._ask_service(missing)
            await self._listings.save_standings(asked.values())
            stored |= asked
            owned = await self._owned(listed, stored)
        self._act_for(self._acted_for(owned))
        self._standings = handled_in_test(stored, self._in_test)
        self._is_loaded = True
        self._warn_of_unknown(owned)

    def _act_for(self, keys: frozenset[str]) -> None:
        self._keys = self._counting.ours = keys

    def _acted_for(self, keys: Iterable[str]) -> frozenset[str]:
        return frozenset(keys) if self._only is None else self._only.intersection(keys)

    async def _owned(self, listed: Iterable[str], told: Iterable[str]) -> frozenset[str]:
        """Return the keys of this login, of the service's list, and of earlier logins."""
        owned, gone = await self._listings.take_owned(listed, await self._store.now(), others=told)
        self._missing = {key: since for key, since in owned.items() if since is not None}
        for key in sorted(gone):
            self._counting.figures.count(figure.INSTITUTIONS_MISSING, key)
            self._log.warning("institution_missing", institution=key)
        return frozenset(owned)

    async def refused(self, institution_key: str) -> None:
        """Drop an institution whose queue the service refuses, if two logins a minute apart omitted it as well."""
        since = self._missing.get(institution_key)
        if since is None or (await self._store.now() - since).total_seconds() < REFRESH_S:
            return
        try:
            await self._service.renew(max_age_s=REFRESH_S)
            await self._load()
        except ResellerError as error:
            self._log.warning("institutions_unknown", error=type(error).__name__)
            return
        if institution_key in self._missing:
            await self._listings.disown(institution_key)
            self._act_for(self._keys - {institution_key})
            self._log.warning("institution_dropped", institution=institution_key)

    def _warn_of_unknown(self, owned: frozenset[str]) -> None:
        """Log each institution in the settings that the account does not manage, once per key."""
        if not self._named:
            return
        known = KnownInstitutions({key: self._standings[key].name if key in self._standings else None for key in owned})
        for setting, key, nearest in known.unknown(self._named):
            if (setting, key) not in self._warned_of:
                self._warned_of.add((setting, key))
                self._log.warning("institution_unknown", setting=setting, institution=key, nearest=nearest)

    async def _ask_service(self, keys: frozenset[str]) -> dict[str, Standing]:
        """Return what the service says of institutions. Log and count those that cannot be read."""
        asked = await ask_standings(self._service, keys)
        self._listed_at_s = self._monotonic()
        if asked.list_error is not None:
            self._log.warning("institutions_unlisted", error=type(asked.list_error).__name__)
        for key, error in asked.unreadable.items():
            self._counting.figures.count(figure.INSTITUTIONS_UNREADABLE, key)
            self._log.warning("institution_unreadable", institution=key, error=type(error).__name__)
        return handled_in_test({key: asked.known[key] for key in self._acted_for(asked.known)}, self._in_test)


def _recent(asked_at_s: dict[str, float], now_s: float) -> dict[str, float]:
    return {key: at_s for key, at_s in asked_at_s.items() if now_s - at_s <= REFRESH_S}


def handled_in_test(standings: Mapping[str, Standing], keys: frozenset[str]) -> dict[str, Standing]:
    """Return standings that say which institutions the settings name to be handled in test mode."""
    return {key: replace(one, is_handled_in_test=key in keys) for key, one in standings.items()}


FAILURES_THAT_TELL = 3
"""After this many keys in a row without any answer the service is taken to be down, and the rest is not asked for."""


@dataclass(slots=True)
class Standings:
    """The standing of each institution, and the errors for those that could not be read."""

    known: dict[str, Standing] = field(default_factory=dict)
    unreadable: dict[str, ResellerError] = field(default_factory=dict)
    list_error: ResellerError | None = None


async def ask_standings(service: Reseller, keys: Iterable[str]) -> Standings:
    """Ask for the standing of institutions, and return also all others that the list names.

    Spec: Endpoints 8 and 10. Assumed: the wrapper of the list is not shown; see `reseller.answer_meaning`.
    """
    asked = Standings()
    try:
        asked.known = {summary.key: standing_of(summary) for summary in await service.institutions() if summary.key}
    except ResellerError as error:
        asked.list_error = error
    silent = 0
    for key in sorted(set(keys) - asked.known.keys()):
        try:
            asked.known[key] = standing_of(await service.institution(key), key)
            silent = 0
        except ResellerError as error:
            asked.unreadable[key] = error
            silent = silent + 1 if isinstance(error, ServiceUnavailable) else 0
            if silent == FAILURES_THAT_TELL and not asked.known:
                break
    return asked


def standing_of(summary: InstitutionSummary | Institution, key: str | None = None) -> Standing:
    """Return the fields of an institution that we keep. ``key`` is the one it was asked for by, if any."""
    return Standing(
        key=key or summary.key or "",
        name=summary.name,
        status=summary.status,
        has_voice_auth=summary.has_voice_auth,
        is_test_mode=summary.is_test_mode,
    )
