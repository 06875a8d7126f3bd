"""The audit after a chaos run: compares what the sandbox counted with what callkeeper stored. Pure functions."""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from callkeeper.calls.claimed_item import LEASE
from callkeeper.calls.effect_ledger import IN_DOUBT, Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import DOUBTFUL, MAX_REQUESTS, SHOWN_BY
from callkeeper.calls.record import Call, Reason
from callkeeper_sandbox.service.faults import Action

OPERATIONS = {EffectKind.ASSIGN: "assign", EffectKind.ENROLL: "enroll", EffectKind.REJECT: "reject_voice"}
CHECK_LIMIT = 20
ASSIGN_LIMIT = 3

PROVED_ABSENT_S = SHOWN_BY.total_seconds() - LEASE.first_byte_s
"""Seconds from a request to its repetition, at least. The product counts 20 s from the booking of the request."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the sandbox counted and what callkeeper stored, read after every call has ended and settled.

    Attributes:
        accounts: The sandbox's account of each call, by voice id as our records spell it, with the requests that
            arrived.
        unknown: Requests for ids that belong to no call, by id.
        records: Our record of each call, by voice id.
        accepted: Ids of the events that were answered with 2xx.
        logged: Ids of the events in our event log.
        bugs: Log lines of unexpected exceptions.
        found_after_s: A call must have a record if the queue listed it for at least this long.
        unnamed: Institutions that appear neither in the service's answers nor in the settings. Their calls need not
            be found: a push alone does not prove that an institution exists, because a sender can invent keys.
    """

    accounts: Mapping[str, Mapping[str, Any]]
    unknown: Mapping[str, Any]
    records: Mapping[str, Call]
    accepted: frozenset[str]
    logged: frozenset[str]
    bugs: tuple[str, ...]
    found_after_s: float
    unnamed: frozenset[str] = frozenset()


def faults(evidence: Evidence) -> list[str]:
    """Return one text for each broken promise."""
    found = [f"a step raised at {place}" for place in evidence.bugs]
    found += [
        f"event {event_id} was accepted and is not in the log" for event_id in evidence.accepted - evidence.logged
    ]
    found += [f"{voice_id}: asked about, and no call" for voice_id in evidence.unknown]
    for voice_id, account in evidence.accounts.items():
        record = evidence.records.get(voice_id)
        found_after_s = math.inf if account["institution_key"] in evidence.unnamed else evidence.found_after_s
        told = [*_count_faults(account, record), *_end_faults(account, record, found_after_s)]
        found += [f"{voice_id}: {fault}" for fault in told]
    return found


def _count_faults(account: Mapping[str, Any], record: Call | None) -> list[str]:
    """Compare the requests that arrived with the booked requests and with the limits."""
    arrived, sent = account["tally"]["arrived"], account["tally"]["authenticated"]
    limits = {"check": CHECK_LIMIT, "assign": ASSIGN_LIMIT}
    told = [f"{sent.get(name, 0)} of {name}" for name, limit in limits.items() if sent.get(name, 0) > limit]
    repeated = [name for name in map(OPERATIONS.__getitem__, DOUBTFUL) if arrived.get(name, 0) > 1]
    told += [f"{arrived[name]} of {name}" for name in repeated if not _is_rightly_repeated(account, name)]
    booked = record.plan.checks_used if record else 0
    if arrived.get("check", 0) > booked:
        told.append(f"{arrived['check']} checks arrived, {booked} were booked")
    for kind, name in OPERATIONS.items():
        if arrived.get(name, 0) and (record is None or _is_unsent(record.effect(kind))):
            told.append(f"{name} arrived, and our ledger does not know of it")
    return told


def _is_rightly_repeated(account: Mapping[str, Any], operation: str) -> bool:
    """Tell whether two requests arrived, the second after the proof that the first was not applied.

    The first was answered 401 or 429, or refused, in an answer that can be read. Nobody has asked for another one.
    """
    requests = [each for each in account["arrivals"] or () if each["operation"] == operation]
    if len(requests) != MAX_REQUESTS or requests[0]["applied"]:
        return False
    first, second = requests
    is_refused = first["success"] is False and first["fault"] in {None, Action.PASS}
    is_late = second["monotonic_s"] - first["monotonic_s"] >= PROVED_ABSENT_S
    return is_late and (is_refused or first["status"] in {401, 429})


def _is_unsent(effect: Effect) -> bool:
    """Tell whether a ledger contains no request. Requests before a withdrawn repetition still count."""
    return effect.state in {EffectState.NONE, EffectState.INTENDED} and effect.attempts <= effect.unsent


