"""The observer of a client is told of every request, once, with everything that belongs to it."""

from collections.abc import Awaitable, Callable

import httpx
import pytest

from callkeeper.service import MemoryTokenStore, OutcomeUnknown, ServiceUnavailable, TokenLapsed
from callkeeper.service.client import Reseller
from callkeeper.service.endpoints import Endpoint
from tests.unit.service.service import Clock, Service, reseller_on

Told = tuple[str, str, str | None]
REQUESTS: dict[str, Callable[[Reseller], Awaitable[object]]] = {
    "queue": lambda client: client.queue("cu-1", continue_from=0, page_size=10),
    "details": lambda client: client.details("cu-1", "v-1", check=False, requested_by="bot"),
    "assign": lambda client: client.assign("cu-1", person_id="p-1", voice_id="v-1", requested_by="bot"),
    "reject-voice": lambda client: client.reject_voice("cu-1", "v-1", requested_by="bot"),
}


def observed(service: Service) -> tuple[Reseller, list[Told]]:
    """Return a client, and what its observer is told."""
    told: list[Told] = []
    clock = Clock()

    async def observe(endpoint: Endpoint, institution_key: str, error: BaseException | None, seconds: float) -> None:
        told.append((endpoint.name, institution_key, None if error is None else type(error).__name__))
        assert seconds == 0.0

    return reseller_on(service, MemoryTokenStore(clock), clock, observe=observe), told


@pytest.mark.parametrize("name", REQUESTS)
async def test_observer_is_told_of_every_request_after_the_login_it_needed(name: str) -> None:
    """A request is told once, with its institution; its login is a request of its own, of no institution."""
    answer = {"success": True, "voiceId": "v-1", "phoneCall": {"voiceId": "v-1"}, "phoneCalls": []}
    client, told = observed(Service(reply=lambda _: httpx.Response(200, json=answer)))
    await REQUESTS[name](client)
    assert told == [("token", "", None), (name, "cu-1", None)]


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("queue", 500, ServiceUnavailable),
        ("assign", 500, OutcomeUnknown),
        ("reject-voice", 401, TokenLapsed),
    ],
)
async def test_observer_is_told_of_the_error_that_the_caller_gets(
    name: str, status: int, error: type[Exception]
) -> None:
    """The error is the one that is raised: of an effect the outcome, not what the transport said."""
    client, told = observed(Service(reply=lambda _: httpx.Response(status, json={})))
    with pytest.raises(error):
        await REQUESTS[name](client)
    assert told[1:] == [(name, "cu-1", error.__name__)]
