"""``callkeeper outcomes``: the delivery log, posting again, a test, at the command line."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from click.testing import CliRunner, Result

from callkeeper.app.cli import main
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.courier import Courier, deliver

Run = Callable[..., Awaitable[Result]]


@pytest.fixture
async def courier(begun_now: None, courier: Courier) -> Courier:
    """Return a rig that has announced its receiver."""
    await courier.attempts.announce(courier.deliveries.client.place)
    return courier


@pytest.fixture
def run(courier: Courier, redis_url: str) -> Run:
    """Return what runs a command while a worker works."""

    async def run(*arguments: str) -> Result:
        command = asyncio.ensure_future(
            asyncio.to_thread(CliRunner(env={"REDIS_URL": redis_url}).invoke, main, ["outcomes", *arguments])
        )
        while not command.done():
            courier.stage.advance(0.1)
            await deliver(courier.deliveries)
            await asyncio.sleep(0.01)
        return await command

    return run


async def test_log_and_replay(courier: Courier, run: Run) -> None:
    """What was posted is listed by its id; by that id it is posted again; what failed is posted when that is asked."""
    courier.receiver.status = lambda: 400
    call = await courier.begin_call(Happening(Kind.GREEN, 5), Happening(Kind.END, 30), run_s=60, is_pushed=False)
    told = await run("log", "--failed", "--json")
    rows = [json.loads(line) for line in told.output.splitlines()]
    assert {row["status"] for row in rows} == {400}
    courier.receiver.status = lambda: 204
    replayed = await run("replay", "--failed-since", "1h")
    assert (replayed.exit_code, "outcomes of 1 call:" in replayed.output) == (0, True), replayed.output
    await courier.run(1)
    assert len(courier.receiver.ids) == 2
    again = await run("replay", rows[0]["id"])
    assert again.exit_code == 0, again.output
    await courier.run(1)
    assert courier.receiver.ids[2:] == [rows[0]["id"]]
    listed = await run("log", rows[0]["id"], "--limit", "1")
    assert "replay" in listed.output
    assert call.phone_number not in listed.output


async def test_test_says_what_was_answered(courier: Courier, run: Run) -> None:
    """Accepted: exit 0. Refused: exit 1 with the status. No worker posts: exit 2 with the setting."""
    taken = await run("test")
    assert (taken.exit_code, taken.output.startswith("accepted: 204 after")) == (0, True), taken.output
    courier.receiver.status = lambda: 500
    refused = await run("test")
    assert (refused.exit_code, "not accepted: 500" in refused.output) == (1, True), refused.output
    await courier.redis.delete(Keys().outbox.receiver)
    for command in (("test",), ("replay", "--failed-since", "1h")):
        nobody = await run(*command)
        assert (nobody.exit_code, "CALLKEEPER_OUTCOME_URL" in nobody.output) == (2, True), nobody.output
