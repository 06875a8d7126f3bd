"""The data of release 0.4.0, made by its own code: `callkeeper migrate`, and the way back."""

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from callkeeper.app.cli import main
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call
from callkeeper.calls.record_storage import parse_call
from callkeeper_sandbox.demo.demonstration import service_environment
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from callkeeper_sandbox.demo.fleet import Fleet, FleetFailed, ManagedProcess
from callkeeper_sandbox.service import population
from tests.harness.courier import Receiver, receiving
from tests.harness.desk_tokens import give_token
from tests.harness.processes import (
    PUSH_KEY,
    Environ,
    Sides,
    start_sandbox,
    wait_for_work,
)
from tests.ports import free_port
from tests.rollout.released import ROOT, Installed, install, released_commit
from tests.waiting import until

TOKEN = "ckt_canary-desktop-0123456789-0123456789"
END = {"kind": "end", "after_s": 1}
MISMATCH = [{"kind": "mismatch", "after_s": 1}, {"kind": "high_risk_device", "after_s": 1.2}]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install release 0.4.0."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    commit = released_commit(changelog[changelog.index("## 0.4.0") :])
    assert commit is not None
    return install(commit, tmp_path_factory.mktemp("released"))


class Site(Sides):
    """One Redis and one stand-in for the service, with web and workers of either release."""

    def __init__(self, fleet: Fleet, redis_url: str, service_url: str, port: int, receiver: Receiver) -> None:
        super().__init__(redis_url, service_url)
        self.fleet, self.port, self.receiver = fleet, port, receiver
        self.desk = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {TOKEN}"},
            trust_env=False,
            timeout=15,
        )
        self._started = 0

    def close(self) -> None:
        """Close the connections."""
        self.desk.close()
        super().close()

    def start(self, release: Installed | None = None, *, workers: int = 2) -> list[ManagedProcess]:
        """Start a web process and workers of a release, ours by default, and wait until they work."""
        module = release.module if release else ("callkeeper",)
        self._started += 1
        if release is None:
            give_token(self.redis, "desktop", TOKEN)
        desk: Environ = {
            **({"CALLKEEPER_DESK_TOKENS": f"desktop:{TOKEN}"} if release else {}),
            "CALLKEEPER_PUSH_HEADERS": f"X-Push-Key: {PUSH_KEY}",
            "CALLKEEPER_RULES": "demo",
            "REDIS_URL": self.redis_url,
        }
        options = ("--host", "127.0.0.1", "--port", str(self.port))
        web = self.fleet.start(f"web-{self._started}", "web", *options, environ=desk, module=module)
        found = [web, *(self._worker(f"worker-{self._started}-{n}", module) for n in range(workers))]
        for each in found:
            wait_for_work(each)
        return found

    def _worker(self, name: str, module: tuple[str, ...]) -> ManagedProcess:
        environ = {**service_environment(self.service_url), **self.receiver.worker_environ, "CALLKEEPER_RULES": "demo"}
        if module != ("callkeeper",):  # the older release posts nothing to this machine without it
            environ["CALLKEEPER_OUTCOME_PRIVATE"] = "yes"
        return self.fleet.start(name, "worker", environ={**environ, "REDIS_URL": self.redis_url}, module=module)

    def begin(self, n: int, *script: dict[str, object], key: str = "cu-1") -> dict[str, Any]:
        """Start a call of the n-th member, who is the only candidate."""
        phone = population.phone(key, population.SHARED + n)
        body = {"institution_key": key, "phone_number": phone, "script": script}
        account: dict[str, Any] = self.control("POST", "/calls", body)
        return account

    def say(self, call: dict[str, Any], action: str, *, wait: int = 0, **body: object) -> dict[str, Any]:
        """Ask for an action at the desk."""
        address = f"/desk/calls/{call['institution_key']}/{call['voice_id']}/{action}"
        answer = self.desk.post(address, params={"wait": wait}, json={"operator": "agent-7", **body})
        assert answer.status_code < 300, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def verify(self, call: dict[str, Any]) -> None:
        """Say at the desk that the caller of a call is the member to whom the older release has assigned it."""
        person = until(lambda: (found := self.old_record(call)) and found.seen.person_id, 30, "the assign")
        self.say(call, "verified", person_id=person, validation_type="OneTimePasswordAuth")

    def old_record(self, call: dict[str, Any]) -> Call | None:
        """Return the older release's record of a call."""
        stored = self.redis.hget(f"ck:item:{CallId(call['institution_key'], call['voice_id']).member}", "rec")
        return None if stored is None else parse_call(stored)

    def old_settled(self, call: dict[str, Any]) -> Call | None:
        """Return the older release's record of a call if it is settled."""
        found = self.old_record(call)
        return found if found is not None and found.is_settled else None

    def command(self, *words: str) -> Result:
        """Run a command of ours."""
        return CliRunner(env={"REDIS_URL": self.redis_url}).invoke(main, words)

    def migrate(self) -> None:
        """Copy the data once no process of the older release counts as alive any more."""
        until(lambda: self.command("migrate").exit_code == 0, 20, "the copy", every_s=0.5)


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """Run the stand-in, Redis and a receiver of outcomes; web and workers come later."""
    port = free_port()
    push = ("--push-url", f"http://127.0.0.1:{port}/push", "--push-headers", f"X-Push-Key: {PUSH_KEY}")
    with (
        receiving() as receiver,
        embedded_redis(folder / "redis") as redis,
        Fleet(folder / "logs") as fleet,
        closing(Site(fleet, redis.url, start_sandbox(fleet, *push), port, receiver)) as found,
    ):
        yield found


