"""A member has a voiceprint, as the service shows while the call lives, and not in the record after the end."""

from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import Asgi

H = Happening


class Voiceprint(httpx.AsyncBaseTransport):
    """Answers as another transport, with `isVoiceEnrolled` while the call lives."""

    def __init__(self, inner: httpx.AsyncBaseTransport, then: bool | None) -> None:
        self.inner, self.then = inner, then

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        answer = await self.inner.handle_async_request(request)
        await answer.aread()
        body: Any = answer.json() if request.url.path.endswith("/details") else {}
        if not body.get("phoneCall"):
            return answer
        shown = self.then if body["phoneCall"]["callEnded"] else True
        body["phoneCall"]["isVoiceEnrolled"] = body["isVoiceEnrolled"] = shown
        return httpx.Response(200, json=body)


@pytest.mark.parametrize("then", [False, None])
async def test_voiceprint_that_did_not_recognise_the_caller_asks_a_person(
    sandbox_asgi: Asgi, redis: Redis, then: bool | None
) -> None:
    """15 checks showed a voiceprint and no result for the caller with the stolen SIM."""
    rig = Rig(sandbox_asgi, redis, transport=Voiceprint(sandbox_asgi.transport, then))
    call = rig.stage.call(H(Kind.MFA_VALIDATED, 20), H(Kind.END, 100))
    await rig.push(call)
    await rig.run(200)
    assert "enroll" not in rig.ledger(call)
