"""Processes of one installation with different rules or settings are named."""

from dataclasses import replace

from callkeeper.calls.causes import IncidentKind, Weight
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.snapshot import Process
from tests.unit.calls.test_quiet_outages import WEB, WELL, WORKER


def sets(name: str, **digests: str) -> Process:
    """Return a worker with these digests of settings, and the usual ones of others."""
    usual = {"CALLKEEPER_ACCESS_TOKEN": "token", "CALLKEEPER_INSTITUTIONS": "", "CALLKEEPER_OUTCOME_URL": "core"}
    return replace(WORKER, name=name, settings=usual | digests)


def serves(name: str, **digests: str) -> Process:
    """Return a web process with these digests of settings, and the usual ones of others."""
    usual = {"CALLKEEPER_PUSH_HEADERS": "headers", "CALLKEEPER_METRICS_TOKEN": "tokens"}
    return replace(WEB, name=name, settings=usual | digests)


def test_web_with_other_rules_than_the_workers_is_an_incident() -> None:
    """Its pages would show what no worker does. One whose pages are off has none."""
    web = replace(WORKER, kind="web", rules="d2")
    [incident] = incidents_of(replace(WELL, processes=[WORKER, web]))
    assert (incident.kind, incident.title) == (IncidentKind.PROCESSES_DIFFER, "Web and workers use different rules")
    assert incidents_of(replace(WELL, processes=[WORKER, replace(web, rules="")])) == []


def test_settings_that_differ_are_named_with_the_workers() -> None:
    """Each variable with who has which value, the most common first, and where it is not set."""
    workers = [sets("box-1-7-aa"), sets("box-2-8-aa"), sets("box-3-9-aa", CALLKEEPER_INSTITUTIONS="cu1")]
    workers.append(sets("box-4-1-aa", CALLKEEPER_OUTCOME_URL=""))
    [incident] = incidents_of(replace(WELL, processes=[WEB, *workers]))
    assert (incident.kind, incident.weight) == (IncidentKind.PROCESSES_DIFFER, Weight.TICKET)
    assert incident.advice.startswith(
        "CALLKEEPER_INSTITUTIONS: box-1:7, box-2:8, box-4:1 (not set) against box-3:9; "
        "CALLKEEPER_OUTCOME_URL: box-1:7, box-2:8, box-3:9 against box-4:1 (not set). "
    )


def test_web_processes_are_compared_among_themselves() -> None:
    """Each variable with who has which value; with other push headers only these are named. Workers have others."""
    webs = [serves("box-1-7-aa"), serves("box-2-8-aa", CALLKEEPER_METRICS_TOKEN="")]
    [incident] = incidents_of(replace(WELL, processes=[sets("box-1-9-aa"), *webs]))
    assert (incident.kind, incident.title) == (IncidentKind.PROCESSES_DIFFER, "Web processes have different settings")
    assert incident.advice.startswith("CALLKEEPER_METRICS_TOKEN: box-2:8 (not set) against box-1:7. Which pushes")
    webs[1] = serves("box-2-8-aa", CALLKEEPER_PUSH_HEADERS="other", CALLKEEPER_METRICS_TOKEN="others")
    [incident] = incidents_of(replace(WELL, processes=[sets("box-1-9-aa"), *webs]))
    assert incident.advice.startswith("CALLKEEPER_PUSH_HEADERS: box-1:7 against box-2:8. Which pushes")


def test_settings_are_compared_among_workers_of_one_access_token() -> None:
    """With another token all digests are others, although the settings may be equal: only the token is named."""
    other = {"CALLKEEPER_ACCESS_TOKEN": "other", "CALLKEEPER_OUTCOME_URL": "also core"}
    workers = [sets("box-1-7-aa"), sets("box-2-8-aa"), sets("box-3-9-aa", **other)]
    [incident] = incidents_of(replace(WELL, processes=[WEB, *workers]))
    assert incident.advice.startswith("CALLKEEPER_ACCESS_TOKEN: box-1:7, box-2:8 against box-3:9. What becomes")