def held_to_promises(site: Site, calls: list[dict[str, Any]]) -> None:
    """Assert that no call got a 21st check or a second effect."""
    for call in calls:
        arrived = site.arrived(call)
        assert arrived.get("check", 0) <= 20, arrived
        assert arrived.get("enroll", 0) <= 1, arrived
        assert arrived.get("reject_voice", 0) <= 1, arrived


def old_command(site: Site, released: Installed, *words: str) -> str:
    """Run a command of the older release; return what it printed."""
    command = [str(released.python), "-m", "callkeeper", *words]
    environ = {**released.environment(), "REDIS_URL": site.redis_url}
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout  # noqa: S603


@pytest.mark.timeout(300)
def test_data_of_the_released_version_go_on(tmp_path: Path, released: Installed) -> None:
    """Live calls keep checks, ledger and words, a pause holds, tokens are valid, outcomes are told, settled calls read.

    No process of ours starts before the data are copied, and they are not copied while one of theirs is alive.
    """
    with site(tmp_path) as at:
        web, *workers = at.start(released)
        at.receiver.status = lambda: 503
        enrolled, rejected, watched, waits = at.begin(0), at.begin(1, *MISMATCH), at.begin(2), at.begin(3)
        settled = at.begin(4, END)
        old_command(at, released, "tokens", "issue", "ivr")
        pause = ("pause", "--institution", "cu-2", "--because", "test", "--operator", "ann", "--force")
        old_command(at, released, *pause)
        held = at.begin(5, *MISMATCH, key="cu-2")
        at.verify(enrolled)
        until(lambda: at.arrived(enrolled).get("enroll") and at.arrived(rejected).get("reject_voice"), 40, "effects")
        until(lambda: at.arrived(held).get("check") and at.arrived(watched).get("check", 0) > 2, 30, "checks")
        until(partial(at.old_settled, settled), 40, "the end of a call")
        workers[0].kill()
        workers[1].stop()
        at.verify(waits)
        pushed = at.begin(6)
        refused = at.command("migrate")
        assert refused.exit_code == 1
        assert [line.partition(" ")[0] for line in refused.output.splitlines()[1:]] == ["web", "worker"]
        web.stop()
        with pytest.raises(FleetFailed, match="run: callkeeper migrate"):
            at.start(workers=0)
        at.migrate()
        at.receiver.status = lambda: 204
        calls = [enrolled, rejected, watched, waits, settled, held, pushed]
        checks = {call["voice_id"]: at.arrived(call).get("check", 0) for call in calls}
        at.start()
        until(lambda: "call.enrolled" in at.receiver.told(waits["voice_id"]), 30, "the word to be told")
        until(lambda: at.arrived(pushed).get("assign"), 30, "the assign of the call that was only pushed")
        for call in (enrolled, rejected, watched, waits, held, pushed):
            at.happen(call, "end")
        assert "cu-2" in at.command("pauses").output
        assert "reject_voice" not in at.arrived(held)
        assert at.command("resume", "--institution", "cu-2", "--operator", "ann", "--reason", "test").exit_code == 0
        for call in calls:
            assert at.settled(call).plan.checks_used >= at.arrived(call).get("check", 0) >= checks[call["voice_id"]]
        held_to_promises(at, calls)
        assert (
            at.arrived(waits)["enroll"] == at.arrived(enrolled)["enroll"] == at.arrived(rejected)["reject_voice"] == 1
        )
        assert "ivr" in at.command("tokens", "list").output
        until(lambda: at.receiver.told(settled["voice_id"]), 120, "the outcome that waited")
        assert at.command("calls", "explain", settled["voice_id"]).exit_code == 0
        assert at.command("migrate", "--finish").exit_code == 0
        assert [name for name in at.redis.keys("ck:*") if not name.startswith((b"ck:2:", b"ck:token"))] == []


@pytest.mark.timeout(300)
def test_released_version_goes_on_with_its_own_data(tmp_path: Path, released: Installed) -> None:
    """It starts again on the keys that were left. What ours did meanwhile it reads before it acts, and counts as spent."""
    with site(tmp_path) as at:
        processes = at.start(released)
        web, *workers = processes
        kinds = [at.begin(0), at.begin(1), at.begin(2)]
        until(lambda: all(at.arrived(call).get("check", 0) > 1 for call in kinds), 30, "checks")
        for each in workers:
            each.stop()
        at.verify(kinds[0])  # both words wait: neither release knows whether the other has acted on them
        at.say(kinds[1], "distrusted", reason="test")
        web.stop()
        before = [at.arrived(call)["check"] for call in kinds]
        at.migrate()
        processes = at.start()
        until(lambda: at.arrived(kinds[0]).get("enroll"), 60, "the enroll by our release")
        until(lambda: at.arrived(kinds[1]).get("reject_voice"), 60, "the reject by our release")
        until(lambda: at.arrived(kinds[2])["check"] > before[2], 60, "a check by our release")
        for each in processes:
            each.stop()
        ours = at.arrived(kinds[2])["check"]
        at.start(released)
        found = at.begin(3, END)
        until(partial(at.old_settled, found), 60, "a new call")
        until(lambda: at.arrived(kinds[2])["check"] > ours, 60, "a check by the older release")
        for call in kinds:
            at.happen(call, "end")
        for call in kinds:
            assert until(partial(at.old_settled, call), 60, "the end").plan.checks_used >= at.arrived(call).get(
                "check", 0
            )
        held_to_promises(at, [*kinds, found])
        refused = at.command("migrate")
        assert refused.exit_code == 1
        assert "--discard" in refused.output
