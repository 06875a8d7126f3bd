"""Incidents: how much each matters, and when equal ones are one."""

from dataclasses import replace

from callkeeper.calls.causes import IncidentKind, Weight
from callkeeper.calls.incident import MERGED_FROM, Incident, folded, merged, named
from tests.unit.calls.specimens import NOW, seconds


def away(n: int) -> Incident:
    """Return the incident of one institution."""
    since = NOW - seconds(n)
    return Incident(IncidentKind.INSTITUTION_FAILS, "Wait.", f"cu-{n}", since, last_error=f"error {n}", headline="away")


def test_equal_incidents_of_many_institutions_are_one() -> None:
    """It names them, has the earliest beginning, and stands where the first stood."""
    few = [away(n) for n in range(MERGED_FROM - 1)]
    assert merged(few) == few
    (one,) = merged([away(n) for n in range(MERGED_FROM)])
    assert one.institutions == tuple(f"cu-{n}" for n in range(MERGED_FROM))
    assert one.since == NOW - seconds(MERGED_FROM - 1)
    assert one.advice == "3 institutions: cu-0, cu-1, cu-2. Wait. Ask the service's operator."
    assert one.last_error == "error 0, error 1 and 1 more"


def test_what_is_of_one_institution_is_not_said_of_others() -> None:
    """Numbers and names in the advice may be of the first one only: then it is named."""
    found = [replace(away(n), detail=f"{n} requests failed.") for n in range(MERGED_FROM)]
    assert (
        merged(found)[0].advice
        == "3 institutions: cu-0, cu-1, cu-2. Of cu-0: 0 requests failed. Ask the service's operator."
    )


def test_faults_of_one_place_are_one_incident_that_names_each() -> None:
    """Also a fault of which nothing else is said."""
    both = [replace(away(1), headline="away"), replace(away(1), headline="refused")]
    assert [one.parts for one in folded(both)] == [("away", "refused")]


def test_incident_of_the_whole_installation_is_never_merged() -> None:
    """It has no institution."""
    whole = [Incident(IncidentKind.LATE, "Add workers.", headline="late")] * MERGED_FROM
    assert merged(whole) == whole


def test_weight_says_who_has_to_come() -> None:
    """Refused pushes of one institution can wait, because the queue shows its calls; those of all cannot."""
    assert Incident(IncidentKind.NO_WORKER, "").weight is Weight.PAGE
    assert Incident(IncidentKind.NO_WEB, "").weight is Weight.PAGE
    assert Incident(IncidentKind.PUSHES_REFUSED, "").weight is Weight.PAGE
    assert Incident(IncidentKind.PUSHES_REFUSED, "", "cu-1").weight is Weight.TICKET
    assert Incident(IncidentKind.PROCESSES_DIFFER).weight is Weight.TICKET
    assert Incident(IncidentKind.LATE, "").weight is Weight.PAGE


def test_long_lists_are_cut() -> None:
    """A line names eight."""
    assert named(f"cu-{n}" for n in range(9)) == "cu-0, cu-1, cu-2, cu-3, cu-4, cu-5, cu-6, cu-7 and 1 more"
    assert named(["b", "a"]) == "a, b"
