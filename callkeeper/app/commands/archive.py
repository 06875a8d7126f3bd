"""``callkeeper archive``: prepare and verify the archive; legal holds; retention; and what erases in it."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, TextIO

import click
from redis.asyncio import Redis

from callkeeper.app.archive_reader import NO_ARCHIVE, archive_failed, is_archive_set, progress
from callkeeper.app.environment import SettingsWrong
from callkeeper.app.redis_query import query_redis, record_or_warn
from callkeeper.app.settings import StoreSettings, WorkerArchiveSettings
from callkeeper.app.terminal import CommandGroup, Failed, Misused, say
from callkeeper.app.whose_data import erased_in_redis, fail_if_spelled_otherwise, problem_of
from callkeeper.archive.about_the_archive import Commands
from callkeeper.archive.chain_heads import parse_heads
from callkeeper.archive.database import Database
from callkeeper.archive.errors import ArchiveAway, HoldsUnknown, ValueRefused
from callkeeper.archive.keeping import ErasureResult, Keeper
from callkeeper.archive.lines import RULES
from callkeeper.archive.migrating import migrate as migrate_tables
from callkeeper.archive.verifying import Evidence, Tail, Verification
from callkeeper.archive.verifying import verify as verify_chains
from callkeeper.calls.institutions import nearest, shown
from callkeeper.calls.quantity import quantity
from callkeeper.calls.store.archive_queue import ArchiveQueue
from callkeeper.calls.store.audit_log import AuditEvent, AuditFilter, AuditLog
from callkeeper.calls.store.erasing import Whose
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.rights import operator_in
from callkeeper.service.secret import Secret

_LINE: Final = "line="
"""What an entry of the audit log about a changed archive begins with: the number of the line that says the same."""

MOST_COMMANDS: Final = 100_000
"""How many such entries are compared. Older lines lie below logged heads."""

_institution = click.option("--institution", required=True, help="The institution's key.")
_operator = click.option("--operator", required=True, help="Who requests it; written into the chain.")
_former_keys = click.option(
    "--former-keys", type=click.File("r"), help="A file with the keys that signed before, one on each line."
)
_reason = click.option("--reason", required=True, help="Why; written into the chain, so it must name nobody.")


@click.group(cls=CommandGroup)
def archive() -> None:
    """Keep calls for years: prepare the tables, verify the chains, hold, retire."""


def refuse_unknown_institution(database: Database, key: str) -> None:
    """Refuse an institution without a chain: its key is probably mistyped.

    Raises:
        Failed: The archive has none.
    """
    keys = Keeper(database, "").institutions()
    if key not in keys:
        near = nearest(key, keys)
        instead = f"; did you mean {near}?" if near is not None else ": its first settled call begins one"
        raise Failed(f"the archive has no chain of an institution with the key {shown(key)}{instead}")


def refuse_new_institution(database: Database, key: str) -> None:
    """Refuse an institution that neither has a chain nor is known in Redis: a hold may come before its first call.

    Raises:
        Failed: It is probably mistyped.
    """
    with suppress(Failed, SettingsWrong):
        if problem_of(key) is None:
            return
    refuse_unknown_institution(database, key)


@contextmanager
def archive_database() -> Iterator[tuple[Database, WorkerArchiveSettings]]:
    """Open the archive; errors become one line.

    Raises:
        Misused: There is none.
        Failed: It cannot be used.
    """
    if not is_archive_set():
        raise Misused(NO_ARCHIVE)
    settings = WorkerArchiveSettings.load(os.environ)
    try:
        with settings.open() as database:
            yield database, settings
    except (ArchiveAway, ValueRefused) as error:
        raise archive_failed(error) from None


@archive.command()
def migrate() -> None:
    """Create or alter the tables for this release, as `callkeeper doctor --before-deploy` does. Needs their owner."""
    with archive_database() as (database, _):
        say(f"the archive's tables are at version {migrate_tables(database)}")


@archive.command()
@click.option("--institution", help="Only this institution's chain.")
@click.option("--heads", type=click.File("rb"), help="A log with the heads of chains, to compare them.")
@_former_keys
def verify(institution: str | None, heads: BinaryIO | None, former_keys: TextIO | None) -> None:
    """Verify every chain and name each line that was changed, removed, inserted or moved. Exits with 1 if one was."""
    with archive_database() as (database, settings):
        if institution is not None:
            refuse_unknown_institution(database, institution)
        keys = [key for key in (settings.key, *_keys_in(former_keys)) if key is not None]
        log = parse_heads(heads or (), keys)
        evidence = Evidence(
            logged=log.hashes, logged_at=log.times, keep_ms=settings.keep_ms, keys=keys, commands=_commands()
        )
        with progress("lines") as advance:
            found = verify_chains(database, institution_key=institution, evidence=evidence, progress=advance)
    if heads is not None and not (log.hashes or log.unsigned or log.unreadable):
        raise Failed("the log contains no head of a chain")
    for key, head in sorted(found.heads.items()):
        say(f"{key}: ends at line {head.n}, {head.hash}{_tail(found.tails.get(key))}")
    say(
        f"{quantity(found.lines, 'line')}, {quantity(found.erased, 'personal value')} erased, "
        f"{quantity(found.emptied, 'line')} emptied by retention"
        + (f", {quantity(len(log.hashes), 'logged head')} compared" if heads is not None else "")
    )
    say(_unproved(found))
    if heads is None:
        say("No log was given to prove them: name that of the workers with --heads.")
    if log.continued:
        say(
            f"The log begins later than {quantity(len(log.continued), 'chain')}: earlier heads are not in it. If it was not "
            "rotated, somebody has taken them away."
        )
    if found.unchecked:
        say(
            f"{quantity(found.unchecked, 'body was', 'bodies were')} changed by erasures. "
            "This could not be checked: CALLKEEPER_ARCHIVE_KEY is not set."
        )
    unsigned = (
        [f"{quantity(log.unsigned, 'logged head is', 'logged heads are')} not signed with the key"]
        if log.unsigned
        else []
    )
    because = "could not be read as JSON: it must be what workers wrote to a file or a pipe, not to a terminal"
    unreadable = [f"{quantity(log.unreadable, 'line')} of the log {because}"] if log.unreadable else []
    more = [f"and {found.unlisted} more"] if found.unlisted else []
    faults = [*map(str, found.faults), *more, *log.faults, *unsigned, *unreadable]
    if faults:
        raise Failed(*faults)
    say("Nothing was changed, removed, inserted or moved.")


def _commands() -> Commands | None:
    """Return the commands that changed the archive, by the audit log; None if Redis does not answer, which is said."""

    async def ask(redis: Redis, keys: Keys) -> Commands | None:
        log = AuditLog(redis, keys=keys)
        found = await log.read(AuditFilter(event=AuditEvent.ARCHIVE_CHANGED), most=MOST_COMMANDS)
        asked = [(each.entry, each.entry.asked.removeprefix(_LINE)) for each in found]
        done = {(entry.institution, int(n), entry.detail.partition(":")[0]) for entry, n in asked if n.isdecimal()}
        begins_at = found[-1].at if len(found) == MOST_COMMANDS else await log.begins_at()
        return None if begins_at is None else Commands(done, int(begins_at.timestamp() * 1000))

    try:
        return query_redis(ask)
    except (Failed, SettingsWrong) as error:
        say(f"Erasures, holds and retirements are not compared with the audit log in Redis: {error}")
        return None


def _tail(tail: Tail | None) -> str:
    """Return how much of a chain no logged head proves."""
    if tail is None:
        return ""
    if not tail.lines:
        return "; all of it lies below logged heads"
    return f"; no logged head proves its last {tail.lines} lines, the first of them {_minutes_since(tail.since_ms)} min old"


def _unproved(found: Verification) -> str:
    """Return how many lines of all chains no logged head proves, and how old the oldest of them is."""
    tails = [tail for tail in found.tails.values() if tail.lines]
    if not tails:
        return "Every line lies below a logged head." if found.lines else "There is no line to prove."
    oldest = _minutes_since(min(tail.since_ms for tail in tails))
    unproved = quantity(sum(tail.lines for tail in tails), "line is", "lines are")
    return f"{unproved} not proved by a logged head, the oldest is {oldest} min old."


def _minutes_since(at_ms: int) -> int:
    return max(0, time.time_ns() // 1_000_000 - at_ms) // 60_000


@archive.command()
def fill() -> None:
    """Archive every settled call in Redis again. Use this after the archive was restored from a backup."""
    kept_s = StoreSettings.load(os.environ).keep_calls_s
    record_or_warn(AuditEvent.ARCHIVE_CHANGED, detail="fill")
    count = query_redis(lambda redis, keys: ArchiveQueue(redis, keys, kept_s=kept_s).refill())
    say(f"{count} settled calls: workers write those that the archive lacks")


def erase_in_both(whose: Whose, operator: str, reason: str, former_keys: TextIO | None) -> None:
    """Erase a person's data in the archive and in Redis, and say what was done.

    Raises:
        Misused: There is no archive, or the operator or the reason cannot be written down.
        Failed: Something is left: the message says what.
    """
    institution = whose.institution_key
    with _keeper(operator, reason, former_keys) as keeper:
        refuse_new_institution(keeper.database, institution)
        try:
            found = _erased(keeper, whose, reason)
            holds = keeper.holds(institution)
            words, spellings = erased_in_redis(whose, holds, held=found.held, archived=found.whole)
            say(words)
            # Workers have gone on: a call that was only in Redis at first may be in the archive now, with its values.
            _erased(keeper, whose, reason, besides=found.calls | found.held | found.wrong)
        except HoldsUnknown:
            raise Failed("nobody knows what is under a legal hold: nothing was erased", *_left(keeper)) from None
        if keeper.faults:
            raise Failed("calls with a line that was changed were not erased in the archive", *_left(keeper))
        if whose.person_id is not None:
            fail_if_spelled_otherwise(spellings | keeper.spellings_left(institution, whose.person_id))


def _left(keeper: Keeper) -> list[str]:
    """Return which lines a command found wrong and left, and what to do."""
    return [*map(str, keeper.faults), "run callkeeper archive verify, and restore what was changed from a backup"]


def _erased(keeper: Keeper, whose: Whose, reason: str, besides: frozenset[str] | None = None) -> ErasureResult:
    """Erase in the archive, record it, and say so. With ``besides`` say nothing if there are no other calls."""
    found = keeper.erase(
        whose.institution_key,
        reason=reason,
        person_id=whose.person_id,
        phone=whose.phone,
        country=whose.country,
        besides=besides or (),
    )
    if besides is None or found.calls:
        _note_lines(keeper, "erase", whose.institution_key, reason)
        say(
            f"archive: {found.values} values of {quantity(len(found.calls), 'call')} are erased; "
            f"{quantity(len(found.held), 'call is', 'calls are')} under a hold"
        )
    return found


@archive.command()
@_institution
@click.option("--call", "voice_id", help="Only this call.")
@click.option("--person", help="Only the calls of this member.")
@click.option("--release", is_flag=True, help="End the hold.")
@_operator
@_reason
def hold(
    institution: str, voice_id: str | None, person: str | None, operator: str, reason: str, *, release: bool
) -> None:
    """Keep a call, a member's calls or all calls of an institution, whatever their age, until the hold is released.

    Without --call and --person, all calls of the institution are held. Calls that are live, or not archived yet, are
    held too. A call is found by its voice id or alternate id.
    """
    if voice_id is not None and person is not None:
        raise Misused("say --call or --person, not both")
    kind = "call" if voice_id is not None else "person" if person is not None else "institution"
    value = voice_id or person or ""
    with _keeper(operator, reason) as keeper:
        refuse_new_institution(keeper.database, institution)
        if not keeper.hold(institution, kind, value, reason, release=release):
            raise Failed("it was not held" if release else "it is held already")
        _note_lines(keeper, "release" if release else "hold", institution, reason)
        covered = keeper.covered(institution, kind, value)
    say("released" if release else f"held: {covered} archived calls, and those that are archived later")
    if not release and not covered:
        say(f"no archived call matches this {kind} yet; if it is mistyped, end the hold with --release", err=True)


@archive.command()
@_operator
@click.option("--dry-run", is_flag=True, help="Only show the configured ages.")
@_former_keys
def retire(operator: str, former_keys: TextIO | None, *, dry_run: bool) -> None:
    """Remove calls older than CALLKEEPER_ARCHIVE_KEEP. Run it once a day, with a role that may delete.

    Lines from one on that somebody has changed stay: it is named, and the exit code is 1.
    """
    with archive_database() as (database, settings):
        if settings.keep_s is None:
            raise Misused("CALLKEEPER_ARCHIVE_KEEP is not set: the archive keeps everything")
        keeper = Keeper(database, operator, settings.key, former_keys=_keys_in(former_keys))
        for key in keeper.institutions():
            if key == RULES:  # a call that is kept longer may name any of them
                continue
            keep_s = settings.keep_s.for_institution(key)
            days = keep_s // 86400
            if dry_run:
                say(f"{key}: keeps {quantity(days, 'day')}")
                continue
            count = keeper.retire(key, time.time_ns() // 1_000_000 - keep_s * 1000)
            _note_lines(keeper, "retire", key, "older than CALLKEEPER_ARCHIVE_KEEP")
            say(f"{key}: {quantity(count, 'line')} older than {quantity(days, 'day')} removed")
    if keeper.faults:
        raise Failed("lines were changed: these, and those after them, were not removed", *_left(keeper))


def _note_lines(keeper: Keeper, what: str, institution: str, reason: str) -> None:
    """Record in the audit log, which the database's owner cannot change, each line that a command wrote; 0: none."""
    for n in keeper.written or ([] if what == "retire" else [0]):
        parts = {
            "detail": f"{what}: {reason}",
            "operator": keeper.operator,
            "institution": institution,
            "asked": f"{_LINE}{n}",
        }
        record_or_warn(AuditEvent.ARCHIVE_CHANGED, **parts)
    keeper.written.clear()


@contextmanager
def _keeper(operator: str, reason: str, former_keys: TextIO | None = None) -> Iterator[Keeper]:
    keeper = operator_in(operator)
    if not keeper or not reason.isprintable():
        raise Misused("--operator must be 1 to 64 printable ASCII characters, --reason one printable line")
    with archive_database() as (database, settings):
        yield Keeper(database, keeper, settings.key, former_keys=_keys_in(former_keys))


def _keys_in(former_keys: TextIO | None) -> list[Secret]:
    return [Secret(line.strip()) for line in former_keys or () if line.strip()]
