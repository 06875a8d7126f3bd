"""Verify each caller from a number by passcode, as soon as the call has a person: desk software on httpx.

    pip install httpx
    python docs/examples/desk_client.py http://localhost:8000 token.txt agent-7 5550100001

The token is read from its file at each request, so it can be exchanged without a restart. Restarts of the desk, 401, 429
and 503 are waited for; the stream resumes where it was lost. Every call is verified once, also if this program restarts:
its voice id is the Idempotency-Key.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

WAIT_S = 3
PASSING = {401, 429, 502, 503, 504}


def changes(http: httpx.Client, phone: str) -> Iterator[dict[str, Any]]:
    """Yield the open calls from a number, then each change of one, for ever."""
    last: dict[str, str] = {}
    while True:
        try:
            with http.stream("GET", "/desk/stream", params={"phone": phone}, headers=last, timeout=40) as stream:
                stream.raise_for_status()
                if not last:
                    print("following", flush=True)
                    yield from open_calls(http, phone)
                kind = ""
                for line in stream.iter_lines():
                    field, _, value = line.partition(": ")
                    if field == "event":
                        kind = value
                    elif field == "id":
                        last = {"Last-Event-ID": value}
                    elif field == "data" and kind == "call":
                        yield json.loads(value)
                    elif field == "data" and kind == "reset":  # too much was missed: begin anew
                        last = {}
                        break
        except httpx.HTTPError as error:
            print("waiting:", error, file=sys.stderr, flush=True)
        time.sleep(WAIT_S)


def open_calls(http: httpx.Client, phone: str) -> list[dict[str, Any]]:
    """Return the calls from a number that are not settled."""
    found: list[dict[str, Any]] = http.get("/desk/calls", params={"phone": phone}).raise_for_status().json()["calls"]
    return found


def verify(http: httpx.Client, call: dict[str, Any], operator: str) -> None:
    """Say that the call's person was verified by passcode, and print what became of it."""
    address = "/".join(["/desk/calls", *(quote(call[name], safe="") for name in ("institution_key", "voice_id"))])
    said = {"operator": operator, "person_id": call["person_id"], "validation_type": "OneTimePasswordAuth"}
    headers = {"Idempotency-Key": f"verify-{call['voice_id']}"}
    while True:
        try:
            answer = http.post(f"{address}/verified", params={"wait": 10}, json=said, headers=headers)
            if answer.status_code not in PASSING:
                print(answer.text, flush=True)
                return
        except httpx.HTTPError as error:
            print("waiting:", error, file=sys.stderr, flush=True)
        time.sleep(WAIT_S)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        print("usage: python desk_client.py DESK_URL TOKEN_FILE OPERATOR PHONE_NUMBER", file=sys.stderr)
        sys.exit(2)
    url, token_file, operator, phone = sys.argv[1:]

    def with_token(request: httpx.Request) -> httpx.Request:
        """Add the current token to a request."""
        request.headers["Authorization"] = f"Bearer {Path(token_file).read_text(encoding='utf-8').strip()}"
        return request

    verified: set[str] = set()
    with httpx.Client(base_url=url, auth=with_token, timeout=15) as http:
        for call in changes(http, phone):
            if call["person_id"] and not call["green"] and call["voice_id"] not in verified:
                verified.add(call["voice_id"])
                verify(http, call, operator)
