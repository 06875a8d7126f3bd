"""Code that the sync and the async client share: requests, refusals, retries, events of the stream. No I/O."""

import json
import logging
import math
import random
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, cast
from urllib.parse import quote

import httpx

from callkeeper_client.views import Call, Reason

RETRIED: Final = frozenset({429, 502, 503, 504})
"""Statuses that are retried. A 401 is only while a token is exchanged (`Tokens`)."""

LOG: Final = logging.getLogger("callkeeper_client")

STREAM: Final = "/desk/stream"
STREAM_TIMEOUT: Final = httpx.Timeout(15.0, read=40.0)
"""The server sends a comment every 15 s."""


_TOKEN: Final = re.compile("[!-~]+")

EXCHANGE_S: Final = 300.0
"""How long a 401 is waited out at most while a token is exchanged, also by what else waits for ever."""


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
        self.detail = str(problem.get("detail") or problem.get("title") or _FOREIGN)
        self.reasons = cast("list[Reason]", problem.get("reasons", []))
        super().__init__(f"{self.status} {self.code}: {self.detail}" if self.code else f"{self.status}: {self.detail}")


_FOREIGN: Final = "this is no answer of a desk; is its address right?"


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


class Tokens:
    """The token of a client, and whether a 401 may be waited out.

    A wrong token is an error at once. It is waited out only while a token is exchanged: a function returns the token, and
    one that it returned was accepted before, or it now returns another one than was refused.
    """

    def __init__(self, token: str | Callable[[], str]) -> None:
        self._token = token
        self._sent = ""
        self._was_accepted = False

    def read(self) -> str:
        """Return the token for the next request.

        Raises:
            ValueError: It cannot be one.
        """
        self._sent = self._token if isinstance(self._token, str) else self._token()
        if not _TOKEN.fullmatch(self._sent):
            raise ValueError(
                "the token must be visible ASCII without blanks; a file's last line break is not part of it"
            )
        return self._sent

    def accepted(self) -> None:
        """Take note that the desk has accepted a token."""
        self._was_accepted = True

    def may_change(self, response: httpx.Response | None) -> bool:
        """Tell whether this answer refuses the token, and the next one may be accepted."""
        if response is None or response.status_code != httpx.codes.UNAUTHORIZED or isinstance(self._token, str):
            return False
        return self._was_accepted or self._token() != self._sent


@dataclass
class Retry:
    """Computes the wait before the next attempt, or ends the attempts."""

    patience_s: float
    first_s: float = 0.5
    longest_s: float = 30.0
    _begun_s: float = field(default_factory=time.monotonic)
    _exchange_begun_s: float | None = None
    _attempts: int = 0

    def succeeded(self) -> None:
        """Start over after a success."""
        self._begun_s, self._exchange_begun_s, self._attempts = time.monotonic(), None, 0

    def wait_s(self, response: httpx.Response | None, tokens: Tokens, error: Exception | None = None) -> float:
        """Return the seconds to wait. ``response`` is None if there was no answer, because of an ``error``.

        Raises:
            DeskRefused: Waiting does not help, or the answer is still 401 after ``patience_s`` (`EXCHANGE_S` if that is
                unlimited).
            DeskUnavailable: There was no usable answer within ``patience_s``.
        """
        is_exchanged = tokens.may_change(response)
        if response is not None and response.status_code not in RETRIED and not is_exchanged:
            raise DeskRefused(response)
        if is_exchanged and self._exchange_begun_s is None:
            LOG.warning("the desk does not accept the token any more; waiting for another one")
            self._exchange_begun_s = time.monotonic()
        waits_s: float = min(self.first_s * 2**self._attempts, self.longest_s) * random.uniform(0.8, 1.2)  # noqa: S311
        self._attempts = min(self._attempts + 1, 16)
        if response is not None:
            waits_s = max(waits_s, _asked_s(response, self.longest_s))
        begun_s, patience_s = self._begun_s, self.patience_s
        if is_exchanged and self._exchange_begun_s is not None:
            begun_s, patience_s = self._exchange_begun_s, min(patience_s, EXCHANGE_S)
        if time.monotonic() + waits_s - begun_s > patience_s:
            if response is not None and response.status_code == httpx.codes.UNAUTHORIZED:
                raise DeskRefused(response)
            answered = f"no answer ({error})" if response is None else f"status {response.status_code}"
            raise DeskUnavailable(f"{answered} for {self.patience_s:g} s") from error
        if response is None and self._attempts == 1:
            LOG.warning("the desk does not answer: %s", error)
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


class Joined:
    """Joins a list and a stream, in whatever order they arrive: of two views of a call the higher revision is newer."""

    def __init__(self) -> None:
        self._revisions: dict[tuple[str, str], int] = {}

    def is_news(self, change: Change) -> bool:
        """Tell whether a change is not older than what was seen of its call. A reset forgets everything."""
        if change.kind == "reset":
            self._revisions = {}
            return True
        place = change.institution_key, change.voice_id
        revision = None if change.call is None else change.call.get("revision", 0)
        if revision is not None and revision < self._revisions.get(place, 0):
            return False
        if revision is None or (change.call is not None and change.call["phase"] == "settled"):
            self._revisions.pop(place, None)  # the list has no such call, so no older view of it can come
        else:
            self._revisions[place] = revision
        return True
