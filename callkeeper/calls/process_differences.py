"""Processes of one installation that should be alike and are not: their rules, their settings, their release."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident import Incident, named
from callkeeper.calls.metrics.redis_writer import KEYED_BY
from callkeeper.calls.metrics.signals import Signals
from callkeeper.calls.metrics.snapshot import Process


def process_differences(signals: Signals) -> Iterator[Incident]:
    """Yield one incident for all that differs, the most harmful first."""
    found = [*_rules_differ(signals), *_settings_differ(signals), *_releases_differ(signals)]
    if found:
        headlines, lines = zip(*found, strict=True)
        yield Incident(IncidentKind.PROCESSES_DIFFER, " ".join(lines), headline=headlines[0], parts=headlines)


def _releases_differ(signals: Signals) -> Iterator[tuple[str, str]]:
    versions = Counter(process.version or "older" for process in signals.processes)
    if len(versions) > 1:
        yield "Two releases run side by side", f"Releases: {_counted(versions)}."


def _rules_differ(signals: Signals) -> Iterator[tuple[str, str]]:
    for kind in ("worker", "web"):
        digests = Counter(process.rules for process in signals.processes if process.kind == kind and process.rules)
        if len(digests) > 1:
            yield (
                f"{kind.capitalize()} processes use different rules",
                f"Rules: {_counted(digests)}. Which rules decide a call is random.",
            )
            return
    # Other check times than those of the file are set for workers only.
    files = Counter(process.rules.partition("+")[0] for process in signals.processes if process.rules)
    if len(files) > 1:
        yield (
            "Web and workers use different rules",
            f"Rules: {_counted(files)}. The workers' rules decide; pages show what the web processes' rules would.",
        )


def _settings_differ(signals: Signals) -> Iterator[tuple[str, str]]:
    for kind, keyed_by in KEYED_BY.items():
        by_key = _by_digest((process for process in signals.processes if process.kind == kind), keyed_by)
        found = [(keyed_by, by_key)]
        for own in by_key.values():
            found += [
                (name, _by_digest(own, name)) for name in sorted({name for each in own for name in each.settings})
            ]
        lines = [_difference(name, by_digest) for name, by_digest in found if len(by_digest) > 1]
        if lines:
            who, consequence = _CONSEQUENCES[kind]
            yield f"{who.capitalize()} have different settings", f"{'; '.join(lines)}. {consequence}."
            return


_CONSEQUENCES: Final = {
    "worker": ("workers", "What becomes of a call depends on the worker that handles it"),
    "web": ("web processes", "Which pushes, logins and tokens are accepted depends on the web process that is asked"),
}


def _by_digest(processes: Iterable[Process], name: str) -> dict[str, list[Process]]:
    """Return processes by their digest of a setting. One that does not report it is unknown, not different."""
    found: dict[str, list[Process]] = {}
    for process in processes:
        if (digest := process.settings.get(name)) is not None:
            found.setdefault(digest, []).append(process)
    return found


def _difference(name: str, by_digest: Mapping[str, Sequence[Process]]) -> str:
    """Return which processes have which value of a setting, the most common value first."""
    values = sorted(by_digest.items(), key=lambda each: (-len(each[1]), each[0]))
    told = [named(one.place for one in own) + ("" if digest else " (not set)") for digest, own in values]
    return f"{name}: {' against '.join(told)}"


def _counted(by_name: Counter[str]) -> str:
    return ", ".join(f"{count} with {name}" for name, count in sorted(by_name.items()))
