"""C6, C18: a worker is killed or frozen at every named point; the call then ends as the table allows."""

import pytest

from tests.faults.crashpoints import POINTS
from tests.faults.matrix import Outcome, Trial, is_for_every_change, play_all, rows, trials
from tests.faults.site import Site

TRIALS = [pytest.param(each, marks=() if is_for_every_change(each) else pytest.mark.night) for each in trials()]


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest, _site: Site) -> dict[str, Outcome]:
    """Play all chosen trials at the same time, because a trial mostly waits for a lease."""
    asked = [item.callspec.params.get("trial") for item in request.session.items if hasattr(item, "callspec")]
    return play_all(_site, [trial for trial in asked if isinstance(trial, Trial)])


@pytest.mark.timeout(900)  # the first test waits until all trials have been played
@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_crash_leaves_what_the_table_allows(trial: Trial, outcomes: dict[str, Outcome]) -> None:
    """C6, C18: after a crash the call ends as the table says: no second effect, no lost call, no uncounted check."""
    assert outcomes[str(trial)].faults(trial) == []


def test_crash_matrix_covers_every_point() -> None:
    """C6: the table has a row for every point, and no others."""
    assert {row.at for row in rows()} == set(POINTS)
