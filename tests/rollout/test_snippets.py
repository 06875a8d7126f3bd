"""The `curl` lines of docs/desk.md and docs/sandbox.md work as written, against a running callkeeper."""

import os
import re
import subprocess
from pathlib import Path

from tests.harness.desk_tokens import give_token
from tests.harness.processes import KEY, stack
from tests.waiting import until

ROOT = Path(__file__).parents[2]
TOKEN = "ckt_canary-desktop-0123456789-4c07a65e93d2"
PHONE = "5550100001"
# An HTTP error fails the test. The stream has no end, so it is read for two seconds.
SHELL = """set -e
curl() {
  case "$*" in
    *desk/stream*) command curl --fail-with-body --max-time 2 "$@" || [ $? -eq 28 ] ;;
    *) command curl --fail-with-body "$@" ;;
  esac
}
"""


def snippets(page: str) -> list[str]:
    """Return the indented blocks of a page that contain `curl` lines, without other commands."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^ {4}.*\n)+", text, re.MULTILINE)
    lines = [[line for line in block.splitlines() if not line.startswith("    callkeeper")] for block in blocks]
    return ["\n".join(each) for each in lines if any("curl" in line for line in each)]


def type_in(page: str, **environ: str) -> str:
    """Run all snippets of a page in one shell; return their output."""
    script = SHELL + "\n".join(snippets(page)).replace("VOICE_ID", "first-call")
    kept = {"PATH": os.environ["PATH"], **environ}
    ran = subprocess.run(["/bin/sh", "-c", script], env=kept, capture_output=True, text=True, check=False)  # noqa: S603
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def test_snippets_do_what_their_pages_say(tmp_path: Path) -> None:
    """The desk's snippets verify a caller and read the stream; the sandbox's start a call and list variants."""
    with stack(tmp_path / "data", workers=1) as running:
        give_token(running.redis, "desktop", TOKEN)
        running.control("POST", "/members", {"institution_key": KEY, "person_id": "p-1", "phones": [PHONE]})
        call = running.call({"kind": "end", "after_s": 90}, phone_number=PHONE, voice_id="first-call")
        until(lambda: (found := running.record(call)) is not None and found.seen.person_id == "p-1", 20, "the assign")
        shown = type_in("desk.md", URL=running.demo.web_url, TOKEN=TOKEN)
        assert '"state":"done"' in shown
        assert "event: " in shown or "retry: " in shown
        shown = type_in("sandbox.md", URL=running.demo.service_url)
        assert '"voice_id":"v-1"' in shown
        assert "list-bare" in shown
