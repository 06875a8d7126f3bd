"""How a fitted schedule is told: lines for a person, a document for a program, a table for the rules file."""

from collections.abc import Iterator
from typing import Any

from calls.schedule.drawing import draw_text
from calls.schedule.fit import Fit, Lag


def fit_lines(fit: Fit, in_force: str) -> Iterator[str]:
    """Yield what was found, for a person."""
    law = fit.law
    yield f"{fit.calls} watched calls, {fit.decided} of them with a result"
    if fit.law_fits:
        yield (
            f"results: lognormal, median {law.median_s:.1f} s, sigma {law.sigma:.2f}, {law.share:.0%} of calls get one"
            f" (checked against Turnbull's estimate: {fit.excess:+.1f} of at most {fit.allowance:+.1f})"
        )
    else:
        yield (
            "results: of no simple shape, by Turnbull's estimate"
            f" (likelier than a lognormal by {fit.excess:+.1f}, more than {fit.allowance:+.1f})"
        )
    yield ""
    yield from draw_text(fit.model, fit.schedule.at_s).split("\n")
    yield ""
    yield f"mean lag, fitted:             {_told(fit.lag)}"
    yield f"mean lag, {in_force} (in force): {_told(fit.lag_in_force)}"
    gain, (low, high) = fit.gain
    yield f"better by a factor of:        {gain:.2f} (95 %: {low:.2f} to {high:.2f})"
    if low <= 1.0:
        yield "The times in force may be as good: nothing needs to change."


def _told(lag: Lag) -> str:
    return f"{lag.mean_s:.2f} s (95 %: {lag.band_s[0]:.2f} to {lag.band_s[1]:.2f})"


def fit_document(fit: Fit) -> dict[str, Any]:
    """Return what was found, for a program. Times are seconds."""
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
