"""Commands other than ``pause`` refuse an unknown institution and name the most similar one."""

import asyncio

import pytest
from click.testing import CliRunner, Result

from callkeeper.app.cli import main
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Rig

MEANT = "callkeeper knows no institution with the key 'CU-1'; did you mean cu-1 (First Example Credit Union)?"


async def callkeeper(redis_url: str | None, *arguments: str) -> Result:
    """Run a command as the command line does, beside the loop of the test."""
    runner = CliRunner(env={"REDIS_URL": redis_url})
    return await asyncio.to_thread(runner.invoke, main, list(arguments))


@pytest.fixture
async def voice_id(begun_now: None, rig: Rig) -> str:
    """Return the id of a live call of cu-1."""
    call = await rig.begin_call(Happening(Kind.END, 120), run_s=3, is_pushed=False)
    return call.voice_id


@pytest.mark.parametrize(
    "command",
    [("explain",), ("resolve", "--absent", "--operator", "ann")],
    ids=lambda command: command[0],
)
async def test_calls_commands_refuse_an_unknown_institution(
    redis_url: str, voice_id: str, command: tuple[str, ...]
) -> None:
    """Every command about one call says that the institution is wrong, rather than that the call is unknown."""
    name, *options = command
    result = await callkeeper(redis_url, "calls", name, voice_id, "--institution", "CU-1", *options)
    assert (result.exit_code, MEANT in result.stderr) == (1, True), result.output


async def test_replay_refuses_an_unknown_institution(redis_url: str, voice_id: str) -> None:
    """`outcomes replay` refuses it with the same message."""
    result = await callkeeper(redis_url, "outcomes", "replay", voice_id, "--institution", "CU-1")
    assert (result.exit_code, MEANT in result.stderr) == (1, True), result.output


async def test_calls_explain_tells_a_wrong_id_from_a_wrong_institution(redis_url: str, voice_id: str) -> None:
    """An unknown id at a known institution is a failure, not misuse."""
    result = await callkeeper(redis_url, "calls", "explain", "v-none", "--institution", "cu-1")
    assert (result.exit_code, result.stderr) == (1, "Error: nothing is known of v-none at cu-1\n")
