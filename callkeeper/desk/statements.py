"""Requested actions on calls: leaves a note for the worker, and waits for the result.

A note does nothing by itself. Every one that is well-formed and about a known call is accepted. The worker that claims
the call folds it into the record and applies rules and law. The result is read from what the worker wrote: this process
may have other rules.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace as with_fields
from redis.asyncio import Redis
from redis.exceptions import RedisError
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.action_status import PENDING, ActionState, ActionStatus, line_of, status_of
from callkeeper.calls.fact_derivation import facts_of
from callkeeper.calls.informed_words import evidence_in, forbidding
from callkeeper.calls.institutions import is_account_of_another
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import InboxFull, Statement, Verified, parse_note
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.keys import REMEMBERED_S
from callkeeper.calls.store.queries import Known, Lookup
from callkeeper.calls.store.script_runner import Unconfirmed
from callkeeper.desk.access.desk_tokens import DeskToken
from callkeeper.desk.access.visitor import AuditNote
from callkeeper.desk.bodies import ActionOrigin, AssignBody, Body, VerifiedBody
from callkeeper.desk.feed import Feed
from callkeeper.desk.problems import Problem, invalid, not_found, too_many
from callkeeper.service.tracing import SpanKind, new_trace, span

POLL_EVERY_S: Final = 1.0
"""Seconds between two looks at the result while waiting, also if no change is announced."""


class IdempotentRequest(msgspec.Struct, frozen=True):
    """What an Idempotency-Key stands for: the id of an action, and the fingerprint of the request that made it."""

    action_id: str
    request: str


class Actions:
    """Accepts requested actions as notes to their calls, and returns their results."""

    def __init__(
        self,
        redis: Redis,
        store: Store,
        lookup: Lookup,
        feed: Feed,
        book: RuleBook,
        waker: Waker,
        log: FilteringBoundLogger,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._redis = in_bytes(redis)
        self._keys = store.keys
        self._store = store
        self._lookup = lookup
        self._feed = feed
        self._book = book
        self._waker = waker
        self._log = log
        self._now = now

    async def request(
        self,
        token: DeskToken,
        place: CallId,
        action: str,
        body: Body,
        idempotency_key: str | None,
        note: AuditNote,
        *,
        assigns: bool = False,
    ) -> tuple[str, CallId]:
        """Leave a note for an action on a call; return the action's id, and the id under which the note was left.

        ``idempotency_key`` recognises a repetition within a day. The audit ``note`` gets the evidence that the word names,
        and that it is refused for. ``assigns``: also assign the verified person if nobody is assigned.

        Raises:
            Problem: There is no such call, or its member has another institution's account; the key was used for something
                else; too many statements about the call wait; no replica of Redis confirmed the word; or it contradicts
                what is known, and is only recorded.
            redis.exceptions.RedisError: Redis is away; the action may or may not have been requested.
        """
        known = await self._lookup.known(*place)
        if known is None:
            raise not_found()
        await self._refuse_another_account(known, body)
        call_id = _left_under(known, place, action)
        if isinstance(body, VerifiedBody) and body.despite:
            note.add(f"despite {', '.join(body.despite)}")
        refusal = _refusal_of(known, body, self._book)
        assigned = _assigned_with(known, body) if assigns and refusal is None else None
        request = sha256(msgspec.json.encode([*place, action, body])).hexdigest()
        action_id = new_trace()
        accepted = IdempotentRequest(action_id, request)
        kept_at = self._keys.wish(token.holder, idempotency_key) if idempotency_key else None
        kept = await self._kept(kept_at, request) if kept_at else None
        line = line_of(known.trail, kept.action_id) if kept is not None else None
        if kept is not None and line is not None:
            if line.forbidden:
                raise _refused(_Refusal(line.because or "forbidden", line.forbidden), note)
            return kept.action_id, call_id
        if kept is None and kept_at is not None:
            await self._redis.set(kept_at, msgspec.json.encode(accepted), ex=REMEMBERED_S, nx=True)
            kept = await self._kept(kept_at, request)
        accepted = kept or accepted
        with span(
            f"statement {action}",
            SpanKind.SERVER,
            trace=accepted.action_id,
            is_first=accepted.action_id == action_id,  # not of a repetition: an id of a span occurs once
            institution=place.institution_key,
            voice_id=place.voice_id,
            action=action,
        ):
            if assigned is not None:
                origin = ActionOrigin(body.operator, self._now(), token.name, new_trace())
                await self._leave(call_id, assigned.note(origin))
            origin = ActionOrigin(body.operator, self._now(), token.name, accepted.action_id)
            statement = body.note(origin)
            if refusal is not None and isinstance(statement, Verified):
                statement = with_fields(statement, refused=refusal.names, despite=())
            await self._leave(call_id, statement)
        self._log.info(
            "desk_heard",
            institution=place.institution_key,
            voice_id=place.voice_id,
            action=action,
            desk=token.name,
            trace_id=accepted.action_id,
        )
        if refusal is not None:
            raise _refused(refusal, note)
        return accepted.action_id, call_id

    async def _refuse_another_account(self, known: Known, body: Body) -> None:
        """Refuse a member whom the service would take for one of another institution, unless the queue has named them."""
        if not isinstance(body, AssignBody | VerifiedBody):
            return
        if body.person_id in {one.person_id for one in known.call.seen.candidates}:
            return
        keys = [key.decode() for key in await self._redis.hkeys(self._keys.owned)]
        if is_account_of_another(known.call_id.institution_key, body.person_id, keys):
            raise invalid(
                "person_id", "with this institution's key, it names the account of another institution's member"
            )

    async def result(self, place: CallId, action_id: str, *, within_s: float) -> tuple[str, ActionStatus]:
        """Return an action's kind and its result, waiting for that up to ``within_s``.

        Raises:
            Problem: No such action was requested for this call.
            redis.exceptions.RedisError: Redis is away.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        with self._feed.listen() as listener:
            while True:
                action, answer = await self._read(place, action_id)
                left_s = end_s - loop.time()
                if answer.state is not ActionState.PENDING or left_s <= 0 or listener.is_over:
                    return action, answer
                await listener.next(min(left_s, POLL_EVERY_S))

    async def _read(self, place: CallId, action_id: str) -> tuple[str, ActionStatus]:
        known = await self._lookup.known(*place)
        line = line_of(known.trail, action_id) if known else None
        if known is None or line is None:
            return await self._unread(place, known.call_id if known else place, action_id)
        answer = PENDING if known.is_merging else status_of(known.call, known.trail, line)
        if answer.state is ActionState.PENDING:
            answer = replace(answer, operator=line.operator)
        return _action(line.kind), answer

    async def _unread(self, place: CallId, call_id: CallId, action_id: str) -> tuple[str, ActionStatus]:
        """Return an action whose note is unread, under the id that was used or that of the call's record."""
        for waiting_at in dict.fromkeys((place, call_id)):
            for stored in await self._redis.hvals(self._keys.inbox(waiting_at.member)):
                note = parse_note(stored)
                if getattr(note, "wish", None) == action_id:
                    answer = replace(PENDING, operator=getattr(note, "operator", None))
                    return _action(note.note_id.partition(":")[0]), answer
        known = await self._lookup.known(*place)  # it may have been stored between the two reads
        line = line_of(known.trail, action_id) if known else None
        if line is None:
            raise not_found()
        return _action(line.kind), replace(PENDING, operator=line.operator)

    async def _kept(self, key: str, request: str) -> IdempotentRequest | None:
        stored = await self._redis.get(key)
        if stored is None:
            return None
        accepted = msgspec.json.decode(stored, type=IdempotentRequest)
        if accepted.request != request:
            raise Problem(422, "idempotency_key_reused")
        return accepted

    async def _leave(self, call_id: CallId, statement: Statement) -> None:
        try:
            _, wake = await self._store.note(call_id, statement, even_settled=True, wake=True)
        except InboxFull:
            raise too_many("too_many_waiting") from None
        except Unconfirmed:
            await self._wake(call_id)  # it is recorded, and what is asked for may already happen
            raise Problem(503, "recorded_unconfirmed", statement.wish, headers={"Retry-After": "2"}) from None
        if wake:
            await self._wake(call_id)

    async def _wake(self, call_id: CallId) -> None:
        """Enqueue a job; if that fails, the watchdog will."""
        try:
            about = f"a person's word about {call_id.voice_id} of {call_id.institution_key}"
            await asyncio.to_thread(self._waker.enqueue, about)
        except (RedisError, OSError) as error:
            self._log.error("wake_failed", error=type(error).__name__)
            with suppress(RedisError, OSError):
                await self._redis.delete(self._keys.wake)


