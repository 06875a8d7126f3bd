"""A service that mixes calls up. It stands between a worker and the stand-in."""

import json
from dataclasses import dataclass, field

import httpx


@dataclass
class MixedUp(httpx.AsyncBaseTransport):
    """A service that answers about one call with the record of another.

    ``mix`` holds, for an id that is asked about, the id whose record is sent instead and how many times; ``only`` is the
    kind of request that is answered so, if not all are. ``alternates`` holds voice ids and the alternate ids that details
    of them show in an event of the provider. ``is_nameless``: no details give a voice id.
    """

    inner: httpx.AsyncBaseTransport
    mix: dict[str, tuple[str, int]] = field(default_factory=dict)
    met: int = 0
    only: str = ""
    alternates: dict[str, str] = field(default_factory=dict)
    is_nameless: bool = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on. If told to, answer with another call's record or alternate id."""
        response = await self._answer(request)
        if self.is_nameless and request.url.path.endswith("/details"):
            body = response.json()
            return httpx.Response(
                200, json=body | {"voiceId": None, "phoneCall": body["phoneCall"] | {"voiceId": None}}
            )
        body = response.json() if self.alternates and request.url.path.endswith("/details") else {}
        alternate = self.alternates.get((body.get("phoneCall") or {}).get("voiceId", ""))
        if alternate is None:
            return response
        body["phoneCall"]["vendorEvents"] = [{"call": {"correlationAltId": alternate}}]
        return httpx.Response(200, json=body)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        kind = _kind_of(request)
        is_assign = kind == "assign"
        asked = json.loads(request.content)["voiceId"] if is_assign else request.url.path.split("/")[-2]
        other, times = self.mix.get(asked, ("", 0))
        response = await self.inner.handle_async_request(request)
        await response.aread()
        if not times or not kind or self.only not in {"", kind}:
            return response
        self.mix[asked] = (other, times - 1)
        self.met += 1
        if is_assign:
            return httpx.Response(200, json=response.json() | {"voiceId": other})
        path = request.url.path.replace(asked, other) + "?checkVoiceAuthentication=false"
        about = httpx.Request("GET", request.url.join(path), headers=request.headers)
        answer = await self.inner.handle_async_request(about)
        await answer.aread()
        return answer


def _kind_of(request: httpx.Request) -> str:
    if request.url.path.endswith("/details"):
        return "check" if request.url.params["checkVoiceAuthentication"] == "true" else "read"
    return "assign" if request.url.path.endswith("/assign") else ""
