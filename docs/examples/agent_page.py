"""An agent's page with the current call: a page of ten lines, and the back end that mints its token.

    python docs/examples/agent_page.py http://localhost:8000 token.txt agent-7 8790

The page is at http://localhost:8790/?institution=cu-1&call=VOICE_ID; that origin must be in CALLKEEPER_DESK_ORIGINS. The
desk token stays in the back end. In your own one, the operator is the agent who is logged in, and the institutions are
theirs; the page's policy forbids inline scripts and styles.
"""

import json
import sys
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

PAGE = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width">
    <meta name="color-scheme" content="light dark">
    <title>Call</title>
    <script type="module" src="{desk}/desk/callkeeper-call.js"></script>
  </head>
  <body>
    <main><h1>Call</h1><callkeeper-call token-url="/callkeeper-token" {which}></callkeeper-call></main>
  </body>
</html>
"""


def minted(desk: str, token: str, operator: str, institutions: list[str]) -> bytes:
    """Mint a token for an agent's page; return the desk's answer, which the page gets as it is."""
    body = json.dumps({"operator": operator, "institutions": institutions}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with urlopen(Request(f"{desk}/desk/agent-tokens", body, headers), timeout=10) as answer:  # noqa: S310  (our own desk)
        minted: bytes = answer.read()
        return minted


class Page(BaseHTTPRequestHandler):
    """The page, and the address at which it gets its token."""

    desk = token_file = operator = ""

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        which = " ".join(
            f'{name}="{escape(asked[name][0])}"' for name in ("institution", "call", "phone") if name in asked
        )
        self.answer("text/html; charset=utf-8", PAGE.format(desk=self.desk, which=which).encode())

    def do_POST(self) -> None:
        token = Path(self.token_file).read_text(encoding="utf-8").strip()
        if self.path != "/callkeeper-token" or self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            self.send_error(403)
            return
        self.answer("application/json", minted(self.desk, token, self.operator, ["cu-1", "cu-2"]))

    def answer(self, kind: str, body: bytes) -> None:
        """Send an answer under a strict policy."""
        self.send_response(200)
        policy = f"default-src 'none'; script-src {self.desk}; connect-src 'self' {self.desk}; base-uri 'none'"
        for name, value in (("Content-Type", kind), ("Content-Security-Policy", policy), ("Cache-Control", "no-store")):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the library's name)
        """Log nothing."""


if __name__ == "__main__":
    if len(sys.argv) != 5:
        print("usage: python agent_page.py DESK_URL TOKEN_FILE OPERATOR PORT", file=sys.stderr)
        sys.exit(2)
    Page.desk, Page.token_file, Page.operator, port = sys.argv[1:]
    with ThreadingHTTPServer(("127.0.0.1", int(port)), Page) as server:
        print(f"http://localhost:{server.server_port}/", flush=True)
        server.serve_forever()
