"""Start-up of a process: without other processes' secrets, with rare garbage collection, in the foreground."""

import gc
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from types import FrameType
from typing import Final, TypeVar

from redis import Redis
from redis.exceptions import RedisError
from structlog.typing import FilteringBoundLogger

from callkeeper.app.connections import blocking_redis, other_mode
from callkeeper.app.environment import REMOVED, SettingsSection, SettingsWrong, unknown_variables
from callkeeper.app.extras import how_to_install, is_missing, require
from callkeeper.app.logs import divert_crashes, leave_now, set_up_logging
from callkeeper.app.redis_failure import SINGLE_REMEDY
from callkeeper.app.redis_location import RedisLocation
from callkeeper.app.redis_rights import warn_of_missing_rights
from callkeeper.app.settings import VARIABLES, StoreSettings, WebSettings, WorkerSettings, refuse_misspelled
from callkeeper.app.terminal import Failed, Misset
from callkeeper.calls.metrics.redis_writer import Kind
from callkeeper.calls.metrics.signals import note_unstarted
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.migrating import Migration, NotMigrated

S = TypeVar("S", WebSettings, WorkerSettings)


def own_environment(environ: Mapping[str, str], section: type[SettingsSection]) -> dict[str, str] | None:
    """Return an environment without the secrets that a process does not read; None if it contains no such secret."""
    foreign = {name for name, variable in VARIABLES.items() if variable.is_secret} - section.variables().keys()
    removed = sorted(foreign & environ.keys())
    if not removed:
        return None
    return {name: value for name, value in environ.items() if name not in removed} | {REMOVED: ",".join(removed)}


def keep_own_secrets(section: type[SettingsSection]) -> list[str]:
    """Start this program again in the same process without the secrets that it does not read; return their names.

    Some platforms give every process of an application the same environment. An attacker of the web process must not
    find the service account's password there.

    Deleting them from ``os.environ`` is not enough: ``/proc/<pid>/environ`` shows the environment with which a process
    was started.
    """
    environ = own_environment(os.environ, section)
    if environ is not None:
        os.execve(sys.executable, sys.orig_argv, environ)  # noqa: S606  (ourselves, with the same arguments)
    return [name for name in os.environ.pop(REMOVED, "").split(",") if name]


def prepare(section: type[S], kind: Kind) -> tuple[S, FilteringBoundLogger]:
    """Read the settings of a process, and set up its log. It keeps no secret of another process.

    Raises:
        SettingsWrong: Settings are missing or wrong. If those of Redis are right, this is an incident.
        Failed: An extra is missing, or Redis has data of an older release.
        Misset: A setting is misspelled, or there is no output for the log, which is the same incident; or Redis is a
            Redis Cluster.
    """
    removed = keep_own_secrets(section)
    try:
        require_output()
        refuse_misspelled(os.environ)
        settings = section.load(os.environ)
    except (SettingsWrong, Misset):
        with suppress(SettingsWrong):  # those of Redis may be wrong too
            report_unstarted(StoreSettings.load(os.environ), kind)
        raise
    require_extras(settings)
    require_single_redis(settings.store.redis)
    require_migrated(settings.store)
    log = set_up_logging()
    divert_crashes(log)
    if removed:
        log.info("secrets_removed", variables=removed)
    warn_of_missing_rights(settings.store.redis, settings.store.keys, log)
    for name, nearest in unknown_variables(os.environ, VARIABLES):
        log.warning("setting_unknown", setting=name, nearest=nearest)
    return settings, log


def report_unstarted(store: StoreSettings, kind: Kind) -> None:
    """Report to the board and the doctor that this process does not start; its own log has the reason."""
    with suppress(RedisError, OSError), blocking_redis(store.redis) as redis:
        note_unstarted(redis, store.keys, kind)


YOUNG: Final = 50_000
"""New objects, minus freed ones, before the youngest generation is collected."""


