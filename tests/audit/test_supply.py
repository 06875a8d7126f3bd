"""Dependencies are locked with hashes, listed in a bill of materials, and checked for vulnerabilities."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.audit.advisories import LOCK, judge, main


def report(*packages: dict[str, Any]) -> dict[str, Any]:
    """Return a report as pip-audit writes it."""
    return {"dependencies": list(packages), "fixes": []}


SOUND = {"name": "a", "version": "1", "vulns": []}
HOLED = {"name": "b", "version": "2", "vulns": [{"id": "CVE-2026-1"}]}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found"}


def test_advisories_tell_unknown_from_sound() -> None:
    """A package that was not looked up is reported as such, not as sound."""
    assert judge(report(SOUND, HOLED, UNKNOWN)) == (["a", "b"], ["c"], ["b 2: CVE-2026-1"])


@pytest.mark.parametrize(
    ("told", "plain", "strict"),
    [(report(SOUND), 0, 0), (report(SOUND, HOLED), 1, 1), (report(SOUND, UNKNOWN), 0, 1), (None, 0, 1)],
    ids=["all sound", "a hole", "one unknown", "no answer"],
)
def test_advisories_fail_closed_where_it_is_asked_for(
    told: dict[str, Any] | None, plain: int, strict: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vulnerability always fails; a package that was not looked up fails only with ``--strict``."""
    monkeypatch.setitem(main.__globals__, "ask", lambda: told)
    assert (main([]), main(["--strict"])) == (plain, strict)


def test_lock_names_a_hash_for_every_package() -> None:
    """Every locked package has a hash."""
    requirements = re.split(r"\n(?=\S)", re.sub(r"^\s*#.*\n", "", LOCK.read_text(), flags=re.MULTILINE).strip())
    assert len(requirements) > 20
    assert [text.splitlines()[0] for text in requirements if "--hash=sha256:" not in text] == []


def test_bill_of_materials_lists_everything_that_runs(tmp_path: Path) -> None:
    """The SBOM (CycloneDX) names every package of the lock with its version and hash."""
    written = tmp_path / "sbom.json"
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "cyclonedx_py",
        "requirements",
        str(LOCK),
        "--of",
        "JSON",
        "-o",
        str(written),
    ]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603  (our own arguments)
    bill = json.loads(written.read_text())
    locked = set(re.findall(r"^([a-z0-9_.-]+)==([^\s;]+)", LOCK.read_text(), flags=re.MULTILINE))
    assert bill["bomFormat"] == "CycloneDX"
    assert {(part["name"], part["version"]) for part in bill["components"]} == locked
