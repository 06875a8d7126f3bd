"""The incidents as lines of the doctor, and which other lines only follow from them.

The board judges by the same incidents, so both name the same cause, and neither names what follows from it.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from callkeeper.app.doctor.finding import OUTSIDE, Finding, Severity, Topic, fault, warning
from callkeeper.app.redis_query import redis_now
from callkeeper.calls.incident import Incident, IncidentKind, Weight, merged
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.store.breakers import ACCOUNT
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_errors import ErrorArea, parse_errors
from callkeeper.calls.store.writable import REFUSALS, WriteRefusal, refusal_in
from callkeeper.service.network_failure import network_failure

_TOPICS: Final = {
    IncidentKind.REDIS_REPLACED: Topic.REDIS,
    IncidentKind.NOT_STARTED: Topic.SETTINGS,
    IncidentKind.LOGIN_REFUSED: Topic.LOGIN,
    IncidentKind.SERVICE_AWAY: Topic.BREAKER,
    IncidentKind.WORKER_CUT_OFF: Topic.WORKERS,
    IncidentKind.RATE_LIMITED: Topic.BREAKER,
    IncidentKind.SERVICE_SLOW: Topic.SERVICE,
    IncidentKind.INSTITUTION_AWAY: Topic.BREAKER,
    IncidentKind.INSTITUTION_REFUSED: Topic.BREAKER,
    IncidentKind.LISTING_REFUSED: Topic.QUEUE,
    IncidentKind.STANDING_UNCONFIRMED: Topic.INSTITUTIONS,
    IncidentKind.LIMIT_TOO_LOW: Topic.BUDGET,
    IncidentKind.PUSHES_REFUSED: Topic.PUSHES,
    IncidentKind.NO_PUSH: Topic.PUSHES,
    IncidentKind.RECEIVER_AWAY: Topic.OUTCOMES,
    IncidentKind.ARCHIVE_AWAY: Topic.ARCHIVE,
    IncidentKind.RULES_DIFFER: Topic.RULES,
    IncidentKind.SETTINGS_DIFFER: Topic.SETTINGS,
    IncidentKind.CLOCKS_APART: Topic.CLOCK,
    IncidentKind.VERSIONS_DIFFER: Topic.RELEASES,
    IncidentKind.NO_RESULTS: Topic.SERVICE,
    IncidentKind.NOT_LISTED: Topic.QUEUE,
    IncidentKind.REQUESTS_FAIL: Topic.SERVICE,
    IncidentKind.WORKER_VANISHED: Topic.WORKERS,
    IncidentKind.POLICIES_UNKNOWN: Topic.RULES,
    IncidentKind.ASSUMPTION_WRONG: Topic.SERVICE,
    IncidentKind.NOT_ACTIVE: Topic.INSTITUTIONS,
}
"""The incidents that no other line of the doctor covers."""

_OF_AN_OUTAGE: Final = frozenset({Topic.LOGIN, Topic.INSTITUTIONS, Topic.QUEUE, Topic.SERVICE, Topic.DUE_CALLS})
_OF_AN_INSTITUTION: Final = frozenset({Topic.QUEUE, Topic.INSTITUTIONS})
_FOLLOWS: Final = {
    IncidentKind.REDIS_REFUSES: frozenset({Topic.WEB, Topic.WORKERS, Topic.DUE_CALLS}),  # none can report
    IncidentKind.NO_WORKER: frozenset({Topic.DUE_CALLS}),
    IncidentKind.NO_WEB: frozenset({Topic.PUSHES}),
    IncidentKind.LOGIN_REFUSED: _OF_AN_OUTAGE,
    IncidentKind.SERVICE_AWAY: _OF_AN_OUTAGE | {Topic.PUSHES},
    IncidentKind.RATE_LIMITED: frozenset({Topic.QUEUE}),
    IncidentKind.SERVICE_SLOW: frozenset({Topic.DUE_CALLS}),
    IncidentKind.INSTITUTION_AWAY: _OF_AN_INSTITUTION,
    IncidentKind.INSTITUTION_REFUSED: _OF_AN_INSTITUTION,
    IncidentKind.LISTING_REFUSED: frozenset({Topic.QUEUE}),
    IncidentKind.NOT_ACTIVE: frozenset({Topic.INSTITUTIONS}),
    IncidentKind.STANDING_UNCONFIRMED: frozenset({Topic.INSTITUTIONS}),
    IncidentKind.PUSHES_REFUSED: frozenset({Topic.PUSHES}),
    IncidentKind.NO_PUSH: frozenset({Topic.PUSHES}),
}
"""Lines that say the same as an incident, or follow from it."""


async def current_incidents(redis: Redis, keys: Keys) -> list[Incident]:
    """Return what the board shows, equal incidents of many institutions as one."""
    return merged(incidents_of(await SignalReader(redis, keys).read()))


async def provider_findings(redis: Redis, keys: Keys) -> list[Finding]:
    """Report the identity provider's last error, until it answers again."""
    client = in_bytes(redis)
    errors = parse_errors([await client.hgetall(keys.errors)], await redis_now(redis))
    error = errors.get((ErrorArea.PROVIDER, ACCOUNT))
    if error is None:
        return []
    detail = f"the identity provider failed, since {error.first_at:%H:%M:%S} UTC; last error: {error.words}"
    remedy = "nobody can log in there meanwhile: look at the provider, CALLKEEPER_OIDC_ISSUER and CALLKEEPER_CA"
    return [warning(Topic.DASHBOARD, detail, remedy, about="identity provider")]