def _end_faults(account: Mapping[str, Any], record: Call | None, found_after_s: float) -> list[str]:
    """Return a fault if the call was not found, not settled, or settled for a wrong reason."""
    if record is None:
        was_shown = account["listed_s"] >= found_after_s
        return [f"forgotten: the queue showed it for {account['listed_s']:.0f} s"] if was_shown else []
    if record.life.reason is None:
        return [f"not settled: {record.life.phase}"]
    doubts = [kind for kind in EffectKind if record.effect(kind).state in IN_DOUBT]
    told = [f"settled with its {kind} in doubt" for kind in doubts]
    if record.life.reason not in right_reasons(account, record):
        told.append(f"settled as {record.life.reason}, right: {sorted(right_reasons(account, record))}")
    return told


def right_reasons(account: Mapping[str, Any], record: Call) -> set[Reason]:
    """Return the reasons that a settled call may have, according to the sandbox's account of it."""
    unresolved = EffectState.UNRESOLVED in {record.ledger.enroll.state, record.ledger.reject.state}
    if unresolved:
        return {Reason.UNRESOLVED}
    at = {activity["name"]: datetime.fromisoformat(activity["at"]) for activity in account["activities"]}
    unenrolled = [truth["at"] for truth in account["truth"] if truth["kind"] == "unenrolled"]
    unenrolled_at = datetime.fromisoformat(unenrolled[-1]) if unenrolled else None
    provider = [policy for policy in account["policies"] if "Manual" not in policy]
    is_late = (
        unenrolled_at is not None and record.life.settled_at is not None and unenrolled_at > record.life.settled_at
    )
    right = set[Reason]()
    for person_id in account["persons_shown"]:
        reasons = (
            (account["rejected"], Reason.REJECTED),
            (any(policy.startswith("Red") for policy in provider), Reason.RED),
            (unenrolled_at is not None, Reason.UNENROLLED),
            ("AcceptCallerVoice" in at, Reason.ENROLLED),
            (person_id is None, Reason.UNASSIGNED),
            (any(policy.startswith("Green") for policy in provider), Reason.AUTHENTICATED),
            (bool(account.get("error")), Reason.PROVIDER_ERROR),
        )
        right.add(next((reason for holds, reason in reasons if holds), Reason.UNDECIDED))
    # If somebody else rejects the member later, the service does not report it. We notice our own reject later.
    return right | {Reason.ENROLLED} if is_late and Reason.UNENROLLED in right else right


def found_in_s(evidence: Evidence) -> list[float]:
    """Return the seconds from a call's first appearance in the queue to its assign, for each assigned call."""
    return [
        (at - datetime.fromisoformat(account["listed_at"])).total_seconds()
        for account in evidence.accounts.values()
        for at in _arrivals(account, "assign")[:1]
    ]


def noticed_in_s(evidence: Evidence) -> list[float]:
    """Return the seconds from a green result to the next check, for each call that had both."""
    lags = []
    for account in evidence.accounts.values():
        green = [datetime.fromisoformat(truth["at"]) for truth in account["truth"] if truth["kind"] == "green"]
        later = [at for at in _arrivals(account, "check") if green and at >= green[0]]
        lags += [(at - green[0]).total_seconds() for at in later[:1]]
    return lags


def next_after(instants: Iterable[datetime], moments: Iterable[datetime]) -> list[float]:
    """Return, for each instant, the seconds to the next of the moments."""
    known = sorted(moments)
    waits = []
    for instant in instants:
        later = next((moment for moment in known if moment > instant), None)
        waits += [] if later is None else [(later - instant).total_seconds()]
    return waits


def all_arrivals(evidence: Evidence) -> list[datetime]:
    """Return when each request about a call arrived."""
    return [at for account in evidence.accounts.values() for at in _arrivals(account)]


def spread(values: list[float]) -> str:
    """Return count, median, 99th percentile and maximum as text."""
    if not values:
        return "none"
    ordered = sorted(values)
    p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"{len(ordered):5d}   p50 {p50:6.2f} s   p99 {p99:6.2f} s   max {ordered[-1]:6.2f} s"


def event_id_of(body: str) -> str | None:
    """Return the event id from a response of the push endpoint."""
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    return answer.get("event_id") if isinstance(answer, dict) else None


def _arrivals(account: Mapping[str, Any], operation: str | None = None) -> list[datetime]:
    return [
        datetime.fromisoformat(arrival["at"])
        for arrival in account["arrivals"] or ()
        if operation in {None, arrival["operation"]}
    ]
