"""Posts outcomes to the one address that wants them, signed as Standard Webhooks has it.

Whoever sets the address could point it at a machine inside: unless that is allowed, a connection is made to public addresses
only. That is asked of the very address that is connected to, after the name was resolved.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final

import aiohttp
import httpx
import msgspec
from aiohttp.abc import AbstractResolver
from httpx_aiohttp import AiohttpTransport
from standardwebhooks import Webhook

from calls.outcomes import CallOutcome
from calls.record import Call
from calls.store.keys import CallId
from reseller import Secret
from reseller.exchange import trace_headers

DEADLINE_S: Final = 5.0
"""For one post, from name resolution to the answer's status: well within a lease."""


_NOT_PUBLIC_IPV4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this machine
            "100.64.0.0/10",  # shared by customers of one carrier
            "168.63.129.16/32",  # one cloud's own service for the machines in it; looks public
            "192.0.0.0/24",  # protocol assignments
            "192.88.99.0/24",  # relays of 6to4
            "198.18.0.0/15",  # benchmarks
            "224.0.0.0/3",  # multicast, reserved, broadcast
        ),
    )
)
"""Besides what ``is_global`` knows, which differs between versions of Python."""

_PUBLIC_IPV6: Final = IPv6Network("2000::/3")
"""The only part of IPv6 that is given to hosts of the internet."""

_NOT_PUBLIC_IPV6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments; Teredo, which holds an IPv4 address
            "2001:db8::/32",  # examples
            "2002::/16",  # 6to4, which holds an IPv4 address
            "3fff::/20",  # examples
        ),
    )
)

_NAT64: Final = IPv6Network("64:ff9b::/96")
"""How a network without IPv4 reaches a public IPv4 address, which is the last 32 bits."""


class Answer(Enum):
    """What came of a post."""

    TAKEN = "taken"
    DECLINED = "declined"  # the receiver answers, and does not want this one
    AWAY = "away"  # nobody answers, or only that it cannot now


class AddressRefused(OSError):
    """The name leads to an address that outcomes must not be sent to."""


class OutcomeData(msgspec.Struct, frozen=True, kw_only=True):
    """What an outcome says: ids, names of reasons, no phone number and no name of a person."""

    institution_key: str
    voice_id: str
    alternate_id: str | None
    person_id: str | None
    reason: str | None
    effect: str | None
    validation_type: str | None
    operator: str | None
    rule: str | None
    forbidden: tuple[str, ...]
    checks_used: int


class Message(msgspec.Struct, frozen=True):
    """The body of a post."""

    type: str
    timestamp: datetime
    data: OutcomeData


@dataclass(frozen=True, slots=True)
class WebhookClient:
    """Where outcomes go."""

    url: str
    webhook: Webhook
    client: httpx.AsyncClient
    now: Callable[[], datetime]

    @classmethod
    def open(
        cls,
        url: str,
        secret: Secret,
        *,
        may_be_private: bool,
        resolver: AbstractResolver | None = None,
    ) -> "WebhookClient":
        """Prepare to post; the first post connects.

        Args:
            url: An http or https address.
            secret: ``whsec_`` and the key in base64.
            may_be_private: Whether the address may be this machine or one of a private network.
            resolver: Finds the addresses of a name; the system's, unless told otherwise.
        """

        def session() -> aiohttp.ClientSession:
            make_socket = None if may_be_private else public_socket
            connector = aiohttp.TCPConnector(limit=32, resolver=resolver, socket_factory=make_socket)
            return aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=False
            )

        transport = AiohttpTransport(trust_env=False, client=session)
        client = httpx.AsyncClient(
            transport=transport,
            follow_redirects=False,
            trust_env=False,
            timeout=None,  # noqa: S113  (the deadline is around the whole exchange)
        )
        return cls(url, Webhook(secret.reveal()), client, lambda: datetime.now(UTC))

    async def post(self, call_id: CallId, call: Call, outcome: CallOutcome) -> Answer:
        """Post one outcome; the same one always has the same id."""
        message_id = f"{call_id.member}.{outcome.n}.{outcome.type}"
        body = msgspec.json.encode(_message(call, outcome))
        now = self.now()
        headers = {
            "content-type": "application/json",
            "user-agent": "callkeeper",
            "webhook-id": message_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": self.webhook.sign(message_id, now, body.decode()),
            **trace_headers(),
        }
        try:
            async with (
                asyncio.timeout(DEADLINE_S),
                self.client.stream("POST", self.url, content=body, headers=headers) as answer,
            ):
                return _judge(answer.status_code)
        except (httpx.HTTPError, OSError, aiohttp.ClientError):
            return Answer.AWAY

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.aclose()


def public_socket(address: tuple[Any, ...]) -> socket.socket:
    """Make the socket for a connection, if its address is a public one.

    Raises:
        AddressRefused: It is this machine's, a private network's, or otherwise not for everybody.
    """
    family, kind, protocol, _, place = address
    if not is_public(str(place[0])):
        raise AddressRefused("outcomes are sent to public addresses only")
    return socket.socket(family, kind, protocol)


def is_public(address: str) -> bool:
    """Tell whether an address is one of the public internet, also where it holds an IPv4 address."""
    host = ip_address(address.partition("%")[0])
    if isinstance(host, IPv6Address):
        inner = host.ipv4_mapped or (IPv4Address(int(host) & 0xFFFF_FFFF) if host in _NAT64 else None)
        if inner is None:
            return host.is_global and host in _PUBLIC_IPV6 and not any(host in each for each in _NOT_PUBLIC_IPV6)
        host = inner
    return host.is_global and not any(host in each for each in _NOT_PUBLIC_IPV4)


def _judge(status: int) -> Answer:
    if 200 <= status < 300:
        return Answer.TAKEN
    return Answer.DECLINED if 300 <= status < 500 and status not in {408, 425, 429} else Answer.AWAY


def _message(call: Call, outcome: CallOutcome) -> Message:
    line = outcome.line
    data = OutcomeData(
        institution_key=call.institution_key,
        voice_id=call.voice_id,
        alternate_id=call.alternate_id,
        person_id=line.person_id or call.person_id,
        reason=line.because if outcome.type in {"settled", "asked"} else None,
        effect=line.asked if outcome.type == "held" else line.kind if outcome.type == "unresolved" else None,
        validation_type=line.validation_type,
        operator=line.operator,
        rule=line.rule,
        forbidden=line.forbidden,
        checks_used=call.checks_used,
    )
    return Message(f"call.{outcome.type}", line.at, data)
