"""``callkeeper rules``, ``calls explain`` and ``calls export`` as they are typed."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from redis.asyncio import Redis

from callkeeper.app.cli import main
from callkeeper.calls.facts import FACTS
from callkeeper.calls.rules import load_rules
from callkeeper.calls.rules.condition_parsing import forms_of
from callkeeper.calls.trail import parse_recordings
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import Asgi

SOUND = """\
[checks]
at = [10, 20, 40]

[[rule]]
name = "otherwise"
then = "hold"
because = "We only watch."
"""


def type_in(*words: str, redis_url: str = "") -> Result:
    """Run ``callkeeper`` with these words."""
    return CliRunner().invoke(main, list(words), env={"REDIS_URL": redis_url or None})


@pytest.fixture
async def enrolled(begun_now: None, sandbox_asgi: Asgi, redis: Redis, redis_url: str) -> tuple[str, str]:
    """Run a call to its end on a real Redis; return the Redis's URL and the call's voice id."""
    rig = Rig(sandbox_asgi, redis, load_rules("demo"))
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 5, "operator-2"), Happening(Kind.END, 30), run_s=45)
    return redis_url, call.voice_id


def test_rules_check_accepts_what_is_shipped() -> None:
    """Shipped rules are known by name and have no fault."""
    for name in ("default", "demo", "watch-only"):
        result = type_in("rules", "check", name)
        assert result.exit_code == 0
        assert f"{name}: no faults." in result.output
        assert load_rules(name).digest in result.output


def test_rules_check_tells_every_fault_and_exits_with_2(tmp_path: Path) -> None:
    """Faults go to the error stream, one a line, with file and line; the exit code is for a CI."""
    path = tmp_path / "rules.toml"
    path.write_text(SOUND.replace("at =", "att =").replace('"hold"', '"held"'))
    result = type_in("rules", "check", str(path))
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert [line.split(":")[1] for line in lines[:4]] == ["1", "2", "4", "6"]
    assert lines[-1] == f"{path}: 4 faults"


def test_rules_check_knows_the_institutions_that_are_owned(tmp_path: Path) -> None:
    """With ``--institutions`` a rule for another one is a fault."""
    path = tmp_path / "rules.toml"
    path.write_text(
        SOUND.replace(
            "[[rule]]", '[[rule]]\nname = "x"\nthen = "hold"\nbecause = "y"\ninstitutions = ["cu-9"]\n[[rule]]'
        )
    )
    assert type_in("rules", "check", str(path)).exit_code == 0
    result = type_in("rules", "check", str(path), "--institutions", "cu-1, cu-2")
    assert "institution 'cu-9' is not one of the account's" in result.stderr


def test_rules_test_exits_with_1_when_a_case_fails(tmp_path: Path) -> None:
    """0: all pass, 1: one fails, 2: a file has faults."""
    cases = tmp_path / "cases.toml"
    (tmp_path / "rules.toml").write_text(SOUND)
    text = 'rules = "rules.toml"\n[[case]]\nname = "watch"\nexpect = "hold"\n'
    for written, code in ((text, 0), (text.replace('"hold"', '"enroll"'), 1), (text.replace("expect", "except"), 2)):
        cases.write_text(written)
        assert type_in("rules", "test", str(cases)).exit_code == code
    cases.write_text(text)
    assert type_in("rules", "test", str(cases), "--rules", str(tmp_path / "none.toml")).exit_code == 2
    for wrong in ('shadow = ["nobody"]', 'rule = "nobody"'):
        cases.write_text(f"{text}{wrong}\n")
        told = type_in("rules", "test", str(cases))
        assert (told.exit_code, "there is no rule 'nobody'" in told.output) == (1, True), wrong


async def test_a_call_is_explained_exported_replayed_and_reported(enrolled: tuple[str, str], tmp_path: Path) -> None:
    """What happened to a call can be read, taken away, tried on other rules and counted."""
    redis_url, voice_id = enrolled
    explained = await asyncio.to_thread(type_in, "calls", "explain", voice_id, "--all", redis_url=redis_url)
    assert explained.exit_code == 0
    assert "decided: enroll with OneTimePasswordAuth, by rule 'verified'" in explained.output
    assert "+ verified" in explained.output
    assert max(map(len, explained.output.splitlines())) <= 120
    brief = await asyncio.to_thread(type_in, "calls", "explain", voice_id, redis_url=redis_url)
    assert "decided: enroll with OneTimePasswordAuth, by rule 'verified'" in brief.output
    assert "+ verified" not in brief.output
    assert len(brief.output.splitlines()) <= 15 < len(explained.output.splitlines())
    path = tmp_path / "trail.jsonl"
    await asyncio.to_thread(type_in, "calls", "export", "--output", str(path), redis_url=redis_url)
    (call,) = parse_recordings(path.read_bytes().splitlines())
    assert (call.voice_id, call.enroll) == (voice_id, "applied")
    replayed = await asyncio.to_thread(type_in, "rules", "replay", "watch-only", "--calls", str(path))
    assert "then  enroll with OneTimePasswordAuth by 'verified'" in replayed.output
    assert replayed.output.splitlines()[:2] == ["1 call: 1 end differently, 0 the same", "1 enroll to hold"]
    for source in (["--calls", str(path)], ["--since", "1h"]):
        told = await asyncio.to_thread(type_in, "rules", "report", "--json", *source, redis_url=redis_url)
        tallies = {row["rule"]: row["tally"] for row in json.loads(told.output)["rules"]}
        assert tallies["verified"]["sent"] == {"enroll": 1}
        assert tallies["verified"]["ended"] == {"applied": 1}


CALM = "when.verified = true\n"
"""The conditions of the demo's rule that enrolls on the service's word."""

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "rulebook" / "rules.toml"


def test_example_uses_every_form_and_passes_its_cases() -> None:
    """One rule book uses each condition, dates, an opt-in and ``ask``; its cases come out as written."""
    text = EXAMPLE.read_text(encoding="utf-8")
    forms = {form for name in FACTS for form in forms_of(name)} | {
        "on_red_alone",
        "against_mismatch",
        "valid_from",
        "valid_until",
    }
    assert {form for form in forms if f"{form} =" not in text} == set()
    assert '"ask"' in text
    result = type_in("rules", "test", str(EXAMPLE.with_name("cases.toml")))
    assert result.exit_code == 0
    assert result.output.endswith("30 cases, 30 pass, 0 fail\n")


async def test_replay_against_rules_says_in_words_what_changes_and_for_which_calls(
    enrolled: tuple[str, str], tmp_path: Path
) -> None:
    """Settings, rules that are gone, new or changed; then the recorded calls that end differently, and why."""
    redis_url, voice_id = enrolled
    path = tmp_path / "trail.jsonl"
    await asyncio.to_thread(type_in, "calls", "export", "--output", str(path), redis_url=redis_url)
    demo = (Path(__file__).parents[3] / "callkeeper" / "calls" / "rulebooks" / "demo.toml").read_text(encoding="utf-8")
    new = tmp_path / "new.toml"
    new.write_text(demo.replace(CALM, f"{CALM}when.opted_in = true\n"))
    told = type_in("rules", "replay", str(new), "--against", "demo", "--calls", str(path)).output.splitlines()
    assert told[1:] == [
        "rule 'verified': also needs opted_in = true",
        "",
        "1 call: 1 end differently, 0 the same",
        "1 enroll to hold",
        "",
        f"cu-1  {voice_id}",
        told[7],
        "    new   hold",
        "    why   'verified' wants opted_in true, it was false",
    ]
    assert told[7].startswith("    old   enroll with OneTimePasswordAuth by 'verified' at ")
    assert "nothing changes" in type_in("rules", "replay", "demo", "--against", "demo").output
    back = type_in("rules", "replay", "demo", "--against", str(new), "--calls", str(path)).output
    assert "'verified' matches; by the old rules 'verified' wants opted_in true, it was false" in back


def test_report_warns_of_what_an_institution_has_accepted(tmp_path: Path) -> None:
    """What an institution allowed itself stays visible: in the report, as a table and as JSON, and in ``rules check``."""
    (tmp_path / "trail.jsonl").write_text("")
    words = ("rules", "report", "--calls", str(tmp_path / "trail.jsonl"), "--rules", str(EXAMPLE))
    warnings = [
        "cu-1: rule 'red alone' rejects on a red policy alone ([reject] on_red_alone)",
        "cu-2: rule 'verified against a mismatch' enrolls a voice that does not match ([enroll] against_mismatch)",
    ]
    for warning in warnings:
        assert f"warning: {warning}" in type_in(*words).output
        assert f"warning: {warning}" in type_in("rules", "check", str(EXAMPLE)).output
    assert json.loads(type_in(*words, "--json").output)["warnings"] == warnings


def test_replay_refuses_what_is_no_export(tmp_path: Path) -> None:
    """A file of another shape is named with its line."""
    path = tmp_path / "other.jsonl"
    path.write_text('{"a": 1}\n')
    result = type_in("rules", "replay", "default", "--calls", str(path))
    assert result.exit_code == 1
    assert "line 1 is not a call as exported" in result.output


def test_worker_refuses_to_start_on_faulty_rules(tmp_path: Path, redis_url: str) -> None:
    """A worker with a faulty file says every fault and ends with 2: no traceback, nothing started."""
    path = tmp_path / "rules.toml"
    path.write_text(SOUND.replace('"hold"', '"held"'))
    environ = {
        **os.environ,
        "REDIS_URL": redis_url,
        "CALLKEEPER_SERVICE_URL": "http://127.0.0.1:9",
        "CALLKEEPER_ACCESS_TOKEN": "token-for-tests",
        "CALLKEEPER_EMAIL": "svc@reseller.example",
        "CALLKEEPER_PASSWORD": "password-for-tests",
        "CALLKEEPER_REQUESTED_BY": "bot",
        "CALLKEEPER_RULES": str(path),
    }
    ended = subprocess.run(
        [sys.executable, "-m", "callkeeper", "worker"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert f"{path}:6: rule 'otherwise': then cannot be 'held'; did you mean 'hold'?" in ended.stderr
    assert "Traceback" not in ended.stderr


RISKY = (
    '[[rule]]\nname = "passcode"\nwhen = {{ {} }}\nthen = "enroll"\nvalidation_type = "as_verified"\nbecause = "."\n'
)
DISTRUST = '[[rule]]\nname = "distrusted"\nwhen = { distrusted = true }\nthen = "reject"\nbecause = "."\n'
ASK_IN_SHADOW = (
    '[[rule]]\nname = "mismatch"\nwhen = { voice_mismatch = true }\nthen = "ask"\nbecause = "."\nstage = "shadow"\n'
)
BLIND = "verified = true, final_analysis = true, voice_mismatch = false, high_risk_device = false"
SAFE = f"{BLIND}, rejected_before = false"


@pytest.mark.parametrize(
    ("rules", "warning"),
    [
        (RISKY.format("verified = true"), "no rule reacts to distrusted = true alone"),
        (DISTRUST.replace("true }", "true, voice_mismatch = true }"), "no rule reacts to distrusted = true alone"),
        (DISTRUST + 'institutions = ["cu-1"]\n', "only for cu-1 a live rule reacts to distrusted = true alone"),
        (DISTRUST + "valid_from = 2027-01-01T00:00:00Z\n", "no rule reacts to distrusted = true alone"),
        (DISTRUST + 'stage = "shadow"\n' + RISKY.format(SAFE), "rule 'distrusted' is in shadow"),
        (
            DISTRUST + RISKY.format("verified = true, final_analysis = true"),
            "rule 'passcode': it enrolls on nobody's word without voice_mismatch = false and high_risk_device = false",
        ),
        (DISTRUST + RISKY.format(BLIND), "looks at nothing of earlier calls: name rejected_before = false, "),
        (DISTRUST + RISKY.format(SAFE.replace("final_analysis", "voice_checked")), "without final_analysis = true"),
        (DISTRUST + ASK_IN_SHADOW + RISKY.format(SAFE), "that ask a person are in shadow: 'mismatch'"),
        ("[history]\ndays = 0\n" + DISTRUST + RISKY.format(SAFE + ", fraud_before = false"), "[history] days is 0"),
    ],
)
def test_check_names_what_the_author_may_have_forgotten(tmp_path: Path, rules: str, warning: str) -> None:
    """What a fraudster could use, although the file is sound, is a warning."""
    path = tmp_path / "rules.toml"
    path.write_text(f'[checks]\nat = [10, 20]\n{rules}[[rule]]\nname = "otherwise"\nthen = "hold"\nbecause = "."\n')
    result = type_in("rules", "check", str(path))
    assert result.exit_code == 0
    assert warning in result.output


def test_rules_in_shadow_for_another_institution_are_no_oversight(tmp_path: Path) -> None:
    """One institution is watched while another is live: what is in shadow for the first takes nothing from the second."""
    path = tmp_path / "rules.toml"
    watched, live = 'institutions = ["cu-2"]\n', 'institutions = ["cu-1"]\n'
    rules = DISTRUST + ASK_IN_SHADOW + watched + RISKY.format(SAFE) + live
    path.write_text(f'[checks]\nat = [10, 20]\n{rules}[[rule]]\nname = "otherwise"\nthen = "hold"\nbecause = "."\n')
    assert "warning" not in type_in("rules", "check", str(path)).output
    path.write_text(path.read_text().replace(live, ""))
    assert "that ask a person are in shadow: 'mismatch'" in type_in("rules", "check", str(path)).output


def test_shipped_rules_have_no_oversight() -> None:
    """Neither the shipped rules nor the example are warned about, but for what the example allows on purpose."""
    for name in ("default", "demo", "watch-only", str(EXAMPLE)):
        assert load_rules(name).oversights == []


def test_calls_of_a_file_and_of_the_archive_exclude_each_other(tmp_path: Path) -> None:
    """Neither is left out without a word."""
    exported = tmp_path / "calls.jsonl"
    exported.write_bytes(b"")
    result = CliRunner().invoke(main, ["rules", "report", "--calls", str(exported), "--archive"])
    assert (result.exit_code, "give --calls FILE, or --archive" in result.output) == (2, True)
