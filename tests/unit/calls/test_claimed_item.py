"""The lease of a claim, jumps of Redis's clock, and how late workers are."""

from datetime import timedelta

import pytest

from callkeeper.calls.claimed_item import Lease
from callkeeper.service.config import REQUEST_DEADLINE_S


@pytest.mark.parametrize("request_s", [0.5, REQUEST_DEADLINE_S, 10.0, 60.0])
def test_lease_covers_the_request_and_the_freeze_before_it(request_s: float) -> None:
    """From asking for the booking to the end of the request the lease holds, however long a request may take."""
    lease = Lease(request_s)
    assert lease.first_byte_s > 0
    assert lease.first_byte_s + request_s < lease.seconds == lease.ms / 1000
    assert lease.hold >= timedelta(seconds=lease.seconds)
    assert lease.finish_s > 2 * request_s
