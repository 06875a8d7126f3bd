"""Random raw requests, as an attack tool sends them: mutated addresses, methods, headers and bodies."""

import json
import random
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from callkeeper.desk.signed_tokens import FORM_FIELD, form_tokens, key_of_login
from callkeeper.service import Secret
from tests.audit.mutants import TRICKS

PUSH_KEY = "canary-push-1f8b32d9-4c07a65e93d2"
TOKEN = "ckt_canary-desktop-0123456789-4c07a65e93d2"
ADMIN = "ops:canary-admin-0123456-4c07a65e93d2"

BODY_NAMES = ("assign", "verified", "distrusted", "opted-out", "check", "resolve")
ODD_METHODS = ("HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "CONNECT", "GET", "POST")
POSTED = ("push", "tickets", "delete", "requeue", "empty", "compact", "pause", "resume", *BODY_NAMES)
VALUES = (
    "0",
    "1",
    "-1",
    "calls",
    "failed",
    "finished",
    "cu-1",
    "voice-1",
    "verified",
    "8",
    "asc",
    "x" * 300,
    "ü",
    "a/b",
    "*",
)
TYPES = ("application/json",) * 6 + (
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "",
)
PUSHES: Sequence[dict[str, object]] = (
    {"Type": "CallStart", "VoiceId": "voice-1", "InstitutionKey": "cu-1", "PhoneNumber": "5550100001"},
    {"Type": "CallEnd", "AlternateVoiceId": "alternate-1", "InstitutionKey": "cu-1", "IsTest": True},
)
SAID: Sequence[dict[str, object]] = (
    {"operator": "agent-7", "person_id": "p-1", "validation_type": "OneTimePasswordAuth", "notes": "x"},
    {"operator": "agent-7", "reason": "x"},
    {"operator": "agent-7"},
    {"operator": "agent-7", "person_id": "p-1"},
    {"operator": "agent-7", "applied": True},
)
KNOWN = {
    "institution": "cu-1",
    "voice_id": "voice-1",
    "instance_number": "0",
    "queue_name": "calls:2",
    "registry_name": "failed",
    "per_page": "8",
    "order": "asc",
    "page": "1",
}
"""Usual values of path parameters, so that many requests reach existing pages."""

QUERIES = (
    "phase",
    "limit",
    "after",
    "wait",
    "id",
    "phone",
    "institution",
    "ticket",
    "last_event_id",
    "form_token",
    "q",
    "voice_id",
)


@dataclass(frozen=True)
class Shot:
    """One request and its method."""

    raw: bytes
    method: str


class Gunner:
    """Draws random requests. The same seed gives the same requests."""

    def __init__(self, templates: Sequence[str], seed: int) -> None:
        user, _, password = ADMIN.partition(":")
        self._token = form_tokens(key_of_login(user, Secret(password))).issue()
        self._draw = random.Random(seed)  # noqa: S311  (repeatable, not secret)
        # Streams are left out because they do not end. The tests of the desk and of the board cover them.
        self._templates = [template for template in templates if not template.endswith("/stream")]

    def shot(self) -> Shot:
        """Draw a request."""
        template = self._draw.choice((*self._templates, *("/push",) * 6))
        is_posted = template.split("/")[-1] in POSTED or "/rq/requeue/" in template
        method = self._draw.choice(ODD_METHODS) if self._draw.random() < 0.15 else "POST" if is_posted else "GET"
        path = self._path(template)
        body = self._body(template) if method in {"POST", "PUT", "PATCH", "DELETE"} else b""
        headers = [b"Host: " + self._draw.choice((b"web", b"evil.example", b"127.0.0.1")), *self._headers(path)]
        length = len(body)
        framing = b"Content-Length: %d" % length
        if body and self._draw.random() < 0.2:
            framing, body = b"Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (length, body)
        elif self._draw.random() < 0.02:
            framing = self._draw.choice((b"Content-Length: -1", b"Content-Length: x", b"Transfer-Encoding: gzip, x"))
        head = b"\r\n".join([f"{method} {path} HTTP/1.1".encode("latin-1", "replace"), *headers, framing, b"", b""])
        return Shot(head + body, method)

    def _path(self, template: str) -> str:
        parts = [self._part(part) for part in template.split("/")]
        path = "/".join(parts)
        if self._draw.random() < 0.1:
            at = self._draw.randrange(len(path) + 1)
            path = path[:at] + quote(self._draw.choice(TRICKS)[:200]) + path[at:]
        if self._draw.random() < 0.4:
            pairs = (f"{self._draw.choice(QUERIES)}={quote(self._word())}" for _ in range(self._draw.randint(1, 3)))
            path += "?" + "&".join(pairs)
        return path.replace(" ", "%20")

    def _part(self, part: str) -> str:
        known = KNOWN.get(part.partition(":")[0].strip("{}"))
        if "{" not in part or (known and self._draw.random() < 0.7):
            return known if known and "{" in part else part
        return quote(self._draw.choice(VALUES), safe="*")

    def _word(self) -> bytes:
        return self._draw.choice((*TRICKS, *(value.encode() for value in VALUES)))[:500]

    def _headers(self, path: str) -> list[bytes]:
        headers = [f"Content-Type: {self._draw.choice(TYPES)}".encode()]
        address = f"198.51.{self._draw.randrange(256)}.{self._draw.randrange(256)}"
        headers.append(f"X-Forwarded-For: {address}".encode())
        if self._draw.random() < 0.9:
            headers += self._credentials(path)
        if self._draw.random() < 0.3:
            name = self._draw.choice(
                (b"Cookie", b"Last-Event-ID", b"Idempotency-Key", b"Origin", b"Range", b"Expect", b"Accept")
            )
            headers.append(name + b": " + bytes(byte for byte in self._word() if byte > 31 and byte != 127)[:300])
        if self._draw.random() < 0.2:
            headers.append(b"Sec-Fetch-Site: " + self._draw.choice((b"same-origin", b"cross-site", b"none", b"")))
        return headers

    def _credentials(self, path: str) -> list[bytes]:
        if self._draw.random() < 0.1:
            return [b"Authorization: " + self._draw.choice((b"Basic !!!", b"Bearer \xff", b"Basic", b"Digest x", b""))]
        if path.startswith("/push"):
            return [f"X-Push-Key: {PUSH_KEY}".encode()]
        if path.startswith("/desk"):
            return [f"Authorization: Bearer {TOKEN}".encode()]
        return [b"Authorization: Basic " + b64encode(ADMIN.encode())]

    def _body(self, template: str) -> bytes:
        kind = self._draw.random()
        if kind < 0.1:
            return self._draw.randbytes(self._draw.randrange(2000))
        body: dict[str, object] = dict(self._draw.choice(PUSHES if template == "/push" else SAID))
        if self._draw.random() < 0.2:
            return urlencode({**body, FORM_FIELD: self._token, "x": self._word()}).encode()
        for _ in range(self._draw.choice((0, 0, 1, 2))):
            odd: tuple[object, ...] = (None, 1, -1.5, True, [], {}, "", "x" * 600, self._word().decode("latin-1"))
            body[self._draw.choice([*body, "Other"])] = self._draw.choice(odd)
        text = json.dumps(body).encode()
        if kind < 0.4:
            at = self._draw.randrange(len(text) + 1)
            text = text[:at] + self._draw.choice(TRICKS)[:400] + text[at + self._draw.randrange(3) :]
        if kind > 0.97:
            text = text.ljust(70_000)
        return text
