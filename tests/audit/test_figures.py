"""Metrics of pushes that name invented institutions, in a real Redis."""

import pytest
from redis.asyncio import Redis

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.snapshot import Snapshot
from callkeeper.calls.quiet_outages import NOT_OURS
from callkeeper.calls.store.keys import Keys
from callkeeper.service.push_event import PushEvent
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import Asgi

INVENTED = 40


@pytest.mark.parametrize("kind", ["CallStart", "CallEnd"])
async def test_invented_institutions_share_one_label(kind: str, sandbox_asgi: Asgi, redis: Redis) -> None:
    """Invented institutions in pushes share one label, so that they cannot fill Redis with metrics."""
    rig = Rig(sandbox_asgi, redis)
    for n in range(INVENTED):
        event = PushEvent(type=kind, institution_key=f"invented-{n}", voice_id=f"v-{n}")
        await rig.intake.record(event, event_id=f"ev-{n}")
    await rig.run(90)
    await rig.counted()
    stored = await rig.redis.hgetall(Keys().figures)
    assert [name for name in stored if b"invented" in name] == []
    assert Snapshot.parse(stored).count(figure.HINTS_DROPPED, institution=NOT_OURS) == INVENTED
