"""Details say that a call has ended, and then that it goes on: one leg ended (a transfer), or one answer was wrong."""

from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import Asgi

H = Happening
IMPOSTOR = H(Kind.MFA_VALIDATED, 20), H(Kind.MISMATCH, 60), H(Kind.END, 900)


class OnceEnded(httpx.AsyncBaseTransport):
    """Answers as another transport, but one answer, more than 30 s after the start, says that the call has ended."""

    def __init__(self, stage: Asgi) -> None:
        self.stage, self.began, self.is_said = stage, stage.clock.now, False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        answer = await self.stage.transport.handle_async_request(request)
        await answer.aread()
        is_late = (self.stage.clock.now - self.began).total_seconds() > 30
        if self.is_said or not is_late or not request.url.path.endswith("/details"):
            return answer
        self.is_said, body = True, answer.json()
        body["phoneCall"]["callEnded"] = body["callEnded"] = True
        return httpx.Response(200, json=body)


@pytest.mark.parametrize("how", ["a transfer: CallEnded, then GrabbedCall", "one wrong callEnded"])
async def test_nobody_is_enrolled_while_the_service_says_that_the_call_goes_on(
    sandbox_asgi: Asgi, redis: Redis, how: str
) -> None:
    """All later reads, also the two of the "final analysis", say that the call lives. At 60 s it shows another voice."""
    leg: tuple[Happening, ...] = ()
    transport: Any = OnceEnded(sandbox_asgi)
    if how.startswith("a transfer"):
        transport, leg = None, (H(Kind.STATUS, 30, "CallEnded"), H(Kind.STATUS, 33, "GrabbedCall"))
    rig = Rig(sandbox_asgi, redis, transport=transport)
    call = rig.stage.call(*IMPOSTOR, *leg)
    await rig.push(call)
    await rig.run(120)
    assert call.ended_at is None
    assert "enroll" not in rig.ledger(call)


async def test_call_that_goes_on_is_watched_on(sandbox_asgi: Asgi, redis: Redis) -> None:
    """13 checks are unused, the queue lists the call, and nobody learns that the voice is green from 60 s on."""
    rig = Rig(sandbox_asgi, redis, transport=OnceEnded(sandbox_asgi))
    call = rig.stage.call(H(Kind.GREEN, 60), H(Kind.END, 900))
    await rig.push(call)
    await rig.run(300)
    record = await rig.record(call)
    assert not record.is_settled, (record.life.reason, rig.ledger(call))
