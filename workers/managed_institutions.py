"""The institutions we may act for, and what the service says of each.

Keys come from logins and from the service's list. The standing comes from the list, or from a request by key. One of
all workers reads the list every 90 s. Of keys that the list does not name, it asks for each that has no standing, or
one with which nothing may be done. A login is made hourly, and at most once a minute when an unknown key appears. A key
that a later login omits is kept, unless two logins a minute apart omit it and the service also refuses its queue for a
minute. A key that only the settings name is asked for by key. While the service does not answer, those of which nothing
is known yet are asked for every 3 s. A push alone proves nothing. Assumed (`listed-is-ours`): what the list names is
the account's to manage.

``confirm`` is asked before an enroll or reject. If the standing is older than two minutes, it asks the service by key,
once for all workers.

`workers.managed_keys` says for which of them we act, `workers.standing_requests` asks the service: a worker takes a permit
for each request. If there is none, it saves what it has learned so far, and goes on soon afterwards.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from callkeeper.calls.institutions import FOREIGN, UNKNOWN
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.store.breakers import ACCOUNT, EndpointKind, RequestResult
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.last_listing import ASK_AGAIN, STANDING_FRESH, Listings, Standing
from callkeeper.calls.store.request_budget import Permit
from callkeeper.service import NotSent, ResellerError, ServiceUnavailable
from callkeeper.service.client import Reseller
from workers.counting import Counting
from workers.managed_keys import InstitutionSettings, ManagedKeys
from workers.service_gate import Held, ServiceGate, Wanted, Why
from workers.standing_requests import StandingRequests
from workers.standings import LIST, handled_in_test

LIST_EVERY = timedelta(seconds=90)
"""How often the service's list is read, by all workers together. With `RELOAD_S` it is shorter than two minutes: an
institution whose pushes are lost is found in that time, and the standing before an effect is usually new enough."""

RELOAD_S = 20.0
"""How old the answers in this process may get, in seconds, before Redis is asked again."""

RELOAD_AT_ONCE_S = 2.0
"""The same when a call comes of an institution that is not known to be ours: another worker may have found it."""

RETRY_S = 2.0
"""How soon a worker asks again after the service did not answer, in seconds."""

REFRESH_S = 60.0
"""How often a worker asks the service for what is missing, in seconds: unknown keys, logins without a key."""

WHILE_SILENT = timedelta(seconds=3)
"""How often one of all workers asks while the service has never answered about an institution. A refusal and a 429 are
answers."""

GO_ON = timedelta(seconds=0.5)
"""How soon one of all workers goes on asking for keys for which there was no permit. It must be less than a second: a
permit is kept for no longer after the time at which the worker should ask again."""

RENEWED_AFTER = timedelta(minutes=30)
"""How old a standing may get before the service is asked by key again."""

WHILE_ASKED_S = 0.5
"""How soon a call asks again while another worker asks the service, in seconds."""

KEYS_REFUSED_S = 600.0
"""For how long the list is read instead after the service refused to name one institution by its key, in seconds."""

ENLIST_S = 5.0
"""How often every institution is added to the due set if it is missing there, in seconds."""


class Institutions:
    """Answers from memory. Refreshes itself from Redis, and from the service if Redis has nothing or only old data."""

    def __init__(
        self,
        service: Reseller,
        listings: Listings,
        store: Store,
        gate: ServiceGate,
        settings: InstitutionSettings,
        *,
        monotonic: Callable[[], float],
        log: Any,
        counting: Counting,
    ) -> None:
        self._service = service
        self._listings = listings
        self._store = store
        self._gate = gate
        self._in_test = settings.in_test
        self._monotonic = monotonic
        self._log = log
        self._counting = counting
        self.managed_keys = ManagedKeys(settings, log)
        """Which institutions the account manages, and which of them we act for."""
        self._requests = StandingRequests(service, store.budget.wait_s, monotonic, log, counting)
        self._standings: dict[str, Standing] = {}
        self.are_known = False
        """Whether this process has got an answer from the service yet."""
        self._is_silent = False
        """The service did not answer about an institution that we act for."""
        self._missing: dict[str, datetime] = {}
        """Institutions that logins omit, and since when."""
        self._refreshing = asyncio.Lock()
        self._refreshed_at_s = self._enlisted_at_s = self._missed_at_s = -math.inf
        self._renewal_failed_at_s = self._keys_refused_at_s = -math.inf
        self._sought_at_s: dict[str, float] = {}
        """When an unknown key made us log in."""
        self._unknown_because = ""
        counting.ours = self.keys

    @property
    def keys(self) -> frozenset[str]:
        """The institutions that we act for."""
        return self.managed_keys.acted_for

    def obstacle(self, institution_key: str) -> str | None:
        """Return why nothing may be done for an institution's calls; None if there is no obstacle."""
        if self.are_known and institution_key not in self.keys:
            return FOREIGN
        standing = self._standings.get(institution_key)
        return UNKNOWN if standing is None else standing.obstacle

    def held_until(self, institution_key: str, now: datetime) -> datetime | None:
        """Return until when enrolls and rejects wait because the standing is not known; None if they need not."""
        standing = self._standings.get(institution_key)
        return None if standing is None else standing.held_until(now)

    def is_stale(self, max_age_s: float = RELOAD_S) -> bool:
        """Tell whether what this process knows is older than this."""
        return self._monotonic() - self._refreshed_at_s > max_age_s

    async def refresh(self, *, max_age_s: float = RELOAD_S) -> None:
        """Refresh what is older, and enlist. If the service does not answer, keep what is known.

        While this process alone gets no answers, another one asks: a turn or a login that it took would delay that.
        """
        async with self._refreshing:
            if self.is_stale(max_age_s) and not (self.keys and self._gate.way.is_doubted):
                now_s = self._monotonic()
                try:
                    await self._load()
                    self._refreshed_at_s, self._unknown_because = now_s, ""
                    if self._requests.left:
                        self._refresh_in(GO_ON.total_seconds(), now_s)
                    elif self._is_silent:
                        self._refresh_in(WHILE_SILENT.total_seconds(), now_s)
                except ResellerError as error:
                    self._refresh_in(RETRY_S, now_s)
                    because = type(error).__name__
                    if because != self._unknown_because:  # once for each kind of error in a row
                        self._log.warning("institutions_unknown", error=because)
                    self._unknown_because = because
        await self.enlist()

    def _refresh_in(self, seconds: float, now_s: float) -> None:
        """Refresh sooner than after `RELOAD_S`: what is known counts as that much older."""
        self._refreshed_at_s = now_s + seconds - RELOAD_S

    async def confirm(self, institution_key: str, member: str, now: datetime) -> Held | None:
        """Make sure before an enroll or reject that the standing is new. Checks and reads do not wait for it.

        Returns:
            None if the standing is new enough, or nobody answers; `obstacle` and `held_until` say what follows. Else
            what the effect waits for.
        """
        if self._is_settled(institution_key, now):
            return None
        stored = await self._listings.standing(institution_key)
        if stored is not None:
            self._standings |= handled_in_test({institution_key: stored}, self._in_test)
        if self._is_settled(institution_key, now):
            return None
        held = await self._gate.ask(Wanted(institution_key, member, Permit.EFFECT, is_free=True), now)
        if held is not None:
            return held
        asks_all = self._monotonic() - self._keys_refused_at_s < KEYS_REFUSED_S
        if not await self._listings.may_ask("" if asks_all else institution_key, now, ASK_AGAIN):
            return Held(Why.STANDING, WHILE_ASKED_S)
        await self._ask_before_effect(institution_key, now, asks_all=asks_all)
        return Held(Why.STANDING)

    def _is_settled(self, institution_key: str, now: datetime) -> bool:
        """Tell whether asking now would bring nothing new."""
        standing = self._standings.get(institution_key)
        return standing is not None and (standing.is_younger(STANDING_FRESH, now) or standing.is_unanswered(now))

    async def _ask_before_effect(self, institution_key: str, now: datetime, *, asks_all: bool) -> None:
        """Ask the service by key, or for its list, and store what it says, or that it said nothing.

        One request for each claim: a lease covers no more.
        """
        asked, error = await self._requests.ask_one(LIST if asks_all else institution_key)
        if error is not None:
            self._log.warning("institution_unconfirmed", institution=institution_key, error=type(error).__name__)
            if not asks_all and not isinstance(error, ServiceUnavailable | NotSent):
                self._keys_refused_at_s = self._monotonic()
                return  # the list is asked next
        standings = self._standings_of(asked.known, now)
        before = self._standings.get(institution_key)
        if before is not None and institution_key not in asked.known:
            standings[institution_key] = replace(before, unanswered_at=now)
        await self._listings.save_standings(standings.values())
        self._standings |= standings

    async def enlist(self) -> None:
        """Make every institution due that is missing in the due set, at most every few seconds."""
        now_s = self._monotonic()
        if now_s - self._enlisted_at_s > ENLIST_S:
            await self._store.enlist(sorted(self.keys))
            self._enlisted_at_s = now_s

    async def knows(self, institution_key: str) -> bool:
        """Tell whether a key is ours. For an unknown key, log in again and look, at most once a minute."""
        if institution_key in self.keys:
            return True
        now_s = self._monotonic()
        if now_s - self._sought_at_s.get(institution_key, -math.inf) > REFRESH_S:
            recent = {key: at_s for key, at_s in self._sought_at_s.items() if now_s - at_s <= REFRESH_S}
            self._sought_at_s = {**recent, institution_key: now_s}
            try:
                await self._service.renew(max_age_s=REFRESH_S)
                await self._load(sought=institution_key)
            except ResellerError as error:
                self._log.warning("institutions_unknown", error=type(error).__name__)
        return institution_key in self.keys

    async def _load(self, *, sought: str | None = None) -> None:
        """Load the institutions from Redis, and from the service what is missing there or due.

        ``sought`` is a key that is not known: the service's list is read if it is not stored.
        """
        await self._renew()
        listed = await self._service.institution_keys()
        now, standings = await self._store.now(), await self._listings.standings()
        stored = {key: one for key, one in standings.items() if one.told_at is not None}
        owned = await self._owned(listed, stored)
        sure = {key for key, one in stored.items() if one.unanswered_at is None and one.is_younger(RENEWED_AFTER, now)}
        missing = self.managed_keys.needed(owned) - sure
        is_due = await self._is_due(missing, stored, now, seeks=sought is not None and sought not in owned)
        if is_due or await self._may_go_on(now):
            # A failure or a 429 of one of the next requests must not be taken for one of the whole account.
            self._store.breakers.acted_for = self.managed_keys.allowed(owned)
            held = {key for key, one in stored.items() if one.obstacle is not None}
            wanted = {LIST, *missing, *self.managed_keys.allowed(held)}
            asked = await self._requests.ask(wanted if is_due else wanted.intersection(self._requests.left), stored)
            answered = self._standings_of(asked.known, now)
            await self._listings.save_standings(answered.values())
            stored |= answered
            owned = await self._owned(listed, stored)
            missing -= answered.keys()
        self._is_silent = self._requests.is_silent(missing)
        self.managed_keys.take(owned)
        self._tell_keys()
        self._standings = handled_in_test(stored, self._in_test)
        self.are_known = True
        self.managed_keys.warn_of_unknown(
            {key: self._standings[key].name if key in self._standings else None for key in owned}
        )

    def _standings_of(self, known: Mapping[str, Standing], now: datetime) -> dict[str, Standing]:
        """Return what the service has just said of institutions, as far as the settings do not exclude them."""
        told = {key: replace(known[key], told_at=now) for key in self.managed_keys.allowed(known)}
        return handled_in_test(told, self._in_test)

    def _tell_keys(self) -> None:
        """Tell the breakers and the counting for which institutions we act."""
        self._counting.ours = self._store.breakers.acted_for = self.keys

    async def _renew(self) -> None:
        """Log in hourly for new keys. If that fails, the token that there is may still be good: try again in a minute."""
        now_s = self._monotonic()
        if now_s - self._renewal_failed_at_s >= REFRESH_S:
            try:
                await self._service.renew()
            except ResellerError:  # which the log has
                self._renewal_failed_at_s = now_s

    async def _is_due(self, missing: Collection[str], stored: Collection[str], now: datetime, *, seeks: bool) -> bool:
        """Tell whether this worker asks for the list and for all that is missing now.

        ``missing`` are the keys that have to be asked for, ``stored`` those of which something is known.
        """
        if self._requests.is_paused:
            return False
        is_away = self._store.breakers.over(ACCOUNT) is not None
        is_due = not is_away and await self._listings.may_ask("", now, LIST_EVERY)
        if missing or seeks:
            now_s = self._monotonic()
            is_due |= now_s - self._missed_at_s > REFRESH_S
            is_unheard = any(key not in stored for key in missing)
            is_due |= self._is_silent and is_unheard and await self._listings.may_ask("missing", now, WHILE_SILENT)
            self._missed_at_s = now_s if is_due else self._missed_at_s
        return is_due

    async def _may_go_on(self, now: datetime) -> bool:
        """Tell whether this worker asks for what had to be left when it asked before."""
        is_left = bool(self._requests.left) and not self._requests.is_paused
        return is_left and await self._listings.may_ask("missing", now, GO_ON)

    async def _owned(self, listed: Iterable[str], others: Iterable[str]) -> frozenset[str]:
        """Return the keys of this login, of the service's list, and of earlier logins."""
        owned, gone = await self._listings.take_owned(listed, await self._store.now(), others=others)
        self._missing = {key: since for key, since in owned.items() if since is not None}
        for key in sorted(gone):
            self._counting.figures.count(figure.INSTITUTIONS_MISSING, key)
            self._log.warning("institution_missing", institution=key)
        return frozenset(owned)

    async def refused(self, institution_key: str) -> None:
        """Drop an institution whose queue the service refuses for a minute, if two logins so far apart omitted it as well.

        A single refusal proves nothing.
        """
        since, now = self._missing.get(institution_key), await self._store.now()
        if since is None:
            return
        listed_at = await self._listings.last_listed_at(institution_key, now)
        if (now - max(since, listed_at or since)).total_seconds() < REFRESH_S:
            return
        try:
            await self._service.renew(max_age_s=REFRESH_S)
            await self._load()
        except ResellerError as error:
            self._log.warning("institutions_unknown", error=type(error).__name__)
            return
        if institution_key in self._missing:
            await self._listings.disown(institution_key)
            self.managed_keys.drop(institution_key)
            self._tell_keys()
            self._log.warning("institution_dropped", institution=institution_key)

    async def leave(self, institution_key: str) -> None:
        """Forget what stopped requests for an institution that is not ours. No request would ever find that it is over."""
        await self._listings.forget_refusals(institution_key)
        await self._gate.publish(RequestResult.ANSWER, institution_key, EndpointKind.CHECK)
