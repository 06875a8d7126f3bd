"""Laws of detection end to end: truth at the stand-in against knowledge in our trails, in virtual time, on a real Redis."""

from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import json

from benchmarks.live_calls import Watched, watch
from benchmarks.schedule import LAWS, best_for, model_of, replanned
from callkeeper.app.cli import main
from callkeeper.calls.rules import load_rules
from callkeeper.calls.schedule.model import Lognormal
from callkeeper.calls.trail import encode_recorded
from tests.simulated_calls import even_calls

SHIPPED = load_rules(None).schedule
FAST = (Lognormal(10, 0.6), Lognormal(40, 0.5))


@pytest.fixture(scope="module")
def watched() -> Watched:
    """Return what became of 80 calls with fast results, watched by the shipped schedule."""
    return watch(even_calls(*FAST, 80, longest_s=200), SHIPPED)


def test_lag_end_to_end_is_what_the_schedule_plans(watched: Watched) -> None:
    """A whole callkeeper is within a quarter of a second of the schedule's own mean lag, and overspends nothing.

    It may also be below: a check that is made 0.1 s late meets a result that came just after its slot.
    """
    assert len(watched.recordings) == watched.calls == 80
    assert watched.mean_lag_s == pytest.approx(watched.planned_lag_s, abs=0.25)
    assert watched.most_checks <= SHIPPED.automatic_limit


def test_fit_from_exported_calls_finds_better_times(watched: Watched, tmp_path: Path) -> None:
    """What callkeeper wrote about its calls is what `schedule fit --calls` reads: times that gain, a table, a drawing."""
    exported = [encode_recorded(call) for call in watched.recordings] * 3
    calls, table, drawing = tmp_path / "calls.jsonl", tmp_path / "checks.toml", tmp_path / "checks.svg"
    calls.write_bytes(b"\n".join(exported))
    asked = ["schedule", "fit", "--calls", str(calls), "--output", str(table), "--svg", str(drawing), "--json"]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    found = json.decode(result.output)
    assert found["gain"]["band"][0] > 1.2
    assert found["law"]["median_s"] == pytest.approx(10, rel=0.25)
    assert "[checks]" in table.read_text()
    assert drawing.read_text().startswith("<svg")
    key = watched.recordings[0].institution_key
    mistyped = ["schedule", "fit", "--calls", str(calls), "--institution", key.upper()]
    told = CliRunner().invoke(main, mistyped)
    assert (told.exit_code, f"did you mean {key}?" in told.stderr) == (1, True)


def test_fit_refuses_too_few_calls(tmp_path: Path) -> None:
    """Nothing is fitted to no calls at all."""
    calls = tmp_path / "calls.jsonl"
    calls.write_bytes(b"")
    told = CliRunner().invoke(main, ["schedule", "fit", "--calls", str(calls), "--institution", "nobody"])
    assert (told.exit_code, told.output) == (
        1,
        "Error: 0 watched calls, 0 of them with a result: at least 200 and 100 are needed\n",
    )


def test_show_refuses_an_institution_without_calls_of_ones_own() -> None:
    """An institution says nothing where the shipped assumption is drawn: it is refused rather than ignored."""
    told = CliRunner().invoke(main, ["schedule", "show", "--institution", "cu-1"])
    assert (told.exit_code, "--own or --calls" in told.stderr) == (2, True)


def test_show_draws_the_times_in_force() -> None:
    """`schedule show` draws the rules' times, and those of the environment where they are set."""
    shown = CliRunner().invoke(main, ["schedule", "show"])
    assert shown.exit_code == 0
    assert "9.50 s" in shown.output
    set_at = CliRunner().invoke(main, ["schedule", "show"], env={"CALLKEEPER_CHECK_AT": "7,14,21"})
    assert "21.00 s" in set_at.output
    assert "9.50 s" not in set_at.output


def test_benchmark_measures_a_schedule_that_loses_a_check() -> None:
    """The benchmark's own arithmetic: a replanned schedule has one check less, in order."""
    times = replanned(SHIPPED, 3)
    assert len(times) == len(SHIPPED.at_s) - 1
    assert all(a < b for a, b in pairwise(times))


@pytest.mark.parametrize("name", LAWS)
def test_benchmark_distributions_have_a_best_schedule(name: str) -> None:
    """For each distribution of the benchmark its best schedule is no worse than the shipped one."""
    model = model_of(LAWS[name])
    assert model.lag(best_for(LAWS[name]).at_s) <= model.lag(SHIPPED.at_s) + 1e-9


def test_fit_without_a_file_reads_the_calls_in_redis(redis_url: str) -> None:
    """With nothing in Redis there is nothing to fit: the refusal says how many calls there are and how many it takes."""
    told = CliRunner().invoke(main, ["schedule", "fit"], env={"REDIS_URL": redis_url})
    assert told.exit_code == 1
    assert told.output.startswith("Error: 0 watched calls")
