"""What a worker is built from: its lease follows from the deadline of one request."""

from datetime import timedelta

import pytest
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.claimed_item import Lease
from callkeeper.service import ServiceConfig
from callkeeper.service.config import REQUEST_DEADLINE_S
from tests.integration.workers.test_claimed_call import config
from tests.workers_built import worker_runtime
from workers.claimed_call import Tools


def tools_of_a_worker(redis_url: str, deadline_s: float, log: FilteringBoundLogger) -> Tools:
    """Return what a worker moves calls with, built the way production builds it."""
    runtime = worker_runtime(redis_url, config(deadline_s), log)

    async def build() -> Tools:
        return runtime._tools()[0]

    try:
        return runtime._runner.run(build())
    finally:
        runtime.close()


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
