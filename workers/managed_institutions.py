"""The institutions we may act for, and what the service says of each.

Keys come from logins and from the service's list. The standing comes from the list, or from a request by key. The list
is read every 90 s by one of all workers, who asks by key for those that it does not name and that have no standing, or
one with which nothing may be done. A login is made hourly, and at most once a minute when an unknown key appears. A key
that a later login omits is kept, unless two logins a minute apart omit it and the service also refuses its queue for a
minute. A key that only the settings name is asked for by key. While the service does not answer, those of which nothing
is known yet are asked for every 3 s. A push alone proves nothing. Assumed (`listed-is-ours`): what the list names is the
account's to manage.

``confirm`` is asked before an enroll or reject. If the standing is older than two minutes, it asks the service by key,
once for all workers.

The service is asked as in `workers.standings`. A worker takes a permit for each request. If there is none, it saves what
it has learned so far, and goes on soon afterwards.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from callkeeper.calls.institutions import FOREIGN, UNKNOWN, KnownInstitutions
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.store.breakers import ACCOUNT, EndpointKind, RequestResult
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.last_listing import (
    ASK_AGAIN,
    STANDING_FRESH,
    Listings,
    Standing,
)
from callkeeper.calls.store.request_budget import Permit
from callkeeper.service import (
    AnswerUnreadable,
    NotSent,
    ResellerError,
    ServiceBusy,
    ServiceRefused,
    ServiceUnavailable,
)
from callkeeper.service.client import Reseller
from workers.counting import Counting
from workers.service_gate import Held, ServiceGate, Wanted, Why
from workers.standings import LIST, Standings, ask_standings, handled_in_test, seen_in_standings

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

PORTION_S = 2.0
"""After this time, in seconds, what was learned is used before more keys are asked for: a worker that starts waits for
it."""

RENEWED_AFTER = timedelta(minutes=30)
"""How old a standing may get before the service is asked by key again."""

WHILE_ASKED_S = 0.5
"""How soon a call asks again while another worker asks the service, in seconds."""

KEYS_REFUSED_S = 600.0
"""For how long the list is read instead after the service refused to name one institution by its key, in seconds."""

ENLIST_S = 5.0
"""How often every institution is added to the due set if it is missing there, in seconds."""


@dataclass(eq=False)
class Institutions:
    """Answers from memory. Refreshes itself from Redis, and from the service if Redis has nothing or only old data.

    ``only`` restricts the institutions that are acted for, ``in_test`` are handled although they are in test mode.
    ``named`` are the keys in the settings, by setting. ``beside`` tells whether workers of this installation act for an
    institution: their settings may have others than ours.
    """

    service: Reseller
    listings: Listings
    store: Store
    gate: ServiceGate
    _: KW_ONLY
    only: frozenset[str] | None
    in_test: frozenset[str] = frozenset()
    named: Mapping[str, frozenset[str]] | None = None
    beside: Callable[[str], bool] = lambda _: False
    monotonic: Callable[[], float]
    log: Any
    counting: Counting
    keys: frozenset[str] = field(default=frozenset(), init=False)
    """The institutions that we act for."""
    are_known: bool = field(default=False, init=False)
    """Whether this process has got an answer from the service yet."""
    _owned_keys: frozenset[str] = field(default=frozenset(), init=False)
    _warned_of: set[tuple[str, str]] = field(default_factory=set)
    _standings: dict[str, Standing] = field(default_factory=dict)
    _refreshing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _refreshed_at_s: float | None = None
    _enlisted_at_s: float | None = None
    _asked_at_s: dict[str, float] = field(default_factory=dict)
    _missed_at_s: float = -math.inf
    _renewal_failed_at_s: float = -math.inf
    _keys_refused_at_s: float = -math.inf
    _unknown_because: str = ""
    _unlisted_because: str = ""
    _unreadable: Mapping[str, ResellerError] = field(default_factory=dict)
    """The last errors of keys that failed, in the order in which they were asked for."""
    _is_silent: bool = False
    _left: tuple[str, ...] = ()
    """Keys that are asked for next (`Standings.left`)."""
    _paused_until_s: float = -math.inf
    """The service asked for no more requests about institutions before this time (`Retry-After`). Calls go on."""
    _missing: dict[str, datetime] = field(default_factory=dict)
    _spelled_otherwise: set[str] = field(default_factory=set)
    """Keys that are left out, because one that we act for is the same in other capitals."""

    def __post_init__(self) -> None:
        self.counting.ours = self.keys

    def obstacle(self, institution_key: str) -> str | None:
        """Return why nothing may be done for an institution's calls; None if there is no obstacle."""
        if self.are_known and institution_key not in self.keys:
            return FOREIGN
        standing = self._standings.get(institution_key)
        return UNKNOWN if standing is None else standing.obstacle

    def is_left_to_others(self, institution_key: str) -> bool:
        """Tell whether only our own settings exclude an institution, for which other workers act."""
        is_excluded = institution_key in self._owned_keys and institution_key not in self.keys
        return is_excluded and self.beside(institution_key)

    def left_to_others(self) -> list[str]:
        """Return all institutions of which `is_left_to_others` holds."""
        return [] if self.only is None else [key for key in self._owned_keys if self.is_left_to_others(key)]

    def spelling_kept(self, institution_key: str) -> str:
        """Return the key that we act for instead of one that is the same in other capitals; else the key itself."""
        if institution_key not in self._spelled_otherwise:
            return institution_key
        kept = (key for key in self.keys if key.casefold() == institution_key.casefold())
        return next(kept, institution_key)

    def held_until(self, institution_key: str, now: datetime) -> datetime | None:
        """Return until when enrolls and rejects wait because the standing is not known; None if they need not."""
        standing = self._standings.get(institution_key)
        return None if standing is None else standing.held_until(now)

    def is_stale(self, max_age_s: float = RELOAD_S) -> bool:
        """Tell whether what this process knows is older than this."""
        return self._refreshed_at_s is None or self.monotonic() - self._refreshed_at_s > max_age_s

    async def refresh(self, *, max_age_s: float = RELOAD_S) -> None:
        """Refresh what is older, and enlist. If the service does not answer, keep what is known.

        While this process alone gets no answers, another one asks: a turn or a login that it took would delay that.
        """
        async with self._refreshing:
            if self.is_stale(max_age_s) and not (self.keys and self.gate.way.is_doubted):
                now_s = self.monotonic()
                try:
                    await self._load()
                    self._refreshed_at_s, self._unknown_because = now_s, ""
                    if self._left:
                        self._refresh_in(GO_ON.total_seconds(), now_s)
                    elif self._is_silent:
                        self._refresh_in(WHILE_SILENT.total_seconds(), now_s)
                except ResellerError as error:
                    self._refresh_in(RETRY_S, now_s)
                    because = type(error).__name__
                    if because != self._unknown_because:  # once for each kind of error in a row
                        self.log.warning("institutions_unknown", error=because)
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
        stored = await self.listings.standing(institution_key)
        if stored is not None:
            self._standings |= handled_in_test({institution_key: stored}, self.in_test)
        if self._is_settled(institution_key, now):
            return None
        held = await self.gate.ask(Wanted(institution_key, member, Permit.EFFECT, is_free=True), now)
        if held is not None:
            return held
        asks_all = self.monotonic() - self._keys_refused_at_s < KEYS_REFUSED_S
        if not await self.listings.may_ask("" if asks_all else institution_key, now, ASK_AGAIN):
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
        asked = Standings()
        error = None if self._is_paused else await asked.ask(self.service, LIST if asks_all else institution_key)
        self._heed(error)
        if error is not None:
            self.log.warning("institution_unconfirmed", institution=institution_key, error=type(error).__name__)
            if isinstance(error, ServiceRefused) and not asks_all and institution_key in self._standings:
                self.counting.figures.see("institution-by-key", "keys-refused", institution_key, "refused by its key")
            if not asks_all and not isinstance(error, ServiceUnavailable | NotSent):
                self._keys_refused_at_s = self.monotonic()
                return  # the list is asked next
        standings = {key: replace(one, told_at=now) for key, one in asked.known.items()}
        before = self._standings.get(institution_key)
        if before is not None and institution_key not in standings:
            standings[institution_key] = replace(before, unanswered_at=now)
        standings = handled_in_test({key: standings[key] for key in self._acted_for(standings)}, self.in_test)
        await self.listings.save_standings(standings.values())
        self._standings |= standings

    async def enlist(self) -> None:
        """Make every institution due that is missing in the due set, at most every few seconds."""
        now_s = self.monotonic()
        if self._enlisted_at_s is None or now_s - self._enlisted_at_s > ENLIST_S:
            await self.store.enlist(sorted(self.keys))
            self._enlisted_at_s = now_s

    async def knows(self, institution_key: str) -> bool:
        """Tell whether a key is ours. For an unknown key, log in again and look, at most once a minute."""
        if institution_key in self.keys:
            return True
        now_s = self.monotonic()
        asked_at_s = self._asked_at_s.get(institution_key)
        if asked_at_s is None or now_s - asked_at_s > REFRESH_S:
            recent = {key: at_s for key, at_s in self._asked_at_s.items() if now_s - at_s <= REFRESH_S}
            self._asked_at_s = {**recent, institution_key: now_s}
            try:
                await self.service.renew(max_age_s=REFRESH_S)
                await self._load(sought=institution_key)
            except ResellerError as error:
                self.log.warning("institutions_unknown", error=type(error).__name__)
        return institution_key in self.keys

    async def _load(self, *, sought: str | None = None) -> None:
        """Load the institutions from Redis, and from the service what is missing there or due.

        ``sought`` is a key that is not known: the service's list is read if it is not stored.
        """
        await self._renew()
        listed = await self.service.institution_keys()
        now, standings = await self.store.now(), await self.listings.standings()
        stored = {key: one for key, one in standings.items() if one.told_at is not None}
        owned = await self._owned(listed, stored)
        sure = {key for key, one in stored.items() if one.unanswered_at is None and one.is_younger(RENEWED_AFTER, now)}
        missing = self._acted_for(owned | (self.only or frozenset())) - sure
        is_due = await self._is_due(missing, stored, now, seeks=sought is not None and sought not in owned)
        goes_on = (
            bool(self._left) and not (is_due or self._is_paused) and await self.listings.may_ask("missing", now, GO_ON)
        )
        if is_due or goes_on:
            # A failure or a 429 of one of the next requests must not be taken for one of the whole account.
            self.store.breakers.acted_for = self._acted_for(owned)
            held = {key for key, one in stored.items() if one.obstacle is not None}
            wanted = {LIST, *missing, *self._acted_for(held)}
            asked = await self._ask_service(wanted if is_due else wanted.intersection(self._left), now, listed, stored)
            await self.listings.save_standings(asked.values())
            stored |= asked
            owned = await self._owned(listed, stored)
            missing -= asked.keys()
        self._is_silent = any(_is_silence(self._unreadable.get(key)) for key in missing)
        self._owned_keys = self._in_one_spelling(owned)
        self._act_for(self._in_one_spelling(self._acted_for(owned)))
        self._standings = handled_in_test(stored, self.in_test)
        self.are_known = True
        self._warn_of_unknown(owned)

    async def _renew(self) -> None:
        """Log in hourly for new keys. If that fails, the token that there is may still be good: try again in a minute."""
        now_s = self.monotonic()
        if now_s - self._renewal_failed_at_s >= REFRESH_S:
            try:
                await self.service.renew()
            except ResellerError:  # which the log has
                self._renewal_failed_at_s = now_s

    async def _is_due(self, missing: Collection[str], stored: Collection[str], now: datetime, *, seeks: bool) -> bool:
        """Tell whether this worker asks for the list and for all that is missing now.

        ``missing`` are the keys that have to be asked for, ``stored`` those of which something is known.
        """
        if self._is_paused:
            return False
        is_away = self.store.breakers.over(ACCOUNT) is not None
        is_due = not is_away and await self.listings.may_ask("", now, LIST_EVERY)
        if missing or seeks:
            now_s = self.monotonic()
            is_due |= now_s - self._missed_at_s > REFRESH_S
            is_unheard = any(key not in stored for key in missing)
            is_due |= self._is_silent and is_unheard and await self.listings.may_ask("missing", now, WHILE_SILENT)
            self._missed_at_s = now_s if is_due else self._missed_at_s
        return is_due

    @property
    def _is_paused(self) -> bool:
        return self.monotonic() < self._paused_until_s

    def _heed(self, *errors: ResellerError | None) -> None:
        """Ask for nothing until the time that a 429 has named, if one of these errors is such a 429."""
        for error in errors:
            if isinstance(error, ServiceBusy) and error.retry_after_s is not None:
                self._paused_until_s = max(self._paused_until_s, self.monotonic() + error.retry_after_s)

    def _act_for(self, keys: frozenset[str]) -> None:
        self.keys = self.counting.ours = self.store.breakers.acted_for = keys

    def _acted_for(self, keys: Iterable[str]) -> frozenset[str]:
        return frozenset(keys) if self.only is None else self.only.intersection(keys)

    def _in_one_spelling(self, keys: frozenset[str]) -> frozenset[str]:
        """Leave out a key that is another one in other capitals: each call would have two records, and two enrolls.

        All workers keep the same one.
        """
        kept = {key.casefold(): key for key in sorted(keys)}
        for key in sorted(keys.difference(kept.values(), self._spelled_otherwise)):
            self.log.error("institution_spelled_twice", institution=kept[key.casefold()], left_out=key)
            self._spelled_otherwise.add(key)
        return frozenset(kept.values())

    async def _owned(self, listed: Iterable[str], others: Iterable[str]) -> frozenset[str]:
        """Return the keys of this login, of the service's list, and of earlier logins."""
        owned, gone = await self.listings.take_owned(listed, await self.store.now(), others=others)
        self._missing = {key: since for key, since in owned.items() if since is not None}
        for key in sorted(gone):
            self.counting.figures.count(figure.INSTITUTIONS_MISSING, key)
            self.log.warning("institution_missing", institution=key)
        return frozenset(owned)

    async def refused(self, institution_key: str) -> None:
        """Drop an institution whose queue the service refuses for a minute, if two logins so far apart omitted it as well.

        A single refusal proves nothing.
        """
        since, now = self._missing.get(institution_key), await self.store.now()
        if since is None:
            return
        listed_at = await self.listings.last_listed_at(institution_key, now)
        if (now - max(since, listed_at or since)).total_seconds() < REFRESH_S:
            return
        try:
            await self.service.renew(max_age_s=REFRESH_S)
            await self._load()
        except ResellerError as error:
            self.log.warning("institutions_unknown", error=type(error).__name__)
            return
        if institution_key in self._missing:
            await self.listings.disown(institution_key)
            self._owned_keys -= {institution_key}
            self._act_for(self.keys - {institution_key})
            self.log.warning("institution_dropped", institution=institution_key)

    async def leave(self, institution_key: str) -> None:
        """Forget what stopped requests for an institution that is not ours. No request would ever find that it is over."""
        await self.listings.forget_refusals(institution_key)
        await self.gate.publish(RequestResult.ANSWER, institution_key, EndpointKind.CHECK)

    def _warn_of_unknown(self, owned: frozenset[str]) -> None:
        """Log each institution in the settings that the account does not manage, once per key."""
        if not self.named:
            return
        known = KnownInstitutions({key: self._standings[key].name if key in self._standings else None for key in owned})
        for setting, key, nearest in known.unknown(self.named):
            if (setting, key) not in self._warned_of:
                self._warned_of.add((setting, key))
                self.log.warning("institution_unknown", setting=setting, institution=key, nearest=nearest)

    async def _ask_service(
        self, keys: Collection[str], now: datetime, listed: frozenset[str], told: Collection[str]
    ) -> dict[str, Standing]:
        """Return what the service says of institutions. Log and count those that cannot be read.

        ``listed`` are the keys of the login, ``told`` those of which something is known: they are asked for after those
        of which nothing is. Keys that failed before come last, those that were asked for longest ago first.
        """
        began_s = self.monotonic()

        async def may_ask(key: str) -> bool:
            if self.monotonic() - began_s > PORTION_S:
                return False
            kind = Permit.LISTING if key in told else Permit.EFFECT
            return not await self.store.budget.wait_s(kind, "standing", key)

        turns = {key: number for number, key in enumerate(self._unreadable, start=1)}
        in_turn = sorted(keys, key=lambda key: (turns.get(key, 0), key in told, key not in self._left, key))
        asked = await ask_standings(self.service, in_turn, may_ask=may_ask)
        self._left = tuple(asked.left)
        self._heed(asked.list_error, *asked.unreadable.values())
        for key, one in seen_in_standings(asked, listed, self._standings):
            self.counting.figures.see(one.assumption, one.answer, self.counting.label(key), one.shape)
        if asked.named is not None:
            self._unlisted_because = ""
        elif asked.list_error is not None and self._unlisted_because != (because := type(asked.list_error).__name__):
            self._unlisted_because = because
            self.log.warning("institutions_unlisted", error=because)
        if isinstance(asked.list_error, AnswerUnreadable):
            self.counting.figures.count(figure.INSTITUTIONS_UNLISTED)
        for key, error in asked.unreadable.items():
            self.counting.figures.count(figure.INSTITUTIONS_UNREADABLE, key)
            if type(error) is not type(self._unreadable.get(key)):
                self.log.warning("institution_unreadable", institution=key, error=type(error).__name__)
        before = {key: error for key, error in self._unreadable.items() if key not in asked.unreadable}
        self._unreadable = {key: error for key, error in (before | asked.unreadable).items() if key not in asked.known}
        standings = {key: replace(asked.known[key], told_at=now) for key in self._acted_for(asked.known)}
        return handled_in_test(standings, self.in_test)


def _is_silence(error: ResellerError | None) -> bool:
    return isinstance(error, ServiceUnavailable) and not isinstance(error, ServiceBusy)
