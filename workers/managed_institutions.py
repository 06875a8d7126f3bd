"""Which institutions we may act for, and whether anything may be done for each: read seldom, asked for every call.

The keys come with a login only, the standing from the service's list. Both are refreshed hourly, and when a key turns
up that nobody knew: at most once a minute. A login may forget an institution. One that was listed before is kept,
unless two logins a minute apart do not list it and the service refuses its queue as well.

``ServiceClock`` says how old a call is by the service's clock, which may differ from ours by hours.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from calls.institutions import FOREIGN, UNKNOWN, KnownInstitutions, Standing, ask_standings
from calls.lease import Epoch
from calls.metrics import catalogue as figure
from calls.metrics.counting import Figures
from calls.store.listings import Listings
from calls.store.store import Store
from reseller import Reseller, ResellerError

FOUND_WITHIN_S = 10.0
"""A call is found so soon after it began. A process that has read queues for so long has met every call of before."""

LISTED_ANEW = timedelta(seconds=120)
"""For how long after Redis was emptied calls are found that are not new."""

MOST_LEARNED = 100
AGE_UNKNOWN = timedelta(days=1)


class ServiceClock:
    """What the service's clock says, learned from the starts of the calls that it lists.

    No call starts in the future: the service's clock says at least what the newest start says that was ever listed, and what
    has passed here since. A call that nobody knew of was found within 10 s: once this process found one, the clock says no
    more than that and 10 s.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Learn nothing yet. ``monotonic`` is this process's own clock, in seconds."""
        self._monotonic = monotonic
        self._began_s: float | None = None
        self._found_s: float | None = None
        self._learned: list[tuple[float, float]] = []  # when, and by how much the service's clock is ahead of ours

    def see(self, starts: Iterable[datetime]) -> None:
        """Learn from a page of a queue, empty or not."""
        now_s = self._monotonic()
        self._began_s = now_s if self._began_s is None else self._began_s
        ahead_s = max((started_at.timestamp() - now_s for started_at in starts), default=None)
        if ahead_s is not None and (not self._learned or ahead_s > self._learned[-1][1]):
            self._learned = [*self._learned[1 - MOST_LEARNED :], (now_s, ahead_s)]

    def found(self, started_at: datetime, now: datetime, epoch: Epoch) -> timedelta:
        """Return how old a call is at the most that was just found, and learn from it if it must be new."""
        age = self.age(started_at, now, epoch)
        if now - epoch.since >= LISTED_ANEW:
            self.see([started_at])
            self._found_s = self._monotonic() if self._found_s is None else self._found_s
        return age

    def age(self, started_at: datetime, now: datetime, epoch: Epoch) -> timedelta:
        """Return how old a call is at the most, as far as that can be told.

        Args:
            started_at: When it started, by the service's clock.
            now: Redis's time.
            epoch: The Redis that the call was found with. One that this process saw begin may have forgotten older calls:
                they tell nothing of the service's clock.
        """
        now_s = self._monotonic()
        by_redis = now - started_at
        if epoch.was_seen_to_begin:
            began_s = now_s - (now - epoch.since).total_seconds()
            known = [ahead_s for at_s, ahead_s in self._learned if at_s < began_s]
            if known and self._found_s is not None and self._found_s < began_s:
                return timedelta(seconds=now_s + known[-1] + FOUND_WITHIN_S - started_at.timestamp())
            return by_redis if by_redis >= timedelta() else AGE_UNKNOWN
        ahead = [timedelta(seconds=now_s + self._learned[-1][1] - started_at.timestamp())] if self._learned else []
        return max([*ahead, timedelta()] if self._was_familiar(now_s) else [*ahead, by_redis])

    def _was_familiar(self, at_s: float) -> bool:
        return self._began_s is not None and at_s - self._began_s >= FOUND_WITHIN_S


REFRESH_S = 60.0
"""How old the answers in this process may get before Redis is asked again."""

NOT_OURS: Final = "unknown"
"""The label of institutions that the service account does not own."""

ENLIST_S = 5.0
"""How often it is made sure that every institution is in the due set."""


