"""Copies the keys of releases up to 0.4.0 to this release's names. The old keys stay, so that the old release can go on.

Neither release acts on what the other has written since. So whatever is left behind is marked as if it were of another
Redis server: whoever claims it again counts the writes since the last claim as lost, reads before it sends, and counts
the checks that may have been made (``lua/parts/server.lua``, ``callkeeper.calls.redis_restart``).

A copy that was interrupted begins anew. Only one that is complete counts, and it is never repeated over data with which
this release has worked, unless somebody says so.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from redis import Redis

from callkeeper.calls.metrics.redis_writer import ALIVE_S
from callkeeper.calls.record import Mark, Marks
from callkeeper.calls.record_storage import readable_call
from callkeeper.calls.store.earlier_calls import place_of_consent
from callkeeper.calls.store.keys import PREFIX, Keys

FAMILIES: Final = ("", "outbox:", "archive:")
"""What stands between prefix and kind in names of keys."""

LEFT_OUT: Final = {
    *("alerts:leader", "asking", "breakers", "claimer", "endpoints", "figures:leader", "look-back-turns", "look-backs"),
    *("parked", "permits", "process", "processes", "refused", "running", "turn", "turns", "unchecked", "unstarted"),
    *("untaken", "wake", "wakeup", "writable"),
}
"""Kinds of keys that are made anew within a minute. What is parked is due at once instead."""

Fields = dict[bytes, bytes]


def _item(fields: Fields) -> Fields:
    """Return an item whose record tells that its checks were answered for another member, or before there was one.

    Of checks that say nothing of the member's voice, another member may have been the reason. A record that cannot be read
    stays as it is.
    """
    try:
        record = json.loads(fields.get(b"rec") or b"{}")
        member, answered_for = record.get("person_id") or "", record.pop("answered_for", None)
        answered, unusable = record.get("history", {}).get("answered", 0), record.get("unusable_answers", 0)
    except (ValueError, AttributeError):
        return fields
    if answered_for is None:
        return fields
    is_same = answered_for == member
    record |= {
        "unusable_answers": unusable if is_same else answered,
        "member_changed": bool(member and (unusable or (answered_for and not is_same))),
    }
    return {**fields, b"rec": json.dumps(record).encode()}


REWRITTEN: Final[Mapping[str, Callable[[Fields], Fields]]] = {
    "item": _item,
    "epoch": lambda fields: fields,
}
"""Kinds of hashes that are read and written anew: each function returns one in this release's form. All other keys are
copied as they are. What changes its form belongs here, and only here."""


class NotMigrated(Exception):
    """This release must not work on what Redis holds, or it cannot be copied now. The arguments are lines that say why."""


class Old(NamedTuple):
    """The old keys by kind: how many are copied, and how many left out."""

    copied: Counter[str]
    left_out: Counter[str]


class Migration:
    """The old keys of an installation, and its present ones. ``redis`` answers in bytes.

    Raises:
        redis.exceptions.RedisError: By every method; what was begun can be repeated.
    """

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis: Any = redis  # redis-py's types serve every configuration
        self._keys = keys
        self._old, self._new = f"{keys.setting}:", f"{keys.prefix}:"

    def require(self) -> None:
        """Make sure that this release may work here, and note that it does.

        Raises:
            NotMigrated: There are keys of an older release, or it has worked since they were copied.
        """
        state = self._state()
        if state.at and not state.done:
            raise NotMigrated("callkeeper migrate was interrupted: run it again")
        if not state.done and self._has_old():
            raise NotMigrated(
                f"Redis has data of an older release under {self._old}, which this one does not read. Stop web and "
                "workers of the older release, and run: callkeeper migrate"
            )
        if state.done and self._old_worked_since(state):
            raise NotMigrated(
                "an older release has worked with its own data since they were copied. Stop it, and run callkeeper migrate "
                "--discard to continue with its data, or callkeeper migrate --finish --discard to continue without them"
            )
        if not state.used:
            now = self._now_ms()
            for field in Copied._fields:
                self._redis.hsetnx(self._keys.migration, field, now)

    def is_needed(self, *, discard: bool = False) -> bool:
        """Return whether there is something to copy.

        Args:
            discard: Copy also over data with which this release has worked.

        Raises:
            NotMigrated: It has, and the older one too since the copy: somebody must choose.
        """
        if self._state().used and not discard:
            self.require()
            return False
        return self._has_old()

    def alive(self, *, old_only: bool = False) -> list[str]:
        """Return the processes that reported in the last ten seconds: kind, name and release."""
        since, found = self._now_ms() - ALIVE_S * 1000, []
        for prefix in (self._old,) if old_only else (self._old, self._new):
            for name in self._redis.zrangebyscore(f"{prefix}processes", since, "+inf"):
                known = self._redis.hmget(f"{prefix}process:{name.decode()}", "kind", "version")
                kind, release = (value.decode() if value else "?" for value in known)
                found.append(f"{kind} {name.decode()} ({release})")
        return sorted(found)

    def count(self) -> Old:
        """Count the old keys."""
        found = Old(Counter(), Counter())
        for name in self._old_names():
            key = _parsed(name.removeprefix(self._old))
            (found.left_out if key.is_left_out else found.copied)[key.family + key.kind] += 1
        return found

    def lacks_memory(self) -> bool:
        """Return whether Redis might refuse the copies: the old keys stay beside them."""
        memory = self._redis.info("memory")
        return 0 < int(memory.get("maxmemory", 0)) < 2 * int(memory["used_memory"])

    def copy(self) -> int:
        """Replace the present keys by copies of the old ones, which are left behind; return how many were copied.

        Raises:
            NotMigrated: A process of either release is alive, or was started meanwhile.
        """
        self._require_stopped(self.alive())
        at = self._begin()
        self._delete(name for name in self._names(self._new) if name != self._keys.migration)
        old = {name: _parsed(name.removeprefix(self._old)) for name in self._old_names()}
        for names in _batches((name for name, key in old.items() if key.is_copied_as_it_is)):
            with self._redis.pipeline(transaction=False) as pipe:
                for name in names:
                    pipe.copy(name, self._new + name.removeprefix(self._old), replace=True)
                pipe.execute()
        for names in _batches((name for name, key in old.items() if key.is_rewritten)):
            self._rewrite(names, at)
        for name, key in old.items():
            if key.kind == "parked":  # what they wait for is not copied either
                due = f"{self._new}{key.family}due"
                self._redis.zunionstore(due, [due, name], aggregate="MIN")
        self._redis.persist(f"{self._new}institutions")  # it expired after an hour
        self._leave_behind(self._old, at)
        self._require_stopped(self.alive())
        self._redis.hset(self._keys.migration, "done", self._now_ms())
        return sum(not key.is_left_out for key in old.values())

    def finish(self, *, discard: bool = False) -> int:
        """Delete the old keys and the old RQ queue; return how many keys were deleted.

        Args:
            discard: Also if the older release has worked since. What that did is unknown here, as if Redis had lost it.

        Raises:
            NotMigrated: They were not copied, or somebody works with them.
        """
        from callkeeper.calls.store.job_queue import calls_queue  # noqa: PLC0415  (RQ: other commands only call require)

        self._require_stopped(self.alive(old_only=not discard))
        if discard and self._state().done:
            self._leave_behind(self._new, self._now_ms())
        else:
            self.require()
        queue = calls_queue(self._redis, "calls" if self._keys.setting == PREFIX else f"calls-{self._keys.setting}")
        queue.delete(delete_jobs=True)
        registries = ("failed", "finished", "wip", "deferred", "scheduled", "canceled", "workers")
        self._redis.unlink(*(f"rq:{each}:{queue.name}" for each in registries))
        return self._delete(self._old_names())

    @staticmethod
    def _require_stopped(alive: list[str]) -> None:
        if alive:
            raise NotMigrated(
                f"stop these processes, and run it again (one that was killed counts for {ALIVE_S} s)", *alive
            )

    def _state(self) -> "Copied":
        return Copied(*(int(value or 0) for value in self._redis.hmget(self._keys.migration, Copied._fields)))

    def _begin(self) -> int:
        """Note that copies are being made, and return the time of the first attempt, in ms."""
        state = self._state()
        at = state.at if state.at and not state.used else self._now_ms()
        with self._redis.pipeline() as pipe:
            pipe.hset(self._keys.migration, "at", at)
            pipe.hdel(self._keys.migration, "done", "used")
            pipe.execute()
        return at

    def _rewrite(self, names: list[str], at: int) -> None:
        """Write hashes in this release's form, with the time until they expire."""
        with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hgetall(name)
                pipe.pttl(name)
            read = pipe.execute()
        with self._redis.pipeline(transaction=False) as pipe:
            for name, fields, ttl_ms in zip(names, read[::2], read[1::2], strict=True):
                if not fields:
                    continue  # it has expired
                rest = name.removeprefix(self._old)
                for server in fields.keys() & {b"epoch", b"id"}:  # an attempt that was interrupted may have marked it
                    fields[server] = fields[server].removeprefix(_mark(at))
                rewritten = REWRITTEN[_parsed(rest).kind](fields)
                pipe.hset(self._new + rest, mapping=rewritten)
                if ttl_ms > 0:
                    pipe.pexpire(self._new + rest, ttl_ms)
                self._keep_opt_out(pipe, fields, rewritten, at)
            pipe.execute()

    def _keep_opt_out(self, pipe: Any, fields: Fields, rewritten: Fields, at: int) -> None:
        """Keep an opt-out, which the older release kept in the call's record alone, of the member too, and for ever.

        It is as old as the record. If its member was changed or taken off, it is kept of each one whom the record names.
        """
        call = readable_call(rewritten.get(b"rec", b""))
        if call is None or not call.seen.opted_out or call.seen.opted_in_last:
            return
        members = [call.seen.person_id]
        if call.seen.member_changed or call.seen.person_id is None:
            marks = call.ledger.kept_marks or Marks()
            members += [json.loads(fields[b"rec"]).get("answered_for"), call.ledger.assigned_person_id, marks.person_id]
        saved_at = call.saved_at or call.life.first_seen_at
        at_s = at / 1000 if saved_at is None else saved_at.timestamp()
        for member in {one for one in members if isinstance(one, str) and one}:
            place = place_of_consent(self._keys, call.institution_key, member)
            pipe.zadd(place, {f"{Mark.OPTED_OUT}:{call.voice_id}": at_s})

    def _leave_behind(self, prefix: str, at: int) -> None:
        """Mark an epoch and its items as of another server. They say where they were claimed, and keep saying so."""
        mark = _mark(at).decode()
        items = self._names(f"{prefix}item:")
        for names in _batches(chain([f"{prefix}epoch"], items)):
            fields = ["id" if name == f"{prefix}epoch" else "epoch" for name in names]
            with self._redis.pipeline(transaction=False) as pipe:
                for name, field in zip(names, fields, strict=True):
                    pipe.hget(name, field)
                known = pipe.execute()
            with self._redis.pipeline(transaction=False) as pipe:
                for name, field, stored in zip(names, fields, known, strict=True):
                    if stored is not None and not stored.decode().startswith(mark):
                        pipe.hset(name, field, mark + stored.decode())
                pipe.execute()

    def _old_worked_since(self, state: "Copied") -> bool:
        """Return whether a worker of the older release has claimed since the copy, or a web process recorded something."""
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.hget(f"{self._old}epoch", "id")
            pipe.zrange(f"{self._old}events", -1, -1, withscores=True)
            for stream in ("audit", "changes"):
                pipe.xrevrange(f"{self._old}{stream}", count=1)
            server, events, *streams = pipe.execute()
        written = [score for _, score in events] + [
            int(line.partition(b"-")[0]) for [(line, _)] in filter(None, streams)
        ]
        return bool(server and not server.startswith(_mark(state.at))) or any(ms > state.done for ms in written)

    def _has_old(self) -> bool:
        return bool(self._redis.exists(*(self._old + kind for kind in _ALWAYS_THERE)))

    def _names(self, prefix: str) -> Iterator[str]:
        """Yield the names that begin with a prefix. Those that come and go meanwhile may be missing or twice."""
        return (name.decode() for name in self._redis.scan_iter(match=f"{prefix}*", count=1000))

    def _old_names(self) -> list[str]:
        """Return the names of old keys. The token is the account's: all releases use the same."""
        shared = {self._keys.token, self._keys.login_gate}
        return [name for name in set(self._names(self._old)) - shared if not name.startswith(self._new)]

    def _delete(self, names: Iterable[str]) -> int:
        return sum(self._redis.unlink(*some) for some in _batches(names))

    def _now_ms(self) -> int:
        seconds, micros = self._redis.time()
        return int(seconds * 1000 + micros // 1000)


_ALWAYS_THERE: Final = (
    "epoch",
    "due",
    "events",
    "live",
    "settled",
    "institutions",
    "people",
    "audit",
    "pause",
    "rules",
)
"""Kinds of keys by which an older release's data are recognised: one of them is there once it has worked."""


class Copied(NamedTuple):
    """When copies were begun, when they were complete, and when this release worked with them first, in ms; 0: never."""

    at: int
    done: int
    used: int


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    """Yield names in lists that fit into one pipeline."""
    rest = iter(names)
    while batch := list(islice(rest, 500)):
        yield batch


def _mark(at: int) -> bytes:
    """Return what stands before the id of a server from which this release went on. ``at``: when, in ms."""
    return b"left %d " % at


class _Key(NamedTuple):
    """What the name of an old key says."""

    family: str
    kind: str
    rest: str

    @property
    def is_left_out(self) -> bool:
        return not {self.kind, self.rest}.isdisjoint(LEFT_OUT)

    @property
    def is_rewritten(self) -> bool:
        return self.family + self.kind in REWRITTEN and not self.is_left_out

    @property
    def is_copied_as_it_is(self) -> bool:
        return not (self.is_left_out or self.is_rewritten)


def _parsed(name: str) -> _Key:
    """Parse the name of an old key, without the prefix."""
    family = next(each for each in reversed(FAMILIES) if name.startswith(each))
    rest = name.removeprefix(family)
    return _Key(family, rest.partition(":")[0], rest)
