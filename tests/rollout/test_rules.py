"""How a rule book gets to production: the page's steps work as written, and the release step refuses a faulty file."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from callkeeper.calls.rules import load_rules
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from callkeeper_sandbox.demo.fleet import Fleet
from tests.harness.processes import start_sandbox
from tests.rollout.test_procfile import PROCFILE, ROOT, SETTINGS

PAGE = (ROOT / "docs" / "your-own-rulebook.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "docs" / "examples" / "rulebook"
LIST = EXAMPLE / "watched.txt"
KUBERNETES = ROOT / "deploy" / "kubernetes"


def environment(**more: str) -> dict[str, str]:
    """Return an environment for commands, without this process's settings."""
    python = str(Path(sys.executable).parent)
    return {"PATH": f"{python}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": os.environ["HOME"], **more}


def type_in(command: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command as written."""
    return subprocess.run(  # noqa: S603  (our own documents)
        shlex.split(command), cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False
    )


def test_steps_of_the_page_lead_to_a_valid_rules_file(tmp_path: Path) -> None:
    """With the files of the page, its commands succeed as written; only the one on the empty file fails."""
    folder, codes = tmp_path, []
    for name, text, command in re.findall(
        r"^`(\w+\.toml)`:\n\n```toml\n(.*?)```|^    \$ (.+?)$", PAGE, re.DOTALL | re.MULTILINE
    ):
        if name:
            (folder / name).write_text(text)
        elif command.startswith("cd "):
            folder /= command.removeprefix("cd ")
        else:
            result = type_in(command, folder)
            codes.append(result.returncode)
            assert not result.stderr or result.returncode == 2, result.stderr
    assert codes == [0, 0, 2, 0, 0, 0, 0, 0]


def test_ci_job_passes_and_notices_a_fault(tmp_path: Path) -> None:
    """The example's CI steps pass on its files, and fail on a faulty file and on a failing case."""
    job = yaml.safe_load((EXAMPLE / "ci.yaml").read_text(encoding="utf-8"))["jobs"]["rules"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    rules, cases = (EXAMPLE / "rules.toml").read_text(), (EXAMPLE / "cases.toml").read_text()
    for text, examples, codes in (
        (rules, cases, [0, 0]),
        (rules.replace("on_checks", "on_check"), cases, [2, 2]),
        (rules, cases.replace('expect = "ask"', 'expect = "hold"'), [0, 1]),
    ):
        (tmp_path / "rules.toml").write_text(text)
        (tmp_path / "cases.toml").write_text(examples)
        (tmp_path / LIST.name).write_bytes(LIST.read_bytes())
        assert [type_in(command, tmp_path).returncode for command in commands] == codes


@pytest.mark.parametrize("is_sound", [True, False])
def test_release_step_refuses_a_faulty_rule_book(tmp_path: Path, is_sound: bool) -> None:
    """With ``CALLKEEPER_RULES`` the release step reads the file, and fails with the line of a fault."""
    text = (EXAMPLE / "rules.toml").read_text()
    path = tmp_path / "rules.toml"
    (tmp_path / LIST.name).write_bytes(LIST.read_bytes())
    path.write_text(text if is_sound else text.replace("at_least", "at_leats", 1))
    line = text[: text.index("at_least")].count("\n") + 1
    with embedded_redis(tmp_path / "redis") as redis, Fleet(tmp_path / "logs") as fleet:
        service_url = start_sandbox(fleet)
        more = {"REDIS_URL": redis.url, "CALLKEEPER_SERVICE_URL": service_url, "CALLKEEPER_RULES": str(path)}
        released = type_in(PROCFILE["release"], ROOT, **{**SETTINGS, **more})
    assert (released.returncode == 0) == is_sound, released.stdout
    if is_sound:
        assert load_rules(path).digest in released.stdout
        assert "a red policy alone" in re.sub(r"\s+", " ", released.stdout)
    else:
        assert f"rules.toml:{line}:" in re.sub(r"\s+", "", released.stdout)


def test_kubernetes_mounts_the_rule_book_wherever_it_is_read() -> None:
    """The patches fit every pod, the settings name the mounted file, and that file is a shipped rule book."""
    folder = ROOT / "deploy" / "rules" / "kubernetes"
    own = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    assert [(folder / each).resolve() for each in own["resources"]] == [KUBERNETES]
    kinds = [patch["target"]["kind"] for patch in own["patches"]]
    pods = [
        document
        for name in ("web.yaml", "worker.yaml", "release.yaml")
        for document in yaml.safe_load_all((KUBERNETES / name).read_text(encoding="utf-8"))
        if document["kind"] in kinds
    ]
    assert len(pods) == 3
    for pod in pods:
        for operation in yaml.safe_load((folder / "mount.yaml").read_text(encoding="utf-8")):
            assert operation["op"] == "add"
            assert isinstance(_at(pod, operation["path"].removesuffix("/-").strip("/").split("/")), list)
    generated = {each["name"]: each for each in own["configMapGenerator"]}
    assert generated["callkeeper-rules"]["files"] == ["rules.toml"]
    for name in ("callkeeper-web", "callkeeper-worker"):
        assert generated[name]["literals"] == ["CALLKEEPER_RULES=/etc/callkeeper/rules.toml"]
    shipped = ROOT / "callkeeper" / "calls" / "rulebooks" / "watch-only.toml"
    assert (folder / "rules.toml").read_bytes() == shipped.read_bytes()


def test_kubernetes_base_does_not_contain_the_folder_that_uses_it() -> None:
    """Kubectl refuses a folder that lies within one of its own resources: "cycle detected"."""
    for path in (ROOT / "deploy").rglob("kustomization.yaml"):
        for each in yaml.safe_load(path.read_text(encoding="utf-8"))["resources"]:
            assert not path.is_relative_to((path.parent / each).resolve()), path


def _at(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document
