"""What `make release` builds and prints: files, checksums, packages that can be installed alone, changelog lines."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from callkeeper.desk.agent_pages import SCRIPT
from tests.rollout.released import released_commit

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SECONDS = "8"

NPM = {
    "callkeeper-call": {"LICENSE", "README.md", "callkeeper-call.d.ts", "callkeeper-call.js", "package.json"},
    "callkeeper-client": {
        *("LICENSE", "README.md", "package.json"),
        *("dist/index.d.ts", "dist/index.js", "dist/schema.d.ts", "dist/schema.js"),
    },
}
IMPORTS = """
import { Desk } from "callkeeper-client";
import { WORDS } from "callkeeper-call";

console.log(typeof new Desk("http://127.0.0.1:1", "token").calls, typeof WORDS.green);
"""
PROGRAM = """
import { CallkeeperCall, WORDS } from "callkeeper-call";
import { Desk, DeskRefused } from "callkeeper-client";

export async function verified(desk: Desk, phone: string): Promise<string[]> {
  const found: string[] = [];
  for await (const call of desk.calls({ phone })) if (call.green) found.push(call.voice_id);
  return found;
}
export const element: CallkeeperCall | null = document.querySelector("callkeeper-call");
export const facts: [string, boolean] = [typeof WORDS.green, new Error("") instanceof DeskRefused];
"""


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
    """A release has three wheels and sdists, two packages for npm, a bill of materials, and correct checksums of all."""
    lines = (line.split() for line in (dist / "SHA256SUMS").read_text().splitlines())
    sums = {name: digest for digest, name in lines}
    assert {path.name for path in dist.iterdir()} == {*sums, "SHA256SUMS"}
    built = re.compile(r"callkeeper(_client|_sandbox)?-[\w.]+(-py3-none-any\.whl|\.tar\.gz)")
    assert len(list(filter(built.fullmatch, sums))) == 6
    assert len(sums) == 6 + len(NPM) + 1
    for name, digest in sums.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
    components = json.loads((dist / "callkeeper.cdx.json").read_text())["components"]
    assert {"redis", "rq", "starlette"} <= {component["name"] for component in components}


@pytest.mark.night
def test_release_is_built_alike_each_time(dist: Path, tmp_path: Path) -> None:
    """Whoever builds the same commit with the same tools gets the same bytes, so checksums can be compared."""
    (ROOT / "client/web/README.md").chmod(0o600)  # as of a clone that was made with another umask
    run("make", "--silent", "release", f"DIST={tmp_path / 'again'}", cwd=ROOT)
    assert (tmp_path / "again" / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


def test_release_needs_npm(tmp_path: Path) -> None:
    """Without npm nothing is built: the command fails, says what is missing, and leaves the former release alone."""
    (tmp_path / "SHA256SUMS").touch()
    make = shutil.which("make")
    assert make is not None
    environ = {"PATH": str(tmp_path)}
    built = subprocess.run(  # noqa: S603  (our own command)
        [
            make,
            "--old-file=.venv/.installed",
            "--old-file=client/typescript/dist/index.js",
            "release",
            f"DIST={tmp_path}",
        ],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode != 0
    assert "there is no npm: apt-get install nodejs npm" in built.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["SHA256SUMS"]


@pytest.mark.night
def test_npm_packages_can_be_installed_imported_and_compiled(dist: Path, tmp_path: Path) -> None:
    """Both install from their files alone, Node imports them, and a program that uses both compiles strictly."""
    packages = {re.sub(r"-\d.*", "", path.name): path for path in dist.glob("*.tgz")}
    for name, path in packages.items():
        with tarfile.open(path) as archive:
            assert {each.removeprefix("package/") for each in archive.getnames()} == NPM[name]
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    run("npm", "install", "--offline", "--no-audit", "--no-fund", *map(str, packages.values()), cwd=tmp_path)
    (tmp_path / "imports.js").write_text(IMPORTS)
    assert run("node", "imports.js", cwd=tmp_path) == "function string\n"
    (tmp_path / "program.ts").write_text(PROGRAM)
    compiler = ROOT / "client/typescript/node_modules/typescript/bin/tsc"
    options = ("--strict", "--noEmit", "--module", "nodenext", "--lib", "es2022,dom,dom.asynciterable")
    run("node", str(compiler), *options, "program.ts", cwd=tmp_path)
    assert (tmp_path / "node_modules/callkeeper-call/callkeeper-call.js").read_bytes() == SCRIPT


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
    wanted, ours = f"{wheel}[all]", ("--find-links", str(dist))
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
    assert "_callkeeper_completion" in run(str(program), "completion", "bash", cwd=work)
    assert "Audit passed" in run(str(program), "run", "--seconds", SECONDS, cwd=work)
