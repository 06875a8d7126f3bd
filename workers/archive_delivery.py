"""Writes settled calls to the archive while a shift runs: at least once, in batches per institution.

The database is used in a thread, with a deadline. A circuit breaker that all workers share stops writes while it is
down. A call that cannot be written is tried five times, alone, and then waits for a person. It does not delay the
others.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, ClassVar, Final

import msgspec
from redis.exceptions import RedisError

from callkeeper.archive.chain_heads import signed_head
from callkeeper.archive.errors import ArchiveAway, ValueRefused
from callkeeper.archive.lines import AUDIT_LOG, RULES, audit_content, content_of, rules_content
from callkeeper.archive.writing import Head, Writer
from callkeeper.calls.claimed_item import ClaimedItem, Placement, WriteRefused
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.record_storage import NewerRecord, parse_call
from callkeeper.calls.store.archive_queue import ArchiveQueue, Stored
from callkeeper.calls.store.breakers import ACCOUNT, RequestResult
from callkeeper.calls.store.last_errors import ErrorArea
from callkeeper.calls.traceback_filter import innermost_place
from callkeeper.calls.trail import parse_trail
from callkeeper.service.secret import Secret
from workers.outbox import Outbox
from workers.retry_schedule import STEPS

AT_ONCE: Final = 400
ENOUGH_S: Final = 2.0
"""After this many seconds no further write of a batch begins, because the leases have to last until its end."""

AGAIN_MS: Final = 2000
HEADS_EVERY_S: Final = 540
"""How often new heads are logged, in seconds. Lines written since are not proved yet: at most for ten minutes in all."""

HEADS_AGAIN_S: Final = 5
"""After how many seconds heads that could not be read are logged."""

HEADS_WITHIN_S: Final = 60
"""After how many seconds another process logs the heads if this one was killed meanwhile."""

NOTED_AT_ONCE: Final = 100
"""How many heads are noted after one wait for the log. Each takes 50 ms, or a second if nobody reads the log, and nothing
is archived meanwhile."""

AUDIT_EVERY_S: Final = 10

Pair = tuple[ClaimedItem, Stored]


@dataclass(slots=True)
class ArchiveDeliveries(Outbox):
    """Claims and writes what is due for the archive, one batch at a time."""

    poll_every_s: ClassVar[float] = 0.2
    grace_s: ClassVar[float] = 2.0

    store: ArchiveQueue
    writer: Writer
    log: Any
    flush_log: Callable[[], None]
    """Waits until the log's lines are written. One of a head that is noted must not be lost by a kill."""
    key: Secret | None = None
    """Signs the heads of the chains."""
    figures: Figures = field(default_factory=Figures)
    monotonic: Callable[[], float] = monotonic
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _away_for: set[str] = field(default_factory=set)
    """The reasons for which the database could not be used since it was written last."""
    _audit_refused_for: str = ""

    def _room(self) -> int:
        return 0 if self._tasks else AT_ONCE

    def _begin(self, claimed: Sequence[ClaimedItem]) -> None:
        if claimed:
            self._start(self._advance(claimed))

    async def close(self) -> None:
        self.writer.close()

    async def _before_claim(self) -> None:
        await self.store.sweep()
        if await self.store.takes_turn("heads", HEADS_WITHIN_S):
            self._start(self._log_heads())
        if await self.store.takes_turn("audit", AUDIT_EVERY_S):
            self._start(self._copy_audit())

    async def _claim_once(self) -> None:
        await self._before_claim()
        while await self.claim() == AT_ONCE:  # a backlog: continue without a pause
            await self.settle()
            await self._before_claim()

    async def _advance(self, items: Sequence[ClaimedItem]) -> None:
        leased_at_s = self.monotonic()
        by_institution: dict[str, list[Pair]] = defaultdict(list)
        with suppress(RedisError):
            for item, stored in zip(items, await self.store.stored(items), strict=True):
                if stored is None or not isinstance(item.owner, CallId):
                    await self.store.archived(item)
                else:
                    by_institution[item.owner.institution_key].append((item, stored))
            for key, pairs in by_institution.items():
                await self._write(key, pairs, leased_at_s)

    async def _write(self, key: str, pairs: Sequence[Pair], leased_at_s: float) -> None:
        """Write calls of one institution. If that fails, halve the batch until the faulty calls are found.

        ``leased_at_s`` is when their leases began. What is written after its lease may have been erased meanwhile.
        """
        if self._is_late(leased_at_s):
            await self._let_go([item for item, _ in pairs], 0)
            return
        try:
            written = await asyncio.to_thread(self._write_now, key, [stored for _, stored in pairs])
        except ArchiveAway as away:
            await self.store.breakers.report(RequestResult.FAILURE)
            await self.store.errors.note(ErrorArea.ARCHIVE, ACCOUNT, str(away))
            self.figures.count(figure.ARCHIVED, "put_off", n=len(pairs))
            self._log_away(away)
            await self._let_go([item for item, _ in pairs], AGAIN_MS)
            return
        except Exception as error:  # noqa: BLE001  (a fault in one call must not stop the others)
            if len(pairs) == 1:
                await self._refused(pairs[0][0], error)
                return
            first, rest = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
            if self._is_late(leased_at_s):  # a slow database must not keep the faulty call from being found
                await self._let_go([item for item, _ in rest], 0)
                await self._advance(await self._renewed([item for item, _ in first]))
            else:
                await self._write(key, first, leased_at_s)
                await self._write(key, rest, leased_at_s)
            return
        if self.store.breakers.has_failed(ACCOUNT):
            await self.store.breakers.report(RequestResult.ANSWER)
        self.figures.count(figure.ARCHIVED, "written", n=written)
        await asyncio.gather(*(self.store.archived(item) for item, _ in pairs))
        await self._log_back()

    def _write_now(self, key: str, calls: Sequence[Stored]) -> int:
        return self.writer.write(key, [content_of(parse_call(record), parse_trail(trail)) for record, trail in calls])

    def _is_late(self, leased_at_s: float) -> bool:
        return self.monotonic() - leased_at_s > ENOUGH_S

    async def _renewed(self, items: Sequence[ClaimedItem]) -> list[ClaimedItem]:
        """Renew the leases of calls; return those that are still held."""

        async def is_held(item: ClaimedItem) -> bool:
            with suppress(WriteRefused):
                await self.store.keep(item)
                return True
            return False

        held = await asyncio.gather(*map(is_held, items))
        return [item for item, is_ours in zip(items, held, strict=True) if is_ours]

    async def _refused(self, item: ClaimedItem, error: Exception) -> None:
        if isinstance(error, NewerRecord):
            await self.store.leave(item)
            return
        failures = item.failures + 1
        where = innermost_place(error)
        placement = STEPS.placement(failures, f"not archived: {type(error).__name__} at {where}")
        is_parked = placement.due_in_ms is None
        self.log.error("archive_refused", error=type(error).__name__, where=where, failures=failures, parked=is_parked)
        if is_parked:
            self.figures.count(figure.ARCHIVED, "parked")
        with suppress(WriteRefused):
            await self.store.save(item, None, placement, failures=failures)

    async def _let_go(self, items: Sequence[ClaimedItem], due_in_ms: int) -> None:
        async def save(item: ClaimedItem) -> None:
            with suppress(WriteRefused):
                await self.store.save(item, None, Placement(due_in_ms), failures=item.failures)

        await asyncio.gather(*map(save, items))

    def _log_away(self, error: Exception) -> None:
        """Log why the database cannot be used: each reason once, until it can be written again."""
        if str(error) not in self._away_for:
            self._away_for.add(str(error))
            self.log.warning("archive_away", error=str(error))

    async def _log_back(self) -> None:
        """Log that the database was written again, and how many calls still wait."""
        if self._away_for:
            self._away_for.clear()
            self.log.info("archive_back", calls=(await self.store.waiting()).calls)

    async def _copy_audit(self) -> None:
        """Copy the audit log and the texts of rules into the archive. Redis trims no entry of the log before."""
        log = self.store.audit_log
        with suppress(RedisError):
            try:
                while found := await log.unarchived(most=AT_ONCE):
                    entries = [audit_content(each.id, msgspec.json.encode(each).decode()) for each in found]
                    await asyncio.to_thread(self.writer.write, AUDIT_LOG, entries)
                    await log.archived(found[-1])
                    await self._log_back()
                await self._copy_rules()
            except ArchiveAway as error:
                self._log_away(error)
            except ValueRefused as error:
                if str(error) != self._audit_refused_for:
                    self._audit_refused_for = str(error)
                    self.log.warning("archive_refused", error=str(error), where="audit log")

    async def _copy_rules(self) -> None:
        if texts := await self.store.unarchived_rules():
            rules = [rules_content(*each) for each in texts.items()]
            await asyncio.to_thread(self.writer.write, RULES, rules)
            await self.store.note_rules(texts)

    async def _log_heads(self) -> None:
        """Log the heads that are new, so that a copy exists out of reach of anyone who can change the database.

        A chain was rewritten if it lost the head that was logged last, or if its later lines do not lead from there to its
        new head. Such a head is not signed, because the signature would vouch for the rewritten lines.
        """
        with suppress(RedisError):
            try:
                await self._log_new_heads()
            except ArchiveAway as error:
                self._log_away(error)
                await self.store.next_turn("heads", HEADS_AGAIN_S)
            else:
                await self.store.next_turn("heads", HEADS_EVERY_S)

    async def _log_new_heads(self) -> None:
        at_ms = int((await self.store.now()).timestamp() * 1000)
        noted = {key: Head(*head) for key, head in (await self.store.noted_heads()).items()}
        heads = await asyncio.to_thread(self.writer.heads)
        logged: list[tuple[str, Head]] = []
        try:
            for key in sorted(noted.keys() | {key for key, head in heads.items() if head.n}):
                async for reached in self._log_head(key, noted.get(key), heads.get(key, Head(0, "")), at_ms):
                    logged.append((key, reached))
                    if len(logged) >= NOTED_AT_ONCE:
                        await self._note(logged)
        finally:
            await self._note(logged)

    async def _note(self, logged: list[tuple[str, Head]]) -> None:
        """Note heads, and take them from the list, once their lines are written."""
        if logged:
            await asyncio.to_thread(self.flush_log)
        while logged:
            key, head = logged[0]
            await self.store.note_head(key, head.n, head.hash)
            del logged[0]

    async def _log_head(self, key: str, before: Head | None, head: Head, at_ms: int) -> AsyncIterator[Head]:
        """Walk from the head that was logged last to the new one, and log where each part of the way ended.

        Only the new head is dated: lines after the others were written before now.
        """
        while True:
            reached = await asyncio.to_thread(self.writer.led_to, key, before, head)
            if reached is None:
                lost = head if before is None else before
                self.log.error("archive_rewritten", institution=key, n=lost.n, hash=lost.hash)
                return
            if reached != before:
                read_ms = at_ms if reached == head else None
                self.log.info("archive_head", **signed_head(key, reached, self.key, before, read_ms))
                yield reached
            if reached == head:
                return
            before = reached
