"""``rules report`` and ``rules replay`` read the archive, through the command line."""

import json
import os
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from callkeeper.app.cli import main
from callkeeper.archive.lines import content_of
from callkeeper.archive.writing import Writer
from callkeeper.calls.record import Call, Candidate, Life, Names, Phase, Plan, Reason, Seen
from callkeeper.calls.trail import Entry, Tried
from tests.harness.archivist import sqlite_archive
from tests.terminals import Terminal

CALLS = 40
SINCE = "4000d"
BEGAN = datetime(2021, 1, 1, tzinfo=UTC)


def simulated_call(n: int) -> tuple[Call, list[Entry]]:
    """Return the call with this number: settled, with a trail of nine or ten lines."""
    chance = Random(n)  # noqa: S311
    member = chance.randrange(200_000)
    at = BEGAN + timedelta(days=chance.randrange(1825))
    reason = chance.choice((Reason.ENROLLED, Reason.AUTHENTICATED, Reason.UNDECIDED, Reason.REJECTED))
    rule = f"rule {chance.randrange(12)}"
    digest = f"d{chance.randrange(40)}"
    name = f"First{member % 1000} Family{member % 20_000}"
    call = Call(
        institution_key=f"cu-{n % 20}",
        voice_id=f"v-{n}",
        life=Life(phase=Phase.SETTLED, reason=reason, started_at=at, settled_at=at + timedelta(seconds=90)),
        names=Names(phone_number=f"+1202{member % 10_000_000:07}"),
        seen=Seen(person_id=f"m-{member}", candidates=(Candidate(person_id=f"m-{member}", name=name),)),
        plan=Plan(checks_used=6),
    )
    tried = tuple(
        Tried(rule=f"rule {k}", then="enroll", stage="live", result="failed", fact="green", wanted=True, was=False)
        for k in range(6)
    )
    facts: dict[str, str | bool | int | None] = {
        "checks_used": 3,
        "assigned": True,
        "candidates": 1,
        "identity": "none",
    }
    came_s = 12 * chance.lognormvariate(0, 0.5)  # when the service had a result, if the call lasted that long
    trail = [
        Entry(at=at, what="pushed", event_id=f"ev-{n}"),
        Entry(at=at, what="listed", person_id=call.seen.person_id),
    ]
    trail += [
        Entry(
            at=at + timedelta(seconds=5 * k),
            what="checked",
            n=k,
            took_ms=120,
            status="InProgress",
            policies=("Green Voice",) if 5 * k >= came_s else (),
        )
        for k in range(1, 5)
    ]
    trail += [
        Entry(at=at, what="decided", kind="hold", asked="enroll", rule=rule, rules=digest, facts=facts, tried=tried),
        Entry(at=at, what="decided", kind="enroll", asked="enroll", rule=rule, rules=digest, facts=facts, tried=tried),
    ]
    if n % 10 == 0:
        trail.append(Entry(at=at, what="said", kind="verified", operator=f"agent-{chance.randrange(500)}"))
    trail.append(Entry(at=call.life.settled_at or at, what="settled", because=reason, n=6, rules=digest))
    return call, trail


def fill(folder: Path, numbers: Iterable[int] = range(CALLS)) -> str:
    """Write calls into a new archive, the first one in two versions; return its URL."""
    database = sqlite_archive(folder)
    writer = Writer(database)
    for n in numbers:
        call, trail = simulated_call(n)
        writer.write(call.institution_key, [content_of(call, trail)])
        if n == 0:
            later = [*trail, Entry(at=trail[-1].at, what="settled", because="again")]
            writer.write(call.institution_key, [content_of(call, later)])
    writer.close()
    return f"sqlite:///{folder}/archive.db"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an archive that tests only read."""
    return fill(tmp_path_factory.mktemp("learning"))


def type_in(url: str | None, *words: str) -> Result:
    """Run ``callkeeper`` with an archive; Redis is not needed."""
    return CliRunner().invoke(main, list(words), env={"CALLKEEPER_ARCHIVE_URL": url, "CALLKEEPER_RULES": None})


@pytest.fixture
def exported(url: str, tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Export the archive into a file; return its name. An export needs Redis, for the audit log."""
    name = os.fspath(tmp_path / "calls.jsonl")
    with monkeypatch.context() as patch:
        patch.setenv("REDIS_URL", redis_url)
        result = type_in(url, "calls", "export", "--archive", "--output", name)
    assert result.exit_code == 0, result.output
    return name


