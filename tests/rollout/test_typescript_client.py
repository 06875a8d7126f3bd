"""The TypeScript client, compiled from its generated types, as its page uses it against a running callkeeper."""

import re
import subprocess
from pathlib import Path

from tests.harness.processes import stack
from tests.waiting import until

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/typescript-client.md"
FOLLOW = """
import { Desk } from "callkeeper-client";

const [, , url, token, voiceId] = process.argv;
const backend = new Desk(url, token);
const { token: agentToken } = await backend.agentToken({ operator: "agent-7", institutions: ["cu-1"] });
const seen = [];
for await (const change of new Desk(url, agentToken).changes({ institution: "cu-1", id: voiceId })) {
  seen.push(change.call.revision);
  if (change.call.green) break;
}
console.log(JSON.stringify(seen));
await new Desk(url, "wrong").changes().next().catch((error) => console.log(error.status, error.code));
process.exit();
"""


def node(folder: Path, script: str, *arguments: str, **environ: str) -> str:
    """Run a script that finds the client among its packages; return its output."""
    packages = folder / "node_modules"
    packages.mkdir(exist_ok=True)
    (packages / "callkeeper-client").unlink(missing_ok=True)
    (packages / "callkeeper-client").symlink_to(ROOT / "client/typescript")
    (folder / "script.mjs").write_text(script)
    ran = subprocess.run(  # noqa: S603  (our own script)
        ["node", "script.mjs", *arguments],  # noqa: S607
        cwd=folder,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_client_verifies_and_follows_as_its_page_says(tmp_path: Path) -> None:
    """The page's script verifies a caller; an agent's token follows one call, whose revisions grow; a wrong one ends."""
    with stack(tmp_path / "data", workers=1) as running:
        call = running.call({"kind": "end", "after_s": 90})
        until(lambda: (found := running.record(call)) is not None and found.seen.person_id, 20, "the assign")
        [script] = re.findall(r"```js\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        printed = node(tmp_path, script, URL=running.demo.web_url, TOKEN=running.demo.desk_token)
        assert printed.split() == [call["voice_id"], "false", "done"]
        assert running.arrived(call)["enroll"] == 1
        green = running.call({"kind": "green", "after_s": 4}, {"kind": "end", "after_s": 90})
        until(lambda: running.record(green), 20, "the record")
        seen, refused = node(
            tmp_path, FOLLOW, running.demo.web_url, running.demo.desk_token, green["voice_id"]
        ).splitlines()
        revisions = [int(number) for number in seen.strip("[]").split(",")]
        assert revisions == sorted(revisions)
        assert len(revisions) > 1
        assert refused == "401 unauthorized"