class _Refusal(NamedTuple):
    """Why a word is only recorded: the code of the refusal, and the facts that it contradicts."""

    code: str
    names: tuple[str, ...]


def _refused(refusal: _Refusal, note: AuditNote) -> Problem:
    """Return the answer to a word that is only recorded. The audit note names the facts, too."""
    note.add(f"refused for {', '.join(refusal.names)}")
    return Problem(409, refusal.code, facts=refusal.names)


def _refusal_of(known: Known, body: Body, book: RuleBook) -> _Refusal | None:
    """Return why a word that verifies the caller is refused by what is known of the call; None if it is not."""
    if not isinstance(body, VerifiedBody):
        return None
    facts = facts_of(known.call, known.call.last_claim, book.policies)
    if names := forbidding(facts):
        return _Refusal("forbidden", names)
    names = tuple(name for name in evidence_in(facts) if name not in body.despite)
    return _Refusal("evidence_against", names) if names else None


def _assigned_with(known: Known, body: Body) -> AssignBody | None:
    """Return the assignment that goes with a verification, if the call has no person."""
    if isinstance(body, VerifiedBody) and known.call.seen.person_id is None:
        return AssignBody(body.operator, body.person_id)
    return None


def _left_under(known: Known, place: CallId, action: str) -> CallId:
    """Return the id that a statement is left under.

    A push may wrongly say that two ids are one call, and the statement would be carried out for another caller. So it is
    left under the id that was used. The worker that claims it asks the service, and merges the two records if the answer
    agrees. A resolution sends nothing, and its effect is in one record only.
    """
    return known.call_id if known.is_certain or action == "resolve" else place


def _action(kind: str | None) -> str:
    return {"resolved": "resolve", "opted_out": "opted-out", "opted_in": "opted-in", "withdrawn": "withdraw"}.get(
        kind or "", kind or ""
    )
