"""The desk with real processes: two web processes, workers, Redis, the sandbox, a receiver of webhooks."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from callkeeper_sandbox.demo.fleet import ManagedProcess
from tests.harness.courier import Receiver, receiving
from tests.harness.desk_tokens import give_token
from tests.harness.processes import KEY, Stack, end, frozen, stack, web_url
from tests.waiting import until

TOKEN = "ckt_canary-desktop-0123456789-4c07a65e93d2"
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "desk_client.py"


@pytest.mark.parametrize("name", ["agent_page", "desk_client", "outcome_receiver"])
def test_example_without_its_arguments_says_what_it_takes(name: str) -> None:
    """Whoever tries an example first sees its usage, not a traceback."""
    program = EXAMPLE.with_name(f"{name}.py")
    told = subprocess.run(  # noqa: S603
        [sys.executable, program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (told.returncode, told.stdout, told.stderr.count("\n")) == (2, "", 1)
    assert told.stderr.startswith(f"usage: python {name}.py ")


class Floor:
    """A running stack with a client of its desk and a receiver of webhooks."""

    def __init__(self, stack: Stack, receiver: Receiver) -> None:
        self.stack = stack
        self.receiver = receiver
        self.desk = self.client(stack.demo.web_url)

    @staticmethod
    def client(url: str) -> httpx.Client:
        """Return a client of one web process."""
        return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=15)

    @property
    def workers(self) -> list[ManagedProcess]:
        """Return the worker processes."""
        return [member for member in self.stack.demo.fleet.members if member.name.startswith("worker")]

    def say(self, call: dict[str, Any], action: str, *, operator: str = "agent-7", **body: object) -> Any:
        """Ask for an action on a call, and wait for its result."""
        address = f"/desk/calls/{KEY}/{call['voice_id']}/{action}"
        answer = self.desk.post(address, params={"wait": 10}, json={"operator": operator, **body})
        return answer.json()

    def assigned(self, call: dict[str, Any]) -> str:
        """Wait until a call is assigned and read; return the person id."""

        def look() -> str | None:
            record = self.stack.record(call)
            return record.seen.person_id if record is not None and record.seen.reading is not None else None

        return until(look, 15, "an assigned call")


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    """Run a stack with a desk and a receiver."""
    with receiving() as receiver:
        folder = tmp_path_factory.mktemp("desk")
        with stack(folder, workers=2, worker_environ=receiver.worker_environ) as running:
            give_token(running.redis, "desktop", TOKEN)
            floor = Floor(running, receiver)
            with floor.desk:
                yield floor


def events(stream: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the id and the data of a stream's events."""
    event_id = ""
    for line in stream.iter_lines():
        field, _, value = line.partition(": ")
        if field == "id":
            event_id = value
        elif field == "data":
            yield event_id, json.loads(value)


def test_desk_agent_verifies_and_the_voice_is_enrolled_once(floor: Floor) -> None:
    """A verification leads to one enroll in the agent's name, and to signed webhooks in order."""
    call = floor.stack.call({"kind": "end", "after_s": 8})
    said = floor.say(call, "verified", person_id=floor.assigned(call), validation_type="OneTimePasswordAuth")
    assert (said["state"], said["operator"]) == ("done", "agent-7")
    account = floor.stack.account(call)
    assert account["tally"]["arrived"]["enroll"] == 1
    assert account["verifications"][-1]["validation_type"] == "OneTimePasswordAuth"
    assert [a["requested_by"] for a in account["arrivals"] if a["operation"] == "enroll"] == ["agent-7"]
    floor.stack.settled(call)
    until(lambda: len(floor.receiver.told(call["voice_id"])) == 2, 10, "two outcomes")
    assert floor.receiver.told(call["voice_id"]) == ["call.enrolled", "call.settled"]


def test_desk_agent_distrusts_and_the_voice_is_rejected_once(floor: Floor) -> None:
    """Distrust by the alternate id leads to one reject; a later verification is refused with what forbids it."""
    call = floor.stack.call({"kind": "end", "after_s": 60})
    person = floor.assigned(call)
    until(lambda: floor.stack.redis.exists(f"ck:2:alias:{KEY}:{call['alternate_id']}"), 5, "the push")
    said = floor.say(
        {**call, "voice_id": call["alternate_id"]}, "distrusted", operator="agent-8", reason="a second voice"
    )
    assert said["state"] == "done"
    assert floor.stack.arrived(call)["reject_voice"] == 1
    refused = floor.say(call, "verified", person_id=person, validation_type="OneTimePasswordAuth")
    assert (refused["code"], refused["facts"][0]["name"]) == ("forbidden", "rejected")


