"""Processes of one installation that should be alike and are not: their rules, their settings, their release."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from callkeeper.calls.incident import Incident, IncidentKind, named
from callkeeper.calls.metrics.redis_writer import KEYED_BY
from callkeeper.calls.metrics.signals import Signals
from callkeeper.calls.metrics.snapshot import Process


def process_differences(signals: Signals) -> Iterator[Incident]:
    """Yield what differs, the most harmful first."""
    yield from _rules_differ(signals)
    yield from _settings_differ(signals)
    versions = Counter(process.version or "older" for process in signals.processes)
    if len(versions) > 1:
        advice = f"{_counted(versions)}. This is normal during a deployment, and should end with it."
        yield Incident(IncidentKind.VERSIONS_DIFFER, "Two releases run side by side", advice)


def _rules_differ(signals: Signals) -> Iterator[Incident]:
    for kind in ("worker", "web"):
        digests = Counter(process.rules for process in signals.processes if process.kind == kind and process.rules)
        if len(digests) > 1:
            advice = (
                f"{_counted(digests)}. Which rules decide a call is random. This is normal during a deployment; if it "
                "lasts, give all processes the same rules."
            )
            yield Incident(IncidentKind.RULES_DIFFER, f"{kind.capitalize()} processes use different rules", advice)
            return
    # Other check times than those of the file are set for workers only.
    files = Counter(process.rules.partition("+")[0] for process in signals.processes if process.rules)
    if len(files) > 1:
        advice = (
            f"{_counted(files)}. The workers' rules decide. Pages show what the web processes' rules would, so they "
            "may be wrong. This is normal during a deployment; if it lasts, give both the same CALLKEEPER_RULES."
        )
        yield Incident(IncidentKind.RULES_DIFFER, "Web and workers use different rules", advice)


def _settings_differ(signals: Signals) -> Iterator[Incident]:
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
            advice = (
                f"{'; '.join(lines)}. {consequence}. This is normal during a deployment; if it lasts, give all {who} the "
                "same settings and restart them."
            )
            yield Incident(IncidentKind.SETTINGS_DIFFER, f"{who.capitalize()} have different settings", advice)
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
