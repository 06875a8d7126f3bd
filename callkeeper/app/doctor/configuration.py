"""Checks the settings, the installed extras and the rules file."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeVar

from redis.asyncio import Redis

from callkeeper.app.doctor.finding import Finding, Topic, fault, ok, warning
from callkeeper.app.environment import SettingsFault, SettingsWrong, unknown_variables
from callkeeper.app.extras import how_to_install, is_missing
from callkeeper.app.process import extras_of
from callkeeper.app.settings import REMOVED_SETTINGS, VARIABLES, WebSettings, WorkerSettings, removed_settings
from callkeeper.calls.rules import Outcome, RuleBook, RulesError, load_rules
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys

ProcessKind = Literal["web", "worker"]
"""A kind of process with its own settings."""

S = TypeVar("S", WebSettings, WorkerSettings)


class Loaded(NamedTuple):
    """The settings of web and worker: None for those that have a fault, or that were not asked for."""

    web: WebSettings | None
    worker: WorkerSettings | None
    faults: Sequence[SettingsFault]


def load_settings(environ: Mapping[str, str], only: ProcessKind | None) -> Loaded:
    """Read the settings of web and worker, or of ``only`` one of them."""
    faults: dict[SettingsFault, None] = {}

    def load(section: type[S], part: ProcessKind) -> S | None:
        if only not in {None, part}:
            return None
        try:
            return section.load(environ)
        except SettingsWrong as error:
            faults.update(dict.fromkeys(error.faults))
            return None

    web, worker = load(WebSettings, "web"), load(WorkerSettings, "worker")
    return Loaded(web, worker, list(faults))


def settings_findings(loaded: Loaded) -> list[Finding]:
    """Report the settings; every fault is one finding."""
    if loaded.faults:
        return [
            fault(Topic.SETTINGS, problem, f"for example {name}={example}", about=name)
            for name, problem, example in loaded.faults
        ]
    web, worker, _ = loaded
    if web is not None and worker is not None:
        summary = "web and worker have what they need"
    else:
        summary = f"{'worker' if web is None else 'web'} has what it needs"
    rotations = [
        *(_rotation(web) if web is not None else []),
        *(_outcome_rotation(worker) if worker is not None else []),
    ]
    return [ok(Topic.SETTINGS, summary), *rotations]


def extra_findings(*loaded: WebSettings | WorkerSettings | None) -> list[Finding]:
    """Name the extras that settings need and that are not installed."""
    needed = {extra: name for settings in loaded if settings is not None for extra, name in extras_of(settings).items()}
    detail = "needs more than is installed"
    return [
        fault(Topic.SETTINGS, detail, how_to_install(extra), about=name)
        for extra, name in needed.items()
        if is_missing(extra)
    ]


async def released_variables(redis: Redis, keys: Keys, *, is_release: bool) -> frozenset[str]:
    """Return the variables that any version stored in its release step. A release step adds those of this version.

    Without this list, a rollback would be refused for a variable that only the newer version knows.
    """
    client = in_bytes(redis)
    if is_release:
        await client.sadd(keys.settings, *VARIABLES)
    return frozenset(name.decode() for name in await client.smembers(keys.settings))


def unknown_variable_findings(environ: Mapping[str, str], released: frozenset[str]) -> list[Finding]:
    """Name the variables that have our prefix but are no settings. ``released``: variables that other versions stored."""
    gone = removed_settings(environ)
    others = {name: value for name, value in environ.items() if name not in REMOVED_SETTINGS}
    found = [fault(Topic.SETTINGS, "is no setting any more", instead, about=name) for name, instead in gone.items()]
    for name, nearest in unknown_variables(others, VARIABLES):
        if name in released:
            detail = "is unknown to this version, but another version released here knows it"
            found.append(warning(Topic.SETTINGS, detail, "after a rollback: nothing; otherwise remove it", about=name))
        else:
            detail = "no setting has this name" + (f"; did you mean {nearest}?" if nearest else "")
            remedy = "correct the name, or remove the variable: docs/configuration.md lists all of them"
            found.append(fault(Topic.SETTINGS, detail, remedy, about=name))
    return found


def _rotation(settings: WebSettings) -> list[Finding]:
    """Remind of a rotation of the push headers that is under way."""
    if settings.push_headers_previous is None:
        return []
    remedy = "when the log event push_previous_headers_used no longer appears, remove the variable"
    detail = "the previous push headers are accepted too"
    return [warning(Topic.SETTINGS, detail, remedy, about="CALLKEEPER_PUSH_HEADERS_PREVIOUS")]


def _outcome_rotation(settings: WorkerSettings) -> list[Finding]:
    """Remind of a rotation of the outcome secret that is under way."""
    if settings.outcomes is None or len(settings.outcomes.secrets) == 1:
        return []
    detail = "outcomes are signed with two secrets"
    remedy = "when the receiver verifies with the first one, remove the second (docs/webhooks.md)"
    return [warning(Topic.SETTINGS, detail, remedy, about="CALLKEEPER_OUTCOME_SECRET")]


def rules_findings(settings: WebSettings | WorkerSettings) -> list[Finding]:
    """Read the rules; every fault of the file is one finding."""
    try:
        book = settings.rule_book() if isinstance(settings, WorkerSettings) else load_rules(settings.rules)
    except RulesError as error:
        remedy = "correct the file (callkeeper rules check names every fault); workers do not start on it"
        return [fault(Topic.RULES, line, remedy) for line in error.lines]
    shadow = sum(rule.stage == "shadow" for rule in book.rules)
    stage = f"{shadow} of them in shadow" if shadow else "all live"
    name = str(settings.rules or "default")
    detail = f"{name}, digest {book.digest}, {len(book.rules)} rules, {stage}, {len(book.schedule.at_s)} checks"
    accepted = "nothing if the institution wants this; otherwise remove its key from the list"
    return [
        ok(Topic.RULES, detail),
        *(warning(Topic.RULES, line, accepted) for line in book.warnings),
        *(ok(Topic.RULES, line) for line in book.dated(datetime.now(UTC))),
        *_consent(book),
    ]


def _consent(book: RuleBook) -> list[Finding]:
    """Name what the institution has to decide before a rule enrolls: an opt-out that is overwritten at once is not seen."""
    if book.is_consent_decided or all(rule.outcome is not Outcome.ENROLL for rule in book.rules):
        return []
    detail = "nobody has decided whether an enroll needs the caller's opt-in: until then it does not"
    return [warning(Topic.RULES, detail, "set [consent] require_opt_in in the rules file, to true or to false")]


def foreign_rules_findings(settings: WorkerSettings, keys: frozenset[str]) -> list[Finding]:
    """Check the rules again, against the account's institutions."""
    known = _faults(settings, None)
    remedy = "correct the key, or have the service operator add the institution to the account"
    return [fault(Topic.RULES, line, remedy) for line in _faults(settings, keys) if line not in known]


def _faults(settings: WorkerSettings, owned: frozenset[str] | None) -> list[str]:
    try:
        load_rules(settings.rules, owned=owned)
    except RulesError as error:
        return error.lines
    return []
