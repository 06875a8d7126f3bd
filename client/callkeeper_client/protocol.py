"""Code that the sync and the async client share: requests, refusals, retries, events of the stream. No I/O."""

import json
import math
import random
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, cast
from urllib.parse import quote

import httpx

from callkeeper_client.views import Call, Reason

RETRIED: Final = frozenset({401, 429, 502, 503, 504})
"""Statuses that are retried. After a 401, the token function may return a new token."""

STREAM: Final = "/desk/stream"
STREAM_TIMEOUT: Final = httpx.Timeout(15.0, read=40.0)
"""The server sends a comment every 15 s."""


class DeskError(Exception):
    """A request did not succeed."""


class DeskUnavailable(DeskError):
    """The desk gave no usable answer within ``patience_s``."""


class DeskRefused(DeskError):
    """The desk refuses the request, so repeating it does not help. ``code`` says why."""

    def __init__(self, response: httpx.Response) -> None:
        problem = _problem(response)
        self.status = response.status_code
        self.code = str(problem.get("code", ""))
        self.detail = str(problem.get("detail") or problem.get("title") or "")
        self.reasons = cast("list[Reason]", problem.get("reasons", []))
        super().__init__(f"{self.status} {self.code}: {self.detail}")


def _problem(response: httpx.Response) -> Mapping[str, Any]:
    try:
        problem = json.loads(response.content)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


class Request(NamedTuple):
    """A request to the desk."""

    method: str
    path: str
    params: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None
    key: str | None = None

    def headers(self, token: str) -> dict[str, str]:
        """Return the headers."""
        key = {"Idempotency-Key": self.key} if self.key else {}
        return {"Authorization": f"Bearer {token}", **key}


def listing(after: str | None, filters: Mapping[str, str | None]) -> Request:
    """Return the request for a page of calls."""
    params = {"limit": "500", "after": after, **filters}
    return Request("GET", "/desk/calls", {name: value for name, value in params.items() if value is not None})


def call(institution_key: str, voice_id: str, *rest: str) -> str:
    """Return the path of a call, or of a resource below it."""
    return "/".join(["/desk/calls", *(quote(part, safe="") for part in (institution_key, voice_id, *rest))])


def action(path: str, wait_s: float | None, key: str | None, body: Mapping[str, Any]) -> Request:
    """Return the request for an action. It has an idempotency key, so that a repetition is the same action."""
    fields = {name: value for name, value in body.items() if value is not None}
    params = {} if wait_s is None else {"wait": f"{wait_s:g}"}
    return Request("POST", path, params, fields, key or str(uuid.uuid4()))


@dataclass
class Retry:
    """Computes the wait before the next attempt, or ends the attempts."""

    patience_s: float
    first_s: float = 0.5
    longest_s: float = 30.0
    _begun_s: float = field(default_factory=time.monotonic)
    _attempts: int = 0

    def succeeded(self) -> None:
        """Start over after a success."""
        self._begun_s, self._attempts = time.monotonic(), 0

    def wait_s(self, response: httpx.Response | None) -> float:
        """Return the seconds to wait. ``response`` is None if there was no answer.

        Raises:
            DeskRefused: Waiting does not help, or the answer is still 401 after ``patience_s``.
            DeskUnavailable: There was no usable answer within ``patience_s``.
        """
        if response is not None and response.status_code not in RETRIED:
            raise DeskRefused(response)
        waits_s: float = min(self.first_s * 2**self._attempts, self.longest_s) * random.uniform(0.8, 1.2)  # noqa: S311
        self._attempts = min(self._attempts + 1, 16)
        if response is not None:
            waits_s = max(waits_s, _asked_s(response, self.longest_s))
        if time.monotonic() + waits_s - self._begun_s > self.patience_s:
            if response is not None and response.status_code == httpx.codes.UNAUTHORIZED:
                raise DeskRefused(response)
            answered = "no answer" if response is None else f"status {response.status_code}"
            raise DeskUnavailable(f"{answered} for {self.patience_s:g} s")
        return waits_s


def _asked_s(response: httpx.Response, longest_s: float) -> float:
    text = response.headers.get("Retry-After", "")
    return min(float(text), longest_s) if text.isdecimal() else 0.0


FOR_EVER: Final = math.inf


class Change(NamedTuple):
    """One event of the stream. ``gone``: the call was pushed but never listed. ``reset``: changes were missed."""

    kind: Literal["call", "gone", "reset"]
    institution_key: str
    voice_id: str
    call: Call | None


class Events:
    """Reads server-sent events, line by line, and remembers where to resume."""

    def __init__(self, last_id: str | None) -> None:
        self.last_id = last_id
        self._fields: dict[str, str] = {}

    def begin(self) -> dict[str, str]:
        """Discard an incomplete event; return the headers with which a new connection resumes."""
        self._fields = {}
        return {} if self.last_id is None else {"Last-Event-ID": self.last_id}

    def read(self, line: str) -> Change | None:
        """Read a line; return the change that it completes, if it does."""
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        self.last_id = fields.get("id", self.last_id)
        data = json.loads(fields["data"])
        match fields.get("event"):
            case "call":
                return Change("call", data["institution_key"], data["voice_id"], data)
            case "gone":
                return Change("gone", data["institution_key"], data["voice_id"], None)
            case "reset":
                return Change("reset", "", "", None)
            case _:
                return None
