"""What a worker moves calls with: its requests cannot outlive its leases."""

import time

import pytest
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.claimed_item import Lease
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.last_listing import Listings
from callkeeper.service import MemoryTokenStore, Secret, ServiceConfig
from callkeeper.service.client import Reseller
from workers.claimed_call import Tools
from workers.service_clock import ServiceClock
from workers.service_gate import ServiceGate


def config(deadline_s: float) -> ServiceConfig:
    """Return a service whose requests may take so long."""
    secret = Secret("secret-1")
    return ServiceConfig(
        base_url="http://127.0.0.1:9", access_token=secret, email=secret, password=secret, deadline_s=deadline_s
    )


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
