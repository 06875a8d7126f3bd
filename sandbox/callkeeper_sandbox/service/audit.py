"""Data for audits: each call with its results and request counts, and totals.

The truth of a call (`truth`) has the time at which each result first existed. The arrivals have the times of requests.
The difference is the delay of detection.
"""

import datetime as dt

import msgspec

from callkeeper_sandbox.service.effects import MAX_CHECKS
from callkeeper_sandbox.service.faults import Fault
from callkeeper_sandbox.service.ledger import Arrival, Tally
from callkeeper_sandbox.service.push import PushTotals
from callkeeper_sandbox.service.service import Sandbox
from callkeeper_sandbox.service.state import Activity, Call, Truth, Verification
from callkeeper_sandbox.service.views import person_shown


class Account(msgspec.Struct, frozen=True):
    """One call: its times, the results that existed, the service's record, and the requests about it.

    Attributes:
        is_ignored: The number is on the institution's ignore list, so the queue never lists the call.
        persons_shown: The persons whom the queue and the details show: two, if only the queue fills one in.
        listed_s: Seconds for which the queue has listed it so far.
        checks_used: Checks that made the service query the provider, at most 20.
        feedback: SUCCESSFUL and FAILED, in the order in which they were sent to the provider.
        tally: Requests that named the call, by operation.
        arrivals: Each of those requests, if requested.
    """

    voice_id: str
    alternate_id: str
    institution_key: str
    phone_number: str
    is_ignored: bool
    started_at: dt.datetime
    listed_at: dt.datetime
    listed_s: float
    ended_at: dt.datetime | None
    truth: list[Truth]
    status: str | None
    policies: list[str]
    person_id: str | None
    persons_shown: set[str | None]
    core_username: str | None
    fully_authenticated: bool
    rejected: bool
    manual_person_id: str | None
    checks_used: int
    activities: list[Activity]
    verifications: list[Verification]
    feedback: list[str]
    aliases: list[str]
    tally: Tally
    arrivals: list[Arrival] | None = None


class Summary(msgspec.Struct, frozen=True):
    """Totals over all calls and requests.

    Attributes:
        unknown_ids: Ids that requests named and no call has.
        surplus_headers: Authentication headers beyond those of an operation's mode, by operation and header.
    """

    now: dt.datetime
    calls: int
    live: int
    ended: int
    requests: Tally
    most_checks_arrived: int
    checks_over_budget: int
    enrolled_twice: int
    rejected_twice: int
    unknown_ids: int
    surplus_headers: dict[str, int]
    pushes: PushTotals
    tokens: int
    faults: list[Fault]


class Report(msgspec.Struct, frozen=True):
    """The whole ledger, for audits."""

    summary: Summary
    calls: dict[str, Account]
    unknown: dict[str, Tally]


def account(sandbox: Sandbox, call: Call, *, with_arrivals: bool) -> Account:
    """Return the account of one call."""
    recorded = {name: getattr(call, name) for name in Account.__struct_fields__ if hasattr(call, name)}
    judged = {
        "is_ignored": _is_ignored(sandbox, call),
        "listed_s": _listed_s(sandbox, call),
        "policies": call.applied_policies,
        "persons_shown": {person_shown(sandbox.world, call, place) for place in ("queue", "details")},
        "tally": sandbox.ledger.tally(call.voice_id),
        "arrivals": sandbox.ledger.arrivals(call.voice_id) if with_arrivals else None,
    }
    return Account(**{**recorded, **judged})


def _is_ignored(sandbox: Sandbox, call: Call) -> bool:
    return call.phone_number in sandbox.world.state.institutions[call.institution_key].ignored


def _listed_s(sandbox: Sandbox, call: Call) -> float:
    """Spec: Queue query, rules: only active calls, and no number on the ignore list."""
    if _is_ignored(sandbox, call):
        return 0.0
    until = call.ended_at or sandbox.world.clock()
    return max(0.0, (until - call.listed_at).total_seconds())


def summary(sandbox: Sandbox) -> Summary:
    """Return the totals."""
    state, entries = sandbox.world.state, sandbox.ledger.entries
    tallies = entries.by_call.values()
    checks = [tally.arrived.get("check", 0) for tally in tallies]
    live = sum(len(calls) for calls in sandbox.world.live.values())
    return Summary(
        now=sandbox.world.clock(),
        calls=len(state.calls),
        live=live,
        ended=len(state.calls) - live,
        requests=entries.totals,
        most_checks_arrived=max(checks, default=0),
        checks_over_budget=sum(count > MAX_CHECKS for count in checks),
        enrolled_twice=sum(tally.authenticated.get("enroll", 0) > 1 for tally in tallies),
        rejected_twice=sum(tally.authenticated.get("reject_voice", 0) > 1 for tally in tallies),
        unknown_ids=len(_unknown(sandbox)),
        surplus_headers=entries.surplus_headers,
        pushes=sandbox.pusher.totals,
        tokens=len(state.tokens),
        faults=sandbox.faults.scripted,
    )


def report(sandbox: Sandbox, *, with_arrivals: bool) -> Report:
    """Return the accounts of all calls, and the totals."""
    calls = sandbox.world.state.calls
    accounts = {id_: account(sandbox, call, with_arrivals=with_arrivals) for id_, call in calls.items()}
    return Report(summary(sandbox), accounts, _unknown(sandbox))


def _unknown(sandbox: Sandbox) -> dict[str, Tally]:
    calls, by_call = sandbox.world.state.calls, sandbox.ledger.entries.by_call
    return {id_: tally for id_, tally in by_call.items() if id_ not in calls}
