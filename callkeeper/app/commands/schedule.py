"""``callkeeper schedule``: draw the check times in force, and fit check times to an institution's own calls."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import click

from callkeeper.app.archive_reader import recorded_calls
from callkeeper.app.redis_query import query_redis
from callkeeper.app.settings import RuleSettings
from callkeeper.app.terminal import CommandGroup, Failed, Misused, say, say_json
from callkeeper.calls.institutions import KnownInstitutions
from callkeeper.calls.policies import Policies
from callkeeper.calls.rules import RuleBook, RulesError, load_rules
from callkeeper.calls.schedule.drawing import draw_svg, draw_text
from callkeeper.calls.schedule.estimate import observe
from callkeeper.calls.schedule.fit import Fit, Lag, Sample, TooFewCalls, fit
from callkeeper.calls.schedule.model import prior
from callkeeper.calls.store.queries import Queries
from callkeeper.calls.trail import Recorded

_rules = click.option("--rules", "rules_file", help="Another rules file than the one in force.")
_institution = click.option("--institution", metavar="KEY", help="Only the calls of this institution.")
_calls = click.option(
    "--calls", "recorded", type=click.File("rb"), help="Calls as written by callkeeper calls export, instead of Redis."
)
_archive = click.option(
    "--archive", "from_archive", is_flag=True, help="Use the archived calls instead of those in Redis."
)
_FILE = click.Path(dir_okay=False, path_type=Path, resolve_path=True)
_svg = click.option("--svg", type=_FILE, help="Also draw into this file.")


@click.group(cls=CommandGroup)
def schedule() -> None:
    """Show when checks are made, and fit the times to your own calls."""


@schedule.command()
@click.option("--own", is_flag=True, help="Use the calls in Redis instead of the shipped assumption.")
@_calls
@_institution
@_rules
@_svg
def show(
    *, own: bool, recorded: BinaryIO | None, institution: str | None, rules_file: str | None, svg: Path | None
) -> None:
    """Draw the check times in force over the distribution of results and call lengths."""
    book = _book(rules_file)
    if own or recorded is not None:
        model, over = _fit(book, recorded, institution)[0].model, "your own calls"
    else:
        if institution is not None:
            raise Misused("--institution needs --own or --calls: the shipped assumption is the same for all")
        model, over = prior(), "the shipped assumption"
    title = f"Checks of {book.name}, over {over}"
    say(title, *draw_text(model, book.schedule.at_s).split("\n"))
    if svg is not None:
        svg.write_text(draw_svg(model, book.schedule.at_s, title), encoding="utf-8")


@schedule.command("fit")
@_calls
@_archive
@_institution
@_rules
@_svg
@click.option("--output", type=_FILE, help="Write the [checks] table into this file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def fit_command(
    *,
    recorded: BinaryIO | None,
    institution: str | None,
    rules_file: str | None,
    svg: Path | None,
    output: Path | None,
    from_archive: bool,
    as_json: bool,
) -> None:
    """Find the best check times for your own settled calls, and show how much they gain.

    Prints a [checks] table for the rules file. Refuses when there are too few calls to tell.
    """
    book = _book(rules_file)
    found, watched = _fit(book, recorded, institution, from_archive=from_archive)
    table = checks_table(found, book.checks_unassigned)
    if as_json:
        say_json({"watched": watched, **fit_document(found)})
    else:
        drawn = [f"{watched} watched calls, of which {found.calls} were drawn:"] if watched > found.calls else []
        say(*drawn, *fit_lines(found, book.name), "", *table.splitlines())
    if output is not None:
        output.write_text(table, encoding="utf-8")
    if svg is not None:
        svg.write_text(
            draw_svg(found.model, found.schedule.at_s, "Fitted checks, over your own calls"), encoding="utf-8"
        )


def _book(rules_file: str | None) -> RuleBook:
    try:
        return load_rules(rules_file) if rules_file else RuleSettings.load(os.environ).book()
    except RulesError as error:
        raise Failed(*error.lines) from None


def _fit(
    book: RuleBook, recorded: BinaryIO | None, institution: str | None, *, from_archive: bool = False
) -> tuple[Fit, int]:
    """Return the fit and the number of watched calls. If there are very many, only a sample is fitted."""
    if from_archive and recorded is not None:
        raise Misused("give --calls FILE, or --archive")
    seen = _Observed(book.policies, institution)
    if from_archive or recorded is not None:
        with recorded_calls(recorded, institution=institution) as calls:
            for call in calls:
                seen.add(call)
        seen.check(KnownInstitutions({}))
    else:
        query_redis(lambda redis, keys: seen.read(Queries(redis, keys=keys)))
    try:
        return fit(seen.sample.observations, book.schedule), seen.sample.added
    except TooFewCalls as error:
        raise Failed(error) from None


class _Observed:
    """Observations of calls, of one institution or of all."""

    def __init__(self, policies: Policies, institution: str | None) -> None:
        self._policies = policies
        self._institution = institution
        self._keys: set[str] = set()
        self.sample = Sample()

    async def read(self, queries: Queries) -> None:
        """Read one call after the other, because a hundred thousand trails may not fit into memory."""
        async for call in queries.recordings():
            self.add(call)
        self.check(await queries.institutions())

    def add(self, call: Recorded) -> None:
        self._keys.add(call.institution_key)
        if self._institution in {None, call.institution_key}:
            seen = observe(call, self._policies)
            if seen is not None:
                self.sample.add(seen)

    def check(self, known: KnownInstitutions) -> None:
        """Refuse an institution that is neither known nor in the calls.

        Raises:
            Failed: There is no such institution.
        """
        found = replace(known, names={**dict.fromkeys(self._keys), **known.names})
        if self._institution is not None and found.names and (problem := found.problem(self._institution)):
            raise Failed(problem)


def fit_lines(fit: Fit, in_force: str) -> Iterator[str]:
    """Yield the lines of a fit for a person."""
    law = fit.law
    yield f"{fit.calls} watched calls, {fit.decided} of them with a result"
    if fit.law_fits:
        yield (
            f"results: lognormal, median {law.median_s:.1f} s, sigma {law.sigma:.2f}, {law.share:.0%} of calls get one"
            f" (checked against Turnbull's estimate: {fit.excess:+.1f} of at most {fit.allowance:+.1f})"
        )
    else:
        yield (
            "results: not lognormal, by Turnbull's estimate"
            f" (likelier than a lognormal by {fit.excess:+.1f}, more than {fit.allowance:+.1f})"
        )
    yield ""
    yield from draw_text(fit.model, fit.schedule.at_s).split("\n")
    yield ""
    yield f"mean lag, fitted:             {_describe_lag(fit.lag)}"
    yield f"mean lag, {in_force} (in force): {_describe_lag(fit.lag_in_force)}"
    gain, (low, high) = fit.gain
    yield f"better by a factor of:        {gain:.2f} (95 %: {low:.2f} to {high:.2f})"
    if low <= 1.0:
        yield "The times in force may be as good: nothing needs to change."


def _describe_lag(lag: Lag) -> str:
    return f"{lag.mean_s:.2f} s (95 %: {lag.band_s[0]:.2f} to {lag.band_s[1]:.2f})"


def fit_document(fit: Fit) -> dict[str, Any]:
    """Return a fit for JSON. Times are in seconds."""
    return {
        "calls": fit.calls,
        "decided": fit.decided,
        "at": fit.schedule.at_s,
        "reserve": fit.schedule.reserve,
        "law": {"median_s": fit.law.median_s, "sigma": fit.law.sigma, "share": fit.law.share, "fits": fit.law_fits},
        "lag_s": {"mean": fit.lag.mean_s, "band": fit.lag.band_s},
        "lag_in_force_s": {"mean": fit.lag_in_force.mean_s, "band": fit.lag_in_force.band_s},
        "gain": {"mean": fit.gain[0], "band": fit.gain[1]},
    }


def checks_table(fit: Fit, unassigned: int) -> str:
    """Return the ``[checks]`` table for the rules file."""
    times = ", ".join(str(t) for t in fit.schedule.at_s)
    return (
        "[checks]\n"
        f"# Fitted to {fit.calls} calls, {fit.decided} with a result: mean lag {fit.lag.mean_s:.2f} s,"
        f" before {fit.lag_in_force.mean_s:.2f} s.\n"
        f"at = [{times}]\n"
        f"reserve = {fit.schedule.reserve}\n"
        f"unassigned = {unassigned}\n"
    )