def incident_findings(incidents: Iterable[Incident]) -> list[Finding]:
    """Return a line for each incident that no other line covers."""
    return [_finding(incident) for incident in incidents if incident.kind in _TOPICS]


def _finding(incident: Incident) -> Finding:
    since = f", since {incident.since:%H:%M:%S} UTC" if incident.since is not None else ""
    last_error = f"; last error: {incident.last_error}" if incident.last_error else ""
    known = f" ({incident.acknowledged.words})" if incident.acknowledged is not None else ""
    build = fault if incident.weight is Weight.PAGE else warning
    detail = f"{incident.title}{since}{last_error}{known}"
    return build(_TOPICS[incident.kind], detail, incident.advice, about=incident.institution_key)


def follows(finding: Finding, incidents: Iterable[Incident]) -> bool:
    """Tell whether a line only says what follows from an incident, or repeats it."""
    if finding.severity is Severity.OK or finding.about == OUTSIDE:
        return False
    return any(_follows(finding, incident) for incident in incidents)


def _follows(finding: Finding, incident: Incident) -> bool:
    if finding.topic not in _FOLLOWS.get(incident.kind, ()):
        return False
    if (
        incident.kind in {IncidentKind.SERVICE_AWAY, IncidentKind.NO_WEB}
        and finding.what == Topic.PUSHES
        and finding.severity is Severity.FAULT
    ):
        return False  # a wrong header is a cause of its own
    concerned = {incident.institution_key, *incident.institutions} - {""}
    return not concerned or finding.about in concerned or (finding.topic is Topic.PUSHES and not finding.about)


async def guarded(topic: Topic, section: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
    """Yield a section's lines. If Redis or the network ends it, that is one more line, and the next section follows."""
    try:
        async for finding in section:
            yield finding
    except ResponseError as error:
        refusal = refusal_in(error)
        words = REFUSALS[refusal]
        what = "refuses a command" if refusal is WriteRefusal.OTHER else f"refuses: {words.what}"
        yield fault(topic, f"could not be checked: Redis {what}", words.advice)
    except (RedisError, OSError) as error:
        remedy = "run the doctor again; if it lasts, see the lines about Redis and the network"
        yield fault(topic, f"could not be checked: {network_failure(error)}", remedy)
