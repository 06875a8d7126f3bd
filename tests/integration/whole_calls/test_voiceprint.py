"""A member was enrolled before, as the service shows while the call lives, and not in the record after the end."""

from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import Asgi

H = Happening


class Voiceprint(httpx.AsyncBaseTransport):
    """Answers as another transport, with a flag of an earlier enrollment while the call lives."""

    def __init__(self, inner: httpx.AsyncBaseTransport, then: bool | None, flag: str) -> None:
        self.inner, self.then, self.flag = inner, then, flag

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        answer = await self.inner.handle_async_request(request)
        await answer.aread()
        body: Any = answer.json() if request.url.path.endswith("/details") else {}
        if not body.get("phoneCall"):
            return answer
        shown = self.then if body["phoneCall"]["callEnded"] else True
        body["phoneCall"][self.flag] = body[self.flag] = shown
        return httpx.Response(200, json=body)


@pytest.mark.parametrize(
    ("flag", "then"),
    [
        ("isVoiceEnrolled", False),
        ("isVoiceEnrolled", None),
        ("isEnrolled", False),
        ("isAccountEnrolled", False),
        ("isBehaviorEnrolled", False),
        ("isDeviceEnrolled", False),
        ("hasVoiceMatchValidationRule", False),
    ],
)
async def test_member_who_was_enrolled_before_and_is_not_recognised_asks_a_person(
    sandbox_asgi: Asgi, redis: Redis, flag: str, then: bool | None
) -> None:
    """15 checks showed a sign that a result of the voice is to come, and none for the caller with the stolen SIM."""
    rig = Rig(sandbox_asgi, redis, transport=Voiceprint(sandbox_asgi.transport, then, flag))
    call = rig.stage.call(H(Kind.MFA_VALIDATED, 20), H(Kind.END, 100))
    await rig.push(call)
    await rig.run(200)
    assert "enroll" not in rig.ledger(call)
