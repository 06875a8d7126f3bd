"""The incidents as lines of the doctor, and which other lines only follow from them.

The board judges by the same incidents, so both name the same cause, and neither names what follows from it.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from callkeeper.app.doctor.finding import OUTSIDE, Finding, Severity, Topic, fault, warning
from callkeeper.app.redis_query import redis_now
from callkeeper.calls.causes import IncidentKind, Weight
from callkeeper.calls.incident import Incident, merged
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.store.breakers import ACCOUNT
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_errors import ErrorArea, parse_errors
from callkeeper.calls.store.writable import REFUSALS, WriteRefusal, refusal_in
from callkeeper.service.network_failure import network_failure

_OF_AN_OUTAGE: Final = frozenset({Topic.LOGIN, Topic.INSTITUTIONS, Topic.QUEUE})
_FOLLOWS: Final = {
    IncidentKind.NO_WEB: frozenset({Topic.PUSHES}),
    IncidentKind.ACCOUNT_SHARED: frozenset({Topic.WORKERS}),
    IncidentKind.LOGIN_REFUSED: _OF_AN_OUTAGE,
    IncidentKind.SERVICE_AWAY: _OF_AN_OUTAGE | {Topic.PUSHES},
    IncidentKind.RATE_LIMITED: frozenset({Topic.QUEUE}),
    IncidentKind.INSTITUTION_FAILS: frozenset({Topic.QUEUE}),
    IncidentKind.NOT_ACTIVE: frozenset({Topic.QUEUE, Topic.INSTITUTIONS}),
    IncidentKind.PUSHES_REFUSED: frozenset({Topic.PUSHES}),
    IncidentKind.NO_PUSH: frozenset({Topic.PUSHES}),
}
"""Lines of the doctor's own checks that say the same as an incident, or follow from it."""


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


def incident_finding(incident: Incident) -> Finding:
    """Return the line of an incident."""
    since = f", since {incident.since:%H:%M:%S} UTC" if incident.since is not None else ""
    last_error = f"; last error: {incident.last_error}" if incident.last_error else ""
    known = f" ({incident.acknowledged.words})" if incident.acknowledged is not None else ""
    build = fault if incident.weight is Weight.PAGE else warning
    about = f"{incident.kind.replace('_', ' ')} {incident.institution_key}".strip()
    return build(Topic.INCIDENT, f"{incident.title}{since}{last_error}{known}", incident.advice, about=about)


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
