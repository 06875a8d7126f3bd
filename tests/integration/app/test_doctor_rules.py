"""What ``callkeeper doctor`` says of rules and pauses."""

from pathlib import Path

import pytest
from redis.asyncio import Redis

from callkeeper.app.doctor import Finding, Severity, examine
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.last_listing import Listings, Standing
from callkeeper.calls.store.pausing import Pausing
from tests.sandbox_fixtures import START, ServedSandbox

RULEBOOKS = Path(__file__).parents[3] / "callkeeper" / "calls" / "rulebooks"
UNDECIDED, DECIDED = "# [consent]\n# require_opt_in = true", "[consent]\nrequire_opt_in = "
RULES = """\
[checks]
at = [10]

[[rule]]
name = "elsewhere"
institutions = ["cu-9"]
then = "hold"
because = "x"

[[rule]]
name = "otherwise"
then = "hold"
because = "x"
"""


async def findings(redis_url: str, sandbox: ServedSandbox, **more: str) -> list[Finding]:
    """Return what the doctor finds of rules and pauses."""
    own = sandbox.credentials
    environ = {
        "REDIS_URL": redis_url,
        "CALLKEEPER_SERVICE_URL": sandbox.url,
        "CALLKEEPER_ACCESS_TOKEN": own.access_token,
        "CALLKEEPER_EMAIL": own.email,
        "CALLKEEPER_PASSWORD": own.password,
        "CALLKEEPER_REQUESTED_BY": "bot",
        "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: 0123456789abcdef0123456789abcdef",
        **more,
    }
    return [finding async for finding in examine(environ) if finding.what in {"rules", "pause"}]


async def test_doctor_names_the_digest_in_force_and_every_pause(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """The digest is the one that trails hold; a pause is a warning with who, why and the remedy."""
    async with Redis.from_url(redis_url) as redis:
        asked = Pause(scope=PauseScope.EFFECTS, operator="jane", because="drill", at=START)
        await Listings(redis).save_standings([Standing(key="cu-1")])
        await Pausing(redis).pause("cu-1", asked)
    rules, _, pause = await findings(redis_url, sandbox_server, CALLKEEPER_RULES="watch-only")
    assert load_rules("watch-only").digest in rules.detail
    assert "24 of them in shadow" in rules.detail
    assert (pause.severity, pause.detail) == (
        Severity.WARNING,
        "cu-1: enrolls and rejects, by jane: drill (since 2026-11-21 12:00:00 UTC)",
    )


@pytest.mark.parametrize("rules", ["default", "demo", "watch-only"])
async def test_doctor_warns_until_somebody_has_decided_about_consent(
    redis_url: str, sandbox_server: ServedSandbox, tmp_path: Path, rules: str
) -> None:
    """Shipped rules leave it open. Whichever way it is set, nothing more is said."""
    shipped, path = (RULEBOOKS / f"{rules}.toml").read_text(encoding="utf-8"), tmp_path / "rules.toml"
    assert UNDECIDED in shipped
    for consent, more in ((UNDECIDED, [Severity.WARNING]), (DECIDED + "true", []), (DECIDED + "false", [])):
        path.write_text(shipped.replace(UNDECIDED, consent))
        found = await findings(redis_url, sandbox_server, CALLKEEPER_RULES=str(path))
        assert [one.severity for one in found if one.what == "rules" and "opt-in" in one.detail] == more


async def test_doctor_does_not_say_that_a_pause_of_nobody_holds_anything(
    redis_url: str, sandbox_server: ServedSandbox
) -> None:
    """A pause of an institution that does not exist is told as one that holds no call, with the nearest that exists."""
    async with Redis.from_url(redis_url) as redis:
        await Listings(redis).save_standings([Standing(key="cu-1")])
        asked = Pause(scope=PauseScope.EFFECTS, operator="jane", because="drill", at=START)
        await Pausing(redis).pause("CU-1", asked)
    *_, pause = await findings(redis_url, sandbox_server)
    assert pause.severity is Severity.WARNING
    assert pause.detail.endswith(
        "it holds no call now: callkeeper knows no institution with the key 'CU-1'; did you mean cu-1?"
    )


async def test_doctor_tells_a_rule_for_an_institution_that_is_not_ours(
    redis_url: str, sandbox_server: ServedSandbox, tmp_path: Path
) -> None:
    """What only the login can tell is told after it, with line and rule."""
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    sound, foreign, _ = await findings(redis_url, sandbox_server, CALLKEEPER_RULES=str(path))
    assert (sound.severity, foreign.severity) == (Severity.OK, Severity.FAULT)
    assert foreign.detail.startswith(f"{path}:6: rule 'elsewhere': institution 'cu-9' is not one of the account's")


async def test_doctor_tells_every_fault_of_the_rules(
    redis_url: str, sandbox_server: ServedSandbox, tmp_path: Path
) -> None:
    """Each fault is a finding of its own."""
    path = tmp_path / "rules.toml"
    path.write_text(RULES.replace('"hold"', '"held"'))
    *faults, pause = await findings(redis_url, sandbox_server, CALLKEEPER_RULES=str(path))
    assert [(finding.what, finding.severity) for finding in faults] == [("rules", Severity.FAULT)] * 4
    assert pause.severity is Severity.OK