def test_enroll_that_a_reject_undoes_is_sent_to_the_receiver(floor: Floor) -> None:
    """If another call of the same member is rejected, a webhook says that the enroll was undone."""
    call = floor.stack.call(end(60))
    floor.say(call, "verified", person_id=floor.assigned(call), validation_type="OneTimePasswordAuth")
    later = floor.stack.call(end(60), phone_number=call["phone_number"])
    floor.assigned(later)
    assert floor.say(later, "distrusted", operator="agent-8", reason="a second voice")["state"] == "done"
    until(lambda: len(floor.receiver.told(call["voice_id"])) == 2, 10, "two outcomes")
    assert floor.receiver.told(call["voice_id"]) == ["call.enrolled", "call.unenrolled"]


def test_desks_that_contradict_each_other_at_once_have_one_outcome(floor: Floor) -> None:
    """If two desks verify and distrust at once, the voice is rejected and the verification held with a reason."""
    call = floor.stack.call({"kind": "end", "after_s": 60})
    person = floor.assigned(call)
    web = floor.stack.start("web", "web-c")
    with floor.client(web_url(web)) as other:
        with frozen(*floor.workers):
            verified = floor.desk.post(
                f"/desk/calls/{KEY}/{call['voice_id']}/verified",
                json={"operator": "agent-7", "person_id": person, "validation_type": "OneTimePasswordAuth"},
            )
            distrusted = other.post(
                f"/desk/calls/{KEY}/{call['voice_id']}/distrusted",
                json={"operator": "agent-8", "reason": "a second voice"},
            )
        told = [
            client.get(said.headers["location"], params={"wait": 10}).json()
            for client, said in ((floor.desk, verified), (other, distrusted))
        ]
    web.stop()
    assert [wish["state"] for wish in told] == ["held", "done"]
    reasons = {reason["name"] for reason in told[0]["reasons"]}
    assert reasons
    assert reasons <= {"caller_distrusted", "distrusted", "voice_rejected"}
    arrived = floor.stack.arrived(call)
    assert (arrived.get("enroll", 0), arrived["reject_voice"]) == (0, 1)


def test_stream_survives_a_restart_of_web_without_loss(floor: Floor) -> None:
    """A client that reconnects to another process after a restart gets all changes since its last event."""
    web = floor.stack.start("web", "web-b")
    with floor.client(web_url(web)) as client:
        call = floor.stack.call({"kind": "end", "after_s": 60})
        with client.stream("GET", "/desk/stream") as stream:
            seen, _ = next(event for event in events(stream) if event[1]["voice_id"] == call["voice_id"])
            assert web.stop() < 5, "an open stream delayed the end of the process"
    missed = floor.stack.call({"kind": "end", "after_s": 60})
    floor.assigned(missed)
    with floor.desk.stream("GET", "/desk/stream", headers={"Last-Event-ID": seen}) as stream:
        assert any(data["voice_id"] == missed["voice_id"] for _, data in events(stream))


def test_receiver_that_was_down_gets_everything_in_order(floor: Floor) -> None:
    """While the receiver is down calls are settled; when it is back it gets all webhooks in order."""
    floor.receiver.status = lambda: 503
    call = floor.stack.call({"kind": "green", "after_s": 2}, {"kind": "end", "after_s": 6})
    floor.stack.settled(call)
    assert floor.receiver.told(call["voice_id"]) == []
    floor.receiver.status = lambda: 204
    until(lambda: len(floor.receiver.told(call["voice_id"])) == 2, 50, "two outcomes")
    assert floor.receiver.told(call["voice_id"]) == ["call.authenticated", "call.settled"]


def test_example_client_follows_and_verifies(floor: Floor, tmp_path: Path) -> None:
    """The documentation's example client verifies the call that it waits for, which is then enrolled."""
    token = tmp_path / "token.txt"
    token.write_text(TOKEN)
    arguments = [sys.executable, str(EXAMPLE), floor.stack.demo.web_url, str(token), "agent-9"]
    phone = floor.stack.next_phone()
    with subprocess.Popen([*arguments, phone], stdout=subprocess.PIPE, text=True) as client:  # noqa: S603
        assert client.stdout is not None
        assert client.stdout.readline() == "following\n"
        call = floor.stack.call({"kind": "end", "after_s": 60})
        said = json.loads(client.stdout.readline())
        assert (said["state"], said["operator"]) == ("done", "agent-9")
        client.terminate()
    assert floor.stack.arrived(call)["enroll"] == 1
