"""Posts outcomes to the configured webhook address, signed as in Standard Webhooks.

The operator sets the address, and a bank's receiver is in its own network: it is posted to wherever the name leads.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from http.cookiejar import DefaultCookiePolicy
from time import monotonic
from typing import Final
from urllib.parse import quote, urlsplit

import aiohttp
import httpx
import msgspec
from aiohttp.abc import AbstractResolver
from aiohttp.connector import Connection
from httpx_aiohttp import AiohttpTransport
from standardwebhooks import Webhook

from callkeeper.calls.outcome_messages import Message
from callkeeper.service import Secret
from callkeeper.service.network_failure import network_failure
from callkeeper.service.proxy import Proxy
from callkeeper.service.retry_after import retry_after_s
from callkeeper.service.tracing import SpanKind, span, trace_headers
from workers.webhook_answer_excerpt import beginning_of, parts_of

DEADLINE_S: Final = 5.0
"""For one post in seconds, from name resolution to the answer's status. Well below the lease."""

LONGEST_PAUSE_S: Final = 3600.0
"""The longest ``Retry-After`` that is followed, in seconds."""


class Answer(Enum):
    """The result of a post."""

    TAKEN = "taken"
    DECLINED = "declined"  # the receiver is up, but refuses this message
    AWAY = "away"  # no answer, a temporary refusal, or 410: it wants no messages any more


@dataclass(frozen=True, slots=True)
class Posted:
    """The result of a post: status or error, duration, and how long the receiver asks us to wait.

    ``said`` is the beginning of the answer's text.
    """

    answer: Answer
    status: int | None
    error: str | None
    took_ms: int
    retry_after_s: float = 0.0
    said: str = ""


class _WithoutReason(aiohttp.ClientResponse):
    """An answer without its reason phrase: the transport raises if that is not UTF-8."""

    async def start(self, connection: Connection) -> "_WithoutReason":
        """Read status and headers."""
        await super().start(connection)
        self.reason = None
        return self


_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, slots=True)
class WebhookClient:
    """Posts to one webhook address."""

    url: str
    webhooks: tuple[Webhook, ...]
    """One for each valid secret. The post carries a signature with each."""
    client: httpx.AsyncClient
    now: Callable[[], datetime]
    deadline_s: float = DEADLINE_S

    @classmethod
    def open(
        cls,
        url: str,
        secrets: Sequence[Secret],
        *,
        resolver: AbstractResolver | None = None,
        ca_file: str | None = None,
        proxy: Proxy | None = None,
    ) -> "WebhookClient":
        """Prepare to post. The first post opens the connection.

        Args:
            url: An http or https address.
            secrets: Each is ``whsec_`` and the key in base64. Two while one is being rotated.
            resolver: Resolves names; None: the system's resolver.
            ca_file: PEM file of certificate authorities to trust besides the system's.
            proxy: The outgoing proxy.
        """
        tls = ssl.create_default_context()
        if ca_file is not None:
            tls.load_verify_locations(ca_file)

        def session() -> aiohttp.ClientSession:
            connector = aiohttp.TCPConnector(limit=32, resolver=resolver, ssl=tls)
            return aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                response_class=_WithoutReason,
                trust_env=False,
                auto_decompress=False,
            )

        transport = AiohttpTransport(
            trust_env=False,
            client=session,
            proxy=None if proxy is None else httpx.Proxy(proxy.address, headers=proxy.headers),
        )
        client = httpx.AsyncClient(
            transport=transport,
            follow_redirects=False,
            trust_env=False,
            timeout=None,  # noqa: S113  (the deadline is around the whole exchange)
        )
        # It has a jar of its own, and cannot send a cookie that is not ASCII: no later post would leave.
        client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
        webhooks = tuple(Webhook(secret.reveal()) for secret in secrets)
        return cls(url, webhooks, client, lambda: datetime.now(UTC))

    @property
    def place(self) -> str:
        """Return the receiver's scheme, host and port only, because user, path and query may hold a secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    async def post(self, message_id: str, message: Message) -> Posted:
        """Post one message under its id. The answer's body decides nothing; its beginning is kept for people.

        Of an id only visible ASCII may be in a header, so the rest is percent-encoded there.
        """
        host = urlsplit(self.url).hostname or ""
        with span("POST outcome", SpanKind.CLIENT, method="POST", host=host, message=message.type) as posting:
            posted = await self._post(message_id, message)
            if posted.status is not None:
                posting.note(status=posted.status)
            if posted.answer is not Answer.TAKEN:
                posting.fail(posted.error or str(posted.status))
            return posted

    async def _post(self, message_id: str, message: Message) -> Posted:
        message_id = quote(message_id, safe=_VISIBLE)
        body, now = msgspec.json.encode(message), self.now()
        signatures = (webhook.sign(message_id, now, body.decode()) for webhook in self.webhooks)
        headers = {
            "content-type": "application/json",
            "user-agent": "callkeeper",
            "webhook-id": message_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(signatures),
            **trace_headers(),
        }
        began_s, took_ms = monotonic(), None
        status, error, wait_s, said = None, None, None, ""
        try:
            async with (
                asyncio.timeout(self.deadline_s),
                self.client.stream("POST", self.url, content=body, headers=headers) as answer,
            ):
                status, wait_s = answer.status_code, retry_after_s(answer.headers, LONGEST_PAUSE_S)
                took_ms = _ms_since(began_s)
                said = await beginning_of(answer, parts_of(self.url))
        except Exception as problem:  # noqa: BLE001  (an answer can make libraries raise anything: post again later)
            error = network_failure(problem) if status is None else None
        judged = Answer.AWAY if status is None else _judge(status)
        took_ms = _ms_since(began_s) if took_ms is None else took_ms
        return Posted(judged, status, error, took_ms, wait_s or 0.0, said)

    async def aclose(self) -> None:
        await self.client.aclose()


def _ms_since(began_s: float) -> int:
    return round((monotonic() - began_s) * 1000)


def _judge(status: int) -> Answer:
    """Classify a status. 410 means that the receiver is gone (Standard Webhooks): treated like one that is down."""
    if 200 <= status < 300:
        return Answer.TAKEN
    return Answer.DECLINED if 300 <= status < 500 and status not in {408, 410, 425, 429} else Answer.AWAY