def collect_seldom() -> None:
    """Never collect the objects of start-up, and collect others less often.

    Python looks for cycles after every 700 new objects. With hundreds of requests in flight, nearly all young objects
    are in use or are freed without a cycle. *Measured* on checks: this saves an eighth of a worker's CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 50)


_FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def take_foreground() -> None:
    """Continue in a new foreground process group, if we share the terminal with our parent.

    GNU make that receives Ctrl-C reports an error although the program it runs ends well, and at a second Ctrl-C it
    leaves before that program has ended. In its own foreground group the program alone receives Ctrl-C. The original
    process stays behind for make: it forwards signals, waits, gives the terminal back and exits with the same code.

    Does nothing without a terminal, in the background, or if a shell has already given us our own group.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return
    group = os.getpgrp()
    if group == os.getpid() or os.tcgetpgrp(terminal) != group:
        os.close(terminal)
        return
    # A background process that changes the foreground is stopped, unless it ignores this signal.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    child = os.fork()
    if child:
        code = _wait_for(child)
        os.tcsetpgrp(terminal, group)
        os._exit(code)
    os.setpgid(0, 0)
    os.tcsetpgrp(terminal, os.getpid())
    # Ctrl-Z would stop this group only. The shell waits for make, so the user could not continue the group.
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.close(terminal)


def _wait_for(child: int) -> int:
    """Forward signals to a child until it has ended; return its exit code as a shell reports it."""

    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def extras_of(settings: WebSettings | WorkerSettings) -> dict[str, str]:
    """Return the extras that settings need, each with the variable that needs it."""
    asked = {
        "archive": ("CALLKEEPER_ARCHIVE_URL", settings.archive is not None),
        "otel": ("OTEL_EXPORTER_OTLP_ENDPOINT", settings.telemetry is not None),
    }
    return {extra: variable for extra, (variable, is_set) in asked.items() if is_set}


def telemetry_of(
    settings: WebSettings | WorkerSettings, kind: Kind, log: FilteringBoundLogger
) -> AbstractContextManager[None]:
    """Return what sends spans while it is entered; nothing where there is no collector, or the extra is missing.

    ``OTEL_TRACES_EXPORTER=none`` switches them off; the SDK reads it only under its own launcher.
    """
    if settings.telemetry is None or os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return nullcontext()
    if is_missing("otel"):
        log.warning("telemetry_off", because=how_to_install("otel"))
        return nullcontext()
    from callkeeper.app.telemetry import telemetry  # noqa: PLC0415  (OpenTelemetry is imported only with a collector)

    return telemetry(kind, log)


def require_output() -> None:
    """Make sure that there is a standard output. If it is closed, a connection may get its number, and the log with it.

    Raises:
        Misset: It is closed.
    """
    if sys.stdout is None:
        raise Misset("standard output is closed, but the log goes there: redirect it, to /dev/null if you want none")


def require_single_redis(place: RedisLocation) -> None:
    """Make sure that Redis, if it answers, is a server. If it is away, the doctor says so later.

    Raises:
        Misset: It is a Redis Cluster or a sentinel.
    """
    with suppress(RedisError, OSError), blocking_redis(place, timeout_s=1.0) as redis:
        if (mode := other_mode(dict(redis.info()))) is not None:
            raise Misset(f"{place.address} is {mode}: {SINGLE_REMEDY}")


def require_migrated(store: StoreSettings) -> None:
    """Make sure that Redis, if it answers, has no data of an older release that were not copied.

    Raises:
        Failed: It has some; the message says what to do.
    """
    try:
        with suppress(RedisError, OSError), blocking_redis(store.redis, timeout_s=1.0) as redis:
            Migration(redis, store.keys).require()
    except NotMigrated as error:
        raise Failed(*error.args) from None


def leave_unless_migrated(redis: Redis, keys: Keys, log: FilteringBoundLogger) -> None:
    """End this process if an older release left data here, or works here: Redis may have been away at the start.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    try:
        Migration(redis, keys).require()
    except NotMigrated as error:
        log.critical("not_migrated", because=" ".join(error.args))
        leave_now(1)


def require_extras(settings: WebSettings | WorkerSettings) -> None:
    """Make sure that what settings need is installed, except for traces: calls are handled without them too.

    Raises:
        Failed: An extra is missing; the message names it and the variable.
    """
    for extra, variable in extras_of(settings).items():
        if extra != "otel":
            require(variable, extra)
