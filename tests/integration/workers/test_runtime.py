"""The lease and everything that depends on it follow from the deadline of one request."""

import time
from datetime import timedelta

import pytest
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.claimed_item import Lease
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_listing import Listings
from callkeeper.service import MemoryTokenStore, Secret, ServiceConfig
from callkeeper.service.client import Reseller
from callkeeper.service.config import REQUEST_DEADLINE_S
from workers.claimed_call import Tools
from workers.runtime import WorkerRuntime
from workers.service_clock import ServiceClock
from workers.service_gate import ServiceGate


def config(deadline_s: float) -> ServiceConfig:
    """Return a service whose requests may take so long."""
    secret = Secret("secret-1")
    return ServiceConfig(
        base_url="http://127.0.0.1:9", access_token=secret, email=secret, password=secret, deadline_s=deadline_s
    )


def tools_of_a_worker(redis_url: str, deadline_s: float, log: FilteringBoundLogger) -> Tools:
    """Return what a worker moves calls with, built the way production builds it."""
    runtime = WorkerRuntime(
        Redis.from_url(redis_url),
        service=config(deadline_s),
        book=load_rules(None),
        requested_by=lambda _: "bot",
        only=None,
        reconcile_s=5,
        queue_page=500,
        log=log,
        figures=Figures(),
        keys=Keys(),
    )

    async def build() -> Tools:
        return runtime._tools()[0]

    try:
        return runtime._runner.run(build())
    finally:
        runtime.close()


@pytest.mark.parametrize("request_s", [0.5, REQUEST_DEADLINE_S, 10.0, 60.0])
def test_lease_covers_the_request_and_the_freeze_before_it(request_s: float) -> None:
    """From asking for the booking to the end of the request the lease holds, however long a request may take."""
    lease = Lease(request_s)
    assert lease.first_byte_s > 0
    assert lease.first_byte_s + request_s < lease.seconds == lease.ms / 1000
    assert lease.hold >= timedelta(seconds=lease.seconds)
    assert lease.finish_s > 2 * request_s


@pytest.mark.parametrize("deadline_s", [REQUEST_DEADLINE_S, 10.0])
def test_worker_derives_lease_and_hold_from_the_deadline(
    redis_url: str, log: FilteringBoundLogger, deadline_s: float
) -> None:
    """The deadline of requests is set in one place: the lease and the wait after a new Redis follow it."""
    tools = tools_of_a_worker(redis_url, deadline_s, log)
    assert tools.store.lease == Lease(deadline_s)
    assert tools.store.lease.seconds == deadline_s + 2
    assert tools.store.lease.hold == timedelta(seconds=deadline_s + 2)


def test_default_deadline_is_that_of_the_default_lease() -> None:
    """A configuration and a lease that are told nothing use the same number."""
    assert config(REQUEST_DEADLINE_S).deadline_s == ServiceConfig.__dataclass_fields__["deadline_s"].default
    assert Lease().request_s == REQUEST_DEADLINE_S


@pytest.mark.parametrize("deadline_s", [5.9, 10.0])
async def test_client_with_another_deadline_than_the_lease_is_refused(
    redis: Redis, log: FilteringBoundLogger, deadline_s: float
) -> None:
    """A worker does not start with requests that may outlive its lease."""
    store = Store(redis, lease=Lease(6.0))
    reseller = Reseller(config(deadline_s), MemoryTokenStore())
    with pytest.raises(ValueError, match="leases are made for 6 s"):
        Tools(
            store,
            Listings(redis),
            reseller,
            ServiceGate(store, log, Figures()),
            ServiceClock(time.monotonic),
            load_rules(None),
            lambda _: "bot",
            time.monotonic,
            log,
        )
