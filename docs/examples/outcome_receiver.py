"""Take outcomes: verify the signature, act once on each, whatever is sent again. A receiver in eighty lines.

    pip install standardwebhooks
    python docs/examples/outcome_receiver.py 8090 outcomes.sqlite secrets.txt

The secrets are in a file, one a line, because everybody on the machine can read a command line.
The database holds the id of every message that was acted on. Id and effect are written in one transaction, so that a
receiver that dies in between acts again, and one that is sent the same message twice acts once. While a secret is
exchanged the file may hold either, or both: every message is signed with both.
"""

import json
import sqlite3
import sys
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

from standardwebhooks import Webhook, WebhookVerificationError

MOST_BYTES = 64 * 1024


def act_on(message: dict[str, Any], database: sqlite3.Connection) -> None:
    """Do what an outcome calls for: here, note down as what each call was settled."""
    if message["type"] == "call.settled":
        data = message["data"]
        database.execute("INSERT INTO settled VALUES (?, ?, ?)", (data["voice_id"], data["reason"], data["operator"]))


def take(database: sqlite3.Connection, message_id: str, message: dict[str, Any]) -> bool:
    """Act on a message unless that was done before; return whether it was new."""
    with database:  # one transaction: both are written, or neither
        if database.execute("INSERT OR IGNORE INTO taken VALUES (?)", (message_id,)).rowcount == 0:
            return False
        act_on(message, database)
    return True


class Receiver(BaseHTTPRequestHandler):
    """Answers one post."""

    secrets: ClassVar[list[Webhook]]
    database: ClassVar[sqlite3.Connection]
    timeout = 10

    def do_POST(self) -> None:
        """Answer 204 for what was taken, now or before; 400 for what nobody with a secret of ours has signed."""
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self._answer(413)
            return
        body = self.rfile.read(int(length))
        if not any(_is_signed(webhook, body, dict(self.headers)) for webhook in self.secrets):
            self._answer(400)
            return
        is_new = take(self.database, self.headers["webhook-id"], json.loads(body))
        print("new" if is_new else "again", self.headers["webhook-id"], flush=True)
        self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: requests are told above."""


def _is_signed(webhook: Webhook, body: bytes, headers: dict[str, str]) -> bool:
    try:
        webhook.verify(body, headers, json_parse=False)
    except (WebhookVerificationError, ValueError):
        return False
    return True


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print("usage: python outcome_receiver.py PORT DATABASE_FILE SECRETS_FILE", file=sys.stderr)
        sys.exit(2)
    port, path, secrets_file = sys.argv[1:]
    Receiver.secrets = [Webhook(key) for key in Path(secrets_file).read_text(encoding="utf-8").split()]
    with closing(sqlite3.connect(path)) as database, HTTPServer(("127.0.0.1", int(port)), Receiver) as server:
        database.execute("CREATE TABLE IF NOT EXISTS taken (id TEXT PRIMARY KEY)")
        database.execute("CREATE TABLE IF NOT EXISTS settled (voice_id TEXT, reason TEXT, operator TEXT)")
        Receiver.database = database
        print("listening on", server.server_address[1], flush=True)
        server.serve_forever()
