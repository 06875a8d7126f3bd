"""What `make release` builds and prints: files, checksums, wheels that can be installed alone, changelog lines."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rollout.released import released_commit

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SECONDS = "8"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Build a release into an empty folder; return the folder and the output."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    return folder, run("make", "--silent", "release", f"DIST={folder}", cwd=ROOT)


@pytest.fixture(scope="module")
def dist(release: tuple[Path, str]) -> Path:
    """Return the folder of the built release."""
    return release[0]


def run(*command: str, cwd: Path, **environ: str) -> str:
    """Run a command without our variables in its environment; return its output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CALLKEEPER", "PYTHON", "REDIS"))}
    result = subprocess.run(  # noqa: S603  (our own commands)
        command, cwd=cwd, env=kept | environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.mark.night
def test_release_is_complete(dist: Path) -> None:
    """A release has two wheels and sdists, a bill of materials, and correct checksums of all."""
    lines = (line.split() for line in (dist / "SHA256SUMS").read_text().splitlines())
    sums = {name: digest for digest, name in lines}
    assert {path.name for path in dist.iterdir()} == {*sums, "SHA256SUMS"}
    built = re.compile(r"callkeeper(_sandbox)?-[\w.]+(-py3-none-any\.whl|\.tar\.gz)")
    assert len(list(filter(built.fullmatch, sums))) == 4
    assert len(sums) == 5
    for name, digest in sums.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
    components = json.loads((dist / "callkeeper.cdx.json").read_text())["components"]
    assert {"redis", "rq", "starlette"} <= {component["name"] for component in components}


@pytest.mark.night
def test_release_is_built_alike_each_time(dist: Path, tmp_path: Path) -> None:
    """Whoever builds the same commit with the same tools gets the same bytes, so checksums can be compared."""
    run("make", "--silent", "release", f"DIST={tmp_path / 'again'}", cwd=ROOT)
    assert (tmp_path / "again" / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


@pytest.mark.night
def test_release_prints_its_changelog_heading_and_commit(release: tuple[Path, str]) -> None:
    """The output names the wheel's version and the commit, in the form that `released_commit` reads."""
    folder, output = release
    printed = output[output.index("\n## ") :]
    commit = run("git", "rev-parse", "HEAD", cwd=ROOT).strip()
    assert next(folder.glob("callkeeper-*.whl")).name.startswith(f"callkeeper-{printed.split()[1]}-")
    assert released_commit(printed.replace(".dev0", "")) == commit  # a commit between releases has the suffix
    is_clean = run("git", "status", "--porcelain", cwd=ROOT) == ""
    assert ("uncommitted changes" in output) is not is_clean


@pytest.mark.night
@pytest.mark.timeout(400)
@pytest.mark.parametrize("installer", ["uv", "pip", "pipx"])
def test_wheel_runs_in_an_empty_environment(dist: Path, tmp_path: Path, installer: str) -> None:
    """Installed alone with the locked versions, `callkeeper run` handles calls and its audit passes."""
    wheel = next(dist.glob("callkeeper-*.whl"))
    wanted, ours = f"{wheel}[all,sandbox]", ("--find-links", str(dist))
    constraints = tmp_path / "constraints.txt"
    pins = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
    constraints.write_text("\n".join(pins))
    place = tmp_path / "empty"
    program = place / "bin" / "callkeeper"
    match installer:
        case "uv":
            run(str(BIN / "uv"), "venv", "--python", sys.executable, str(place), cwd=tmp_path)
            python = str(place / "bin" / "python")
            run(
                str(BIN / "uv"),
                "pip",
                "install",
                "--python",
                python,
                "-c",
                str(constraints),
                *ours,
                wanted,
                cwd=tmp_path,
            )
        case "pip":
            run(sys.executable, "-m", "venv", str(place), cwd=tmp_path)
            run(str(place / "bin" / "pip"), "install", "--quiet", "-c", str(constraints), *ours, wanted, cwd=tmp_path)
        case _:
            run(sys.executable, "-m", "venv", str(place), cwd=tmp_path)
            run(str(place / "bin" / "pip"), "install", "--quiet", "pipx", cwd=tmp_path)
            homes = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
            pipx = (str(place / "bin" / "pipx"), "install", "--python", sys.executable)
            run(*pipx, "--pip-args", f"-c {constraints} --find-links {dist}", wanted, cwd=tmp_path, **homes)
            program = tmp_path / "bin" / "callkeeper"
    work = tmp_path / "somewhere"
    work.mkdir()
    version = re.search(r"callkeeper-([\w.]+)-py3", wheel.name)
    assert version is not None
    assert run(str(program), "--version", cwd=work).strip().endswith(version[1])
    assert "Audit passed" in run(str(program), "run", "--seconds", SECONDS, cwd=work)
