"""Verify each caller from a number by passcode, as soon as the call has a person: desk software in forty lines.

    pip install ./client
    python docs/examples/desk_client.py http://localhost:8000 token.txt agent-7 5550100001

The token is read from its file at each request, so it can be exchanged without a restart. Restarts of the desk, 401, 429
and 503 are waited for; the stream resumes where it was lost. Every call is verified once, also if this program restarts:
its voice id is the Idempotency-Key.
"""

import json
import sys
from pathlib import Path

from callkeeper_client import Call, Desk, DeskError


def verify(desk: Desk, call: Call, operator: str) -> None:
    """Say that the call's person was verified by passcode, and print what became of it."""
    try:
        action = desk.verified(
            call["institution_key"],
            call["voice_id"],
            operator=operator,
            person_id=call["person_id"] or "",
            validation_type="OneTimePasswordAuth",
            wait_s=10,
            key=f"verify-{call['voice_id']}",
        )
    except DeskError as error:
        print("not verified:", error, flush=True)
    else:
        print(json.dumps(action), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        print("usage: python desk_client.py DESK_URL TOKEN_FILE OPERATOR PHONE_NUMBER", file=sys.stderr)
        sys.exit(2)
    url, token_file, operator, phone = sys.argv[1:]
    said: set[str] = set()
    with Desk(url, lambda: Path(token_file).read_text(encoding="utf-8").strip()) as desk:
        print("following", flush=True)
        for change in desk.changes():
            call = change.call
            if call is None or call["phone_number"] != phone or call["voice_id"] in said:
                continue
            if call["person_id"] and not call["green"]:
                said.add(call["voice_id"])
                verify(desk, call, operator)
