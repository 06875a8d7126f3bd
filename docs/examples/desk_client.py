"""Follow the calls of an institution and verify each caller who waits for it: a desk client in forty lines.

    python docs/examples/desk_client.py http://localhost:8000 TOKEN agent-7 5550100001

Whenever the call from that number has a person and no green voice, the person is said to be verified by passcode, once.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import httpx


def changes(desk: httpx.Client) -> Iterator[dict[str, Any]]:
    """Yield every call that changes, for ever; after a lost connection go on where it was lost."""
    last: dict[str, str] = {}
    while True:
        try:
            with desk.stream("GET", "/desk/stream", headers=last, timeout=30) as stream:
                for line in stream.raise_for_status().iter_lines():
                    field, _, value = line.partition(": ")
                    if field == "id":
                        last = {"Last-Event-ID": value}
                    elif field == "data":
                        yield json.loads(value)
        except httpx.TransportError:
            continue


def verify(desk: httpx.Client, call: dict[str, Any], operator: str) -> dict[str, Any]:
    """Say that a call's person was verified by passcode; wait for what comes of it. Saying it twice does no harm."""
    answer = desk.post(
        f"/desk/calls/{call['institution_key']}/{call['voice_id']}/verified?wait=10",
        json={"operator": operator, "person_id": call["person_id"], "validation_type": "OneTimePasswordAuth"},
        headers={"Idempotency-Key": f"verify-{call['voice_id']}"},
    )
    result: dict[str, Any] = answer.json()
    return result


if __name__ == "__main__":
    url, token, operator, phone = sys.argv[1:]
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=15) as client:
        print("following", flush=True)
        for change in changes(client):
            if change.get("phone_number") == phone and change["person_id"] and not change["green"]:
                print(json.dumps(verify(client, change, operator)), flush=True)
                break
