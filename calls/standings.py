"""Asking the service for the standing of institutions, the same way for workers and for the doctor.

The list is used where it can be read. Every key that it does not answer for is asked for by itself, so that one key that
fails concerns its institution only.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from calls.institution import Standing
from reseller import Institution, InstitutionSummary, Reseller, ResellerError, ServiceUnavailable

FAILURES_THAT_TELL = 3
"""Keys in a row without any answer after which the rest is not asked for: the service is away."""


@dataclass(slots=True)
class Standings:
    """What the service said: the standing of each institution, and why some of it could not be read."""

    known: dict[str, Standing] = field(default_factory=dict)
    unreadable: dict[str, ResellerError] = field(default_factory=dict)
    list_error: ResellerError | None = None


async def ask_standings(service: Reseller, keys: Iterable[str]) -> Standings:
    """Ask for the standing of institutions, and of all others that the list happens to name.

    Spec: Endpoints 8 and 10. Assumed: the wrapper of the list is not shown; see `reseller.listing`.
    """
    asked = Standings()
    try:
        asked.known = {summary.key: standing_of(summary) for summary in await service.institutions() if summary.key}
    except ResellerError as error:
        asked.list_error = error
    silent = 0
    for key in sorted(set(keys) - asked.known.keys()):
        try:
            asked.known[key] = standing_of(await service.institution(key), key)
            silent = 0
        except ResellerError as error:
            asked.unreadable[key] = error
            silent = silent + 1 if isinstance(error, ServiceUnavailable) else 0
            if silent == FAILURES_THAT_TELL and not asked.known:
                break
    return asked


def standing_of(summary: InstitutionSummary | Institution, key: str | None = None) -> Standing:
    """Return what we keep of an institution; ``key`` is the one that it was asked for by."""
    return Standing(
        key=key or summary.key or "",
        name=summary.name,
        status=summary.status,
        has_voice_auth=summary.has_voice_auth,
        is_test_mode=summary.is_test_mode,
    )