class Institutions:
    """Answers from memory; refreshes itself from Redis and, when those are missing or old, from the service.

    ``only`` restricts the institutions that are acted for; ``named`` are those that settings name, by setting.
    """

    def __init__(
        self,
        service: Reseller,
        listings: Listings,
        store: Store,
        *,
        only: frozenset[str] | None,
        named: Mapping[str, frozenset[str]] | None = None,
        monotonic: Callable[[], float],
        log: Any,
        figures: Figures,
    ) -> None:
        self._service = service
        self._listings = listings
        self._store = store
        self._only = only
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
        self._figures = figures
        self._unknown_because = ""
        self._missing: dict[str, datetime] = {}

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of the institutions that we act for."""
        return self._keys

    @property
    def are_known(self) -> bool:
        """Tell whether the service ever answered this process."""
        return self._is_loaded

    def label(self, institution_key: str) -> str:
        """Return under which name figures count an institution: all that are not ours share one.

        Whoever may push can invent keys, and every name stays in Redis's figures for weeks.
        """
        return institution_key if institution_key in self._keys else NOT_OURS

    def obstacle(self, institution_key: str) -> str | None:
        """Return why nothing may be done for an institution's calls; None if everything may."""
        if self.are_known and institution_key not in self._keys:
            return FOREIGN
        standing = self._standings.get(institution_key)
        return UNKNOWN if standing is None else standing.obstacle

    async def refresh(self) -> None:
        """Renew what is older than a minute, and enlist; a service that does not answer leaves what is known."""
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
        """Log that the service does not tell which institutions there are, once for each kind of error in a row."""
        if self._unknown_because != type(error).__name__:
            self._unknown_because = type(error).__name__
            self._log.warning("institutions_unknown", error=self._unknown_because)

    async def enlist(self) -> None:
        """Make every institution due that is not in the due set, where that was not looked at a few seconds ago."""
        now_s = self._monotonic()
        if self._enlisted_at_s is None or now_s - self._enlisted_at_s > ENLIST_S:
            await self._store.enlist(sorted(self._keys))
            self._enlisted_at_s = now_s

    async def knows(self, institution_key: str) -> bool:
        """Tell whether a key is ours; a key nobody knew is asked for with a new login, at most once a minute."""
        if institution_key in self._keys:
            return True
        now_s = self._monotonic()
        asked_at_s = self._asked_at_s.get(institution_key)
        if asked_at_s is None or now_s - asked_at_s > REFRESH_S:
            self._asked_at_s = {**_recent(self._asked_at_s, now_s), institution_key: now_s}
            try:
                await self._service.renew(max_age_s=REFRESH_S)
                await self._load()
            except ResellerError as error:
                self._log.warning("institutions_unknown", error=type(error).__name__)
        return institution_key in self._keys

    async def _load(self) -> None:
        await self._service.renew()
        owned = await self._owned()
        self._keys = owned if self._only is None else owned & self._only
        stored = await self._listings.standings()
        if missing := self._keys - stored.keys():
            asked = await self._ask_service(missing)
            await self._listings.save_standings(asked.values())
            stored |= asked
        self._standings = stored
        self._is_loaded = True
        self._warn_of_unknown(owned)

    async def _owned(self) -> frozenset[str]:
        """Return the keys of the login, and those that only earlier logins listed."""
        listed = await self._service.institution_keys()
        owned, gone = await self._listings.take_owned(listed, await self._store.now())
        self._missing = {key: since for key, since in owned.items() if since is not None}
        for key in sorted(gone):
            self._figures.count(figure.INSTITUTIONS_MISSING, key)
            self._log.warning("institution_missing", institution=key)
        return frozenset(owned)

    async def refused(self, institution_key: str) -> None:
        """Drop an institution whose queue the service refuses, if two logins a minute apart did not list it either."""
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
            self._keys -= {institution_key}
            self._log.warning("institution_dropped", institution=institution_key)

    def _warn_of_unknown(self, owned: frozenset[str]) -> None:
        """Log which institutions of the settings are not the account's, each once."""
        known = KnownInstitutions({key: self._standings[key].name if key in self._standings else None for key in owned})
        for setting, key, nearest in known.unknown(self._named):
            if (setting, key) not in self._warned_of:
                self._warned_of.add((setting, key))
                self._log.warning("institution_unknown", setting=setting, institution=key, nearest=nearest)

    async def _ask_service(self, keys: frozenset[str]) -> dict[str, Standing]:
        """Return what the service says of institutions; log and count those of which nothing can be read."""
        asked = await ask_standings(self._service, keys)
        if asked.list_error is not None:
            self._log.warning("institutions_unlisted", error=type(asked.list_error).__name__)
        for key, error in asked.unreadable.items():
            self._figures.count(figure.INSTITUTIONS_UNREADABLE, key)
            self._log.warning("institution_unreadable", institution=key, error=type(error).__name__)
        return {key: standing for key, standing in asked.known.items() if key in self._keys}


def _recent(asked_at_s: dict[str, float], now_s: float) -> dict[str, float]:
    return {key: at_s for key, at_s in asked_at_s.items() if now_s - at_s <= REFRESH_S}
