"""Recovery from an outage with real processes, while calls keep coming."""

import os
import time

from tests.harness.processes import Stack, end
from tests.waiting import until

LASTS_S = float(os.environ.get("TEST_OUTAGE_S", "15"))
"""How long the service is down; at night ten minutes."""


def test_outage_of_the_service_is_over_within_ten_seconds(lonely: Stack) -> None:
    """If the service answered 503 for a while, the next call is assigned within 10 s, and earlier ones within 30 s."""
    before = lonely.call(end(3600))
    until(lambda: lonely.arrived(before).get("assign"), 10, "the assign before the outage")
    lonely.fault("*", "answer", status=503)
    began_s = time.monotonic()
    during = []
    while time.monotonic() - began_s < LASTS_S:
        during.append(lonely.call(end(3600)))
        time.sleep(2)
    lonely.lift_faults()
    after = lonely.call(end(60))
    until(lambda: lonely.arrived(after).get("assign"), 10, "the assign of the first call after the outage")
    until(lambda: all(lonely.arrived(call).get("assign") for call in during), 30, "the calls of the outage")