def test_report_reads_the_archive(url: str, exported: str) -> None:
    """Each call counts once, in its last version; the same figures come out of an export of the archive."""
    result = type_in(url, "rules", "report", "--archive", "--since", SINCE, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    trails = [simulated_call(n)[1] for n in range(CALLS)]
    matched = sum(len({entry.rule for entry in trail if entry.rule}) for trail in trails)
    assert found["calls"] == CALLS
    assert sum(line["tally"]["matched"] for line in found["rules"]) == matched == CALLS
    assert found["digests"] == sorted({entry.rules for trail in trails for entry in trail if entry.rules})
    told = type_in(url, "rules", "report", "--calls", exported, "--json")
    assert told.output == result.output


def test_report_of_a_time_leaves_older_calls_out(url: str) -> None:
    """The generated calls are older than a day."""
    result = type_in(url, "rules", "report", "--archive", "--since", "1d", "--json")
    assert json.loads(result.output)["calls"] == 0


def test_replay_reads_the_archive(url: str, exported: str) -> None:
    """Every call was enrolled, and the demonstration's rules enroll none of them; an export says the same."""
    result = type_in(url, "rules", "replay", "demo", "--archive")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == f"{CALLS} calls: {CALLS} end differently, 0 the same"
    assert type_in(url, "rules", "replay", "demo", "--calls", exported).output == result.output


def test_differences_go_to_the_file_and_the_progress_to_the_terminal(url: str, tmp_path: Path) -> None:
    """With output into a file, the terminal shows the progress alone: differences are written while calls are read."""
    command = f"'{sys.executable}' -m callkeeper rules replay demo --archive --json > {tmp_path}/found.jsonl"
    environ = {"PATH": os.environ["PATH"], "TERM": "xterm", "CALLKEEPER_ARCHIVE_URL": url}
    with Terminal("sh", "-c", command, cwd=Path(__file__).parents[3], environ=environ) as terminal:
        assert terminal.exit_code(30) == 0
    found = [json.loads(line)["voice_id"] for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert sorted(found) == sorted(f"v-{n}" for n in range(CALLS))
    assert "calls" in terminal.text


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (("calls", "export", "--archive"), '"voice_id":"v-29"'),
        (("rules", "replay", "demo", "--archive"), "37 calls: 37 end differently"),
        (("rules", "report", "--archive", "--since", SINCE), "37 calls"),
    ],
    ids=lambda words: " ".join(words[:2]) if isinstance(words, tuple) else "",
)
def test_changed_lines_hide_no_other_call(
    words: tuple[str, ...], first: str, tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are read and the result is printed; then the command fails, and names the first of the lines."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    url = fill(tmp_path)
    with closing(sqlite3.connect(tmp_path / "archive.db")) as database, database:
        bodies = [("{}", "v-3"), ("[" * 5000, "v-4"), ('{"call": 1, "trail": []}', "v-5")]
        database.executemany("UPDATE archive_lines SET body = ? WHERE voice_id = ?", bodies)
    result = type_in(url, *words)
    assert (result.exit_code, first in result.output) == (1, True), result.output[-500:]
    assert "3 archived calls left out: line 1 of" in result.stderr


@pytest.mark.parametrize("words", [("rules", "report"), ("rules", "replay", "demo")])
def test_without_an_archive_they_say_which_setting_is_missing(words: tuple[str, ...]) -> None:
    """The error names the missing setting, without a traceback."""
    result = type_in(None, *words, "--archive")
    assert result.exit_code == 2
    assert "CALLKEEPER_ARCHIVE_URL" in result.output
