"""What kubectl makes of the folders of deploy/, by its own `kustomize`: built whole, and valid for a cluster."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema_rs import Draft202012Validator

from tests.unit.deploy.manifests import DEPLOY, schema

FOLDERS = sorted(path.parent.relative_to(DEPLOY) for path in DEPLOY.rglob("kustomization.yaml"))
MISSING = "there is neither kustomize nor kubectl (1.22 or newer); .ci/debian installs one where Debian has it"


def built(folder: Path) -> list[Any]:
    """Return the objects that a folder stands for; fail with what kustomize says if it cannot be built."""
    program = shutil.which("kustomize") or shutil.which("kubectl")
    assert program is not None, MISSING
    verb = "build" if Path(program).name == "kustomize" else "kustomize"
    ran = subprocess.run([program, verb, str(folder)], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert ran.returncode == 0, ran.stderr
    return list(yaml.safe_load_all(ran.stdout))


def pods(objects: list[Any]) -> dict[str, Any]:
    """Return the pod templates of the objects, by name."""
    running = [each for each in objects if each["kind"] in {"Deployment", "Job"}]
    return {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in running}


def names_of_configuration(pod: Any) -> set[str]:
    """Return the ConfigMaps that a pod needs."""
    [container] = pod["containers"]
    mounted = [each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each]
    return {each["configMapRef"]["name"] for each in container["envFrom"] if "configMapRef" in each} | set(mounted)


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_folder_is_built_into_a_valid_whole(folder: Path) -> None:
    """Every object is in one namespace, labelled, valid, unique; every pod runs the named image and finds its settings."""
    objects = built(DEPLOY / folder)
    for each in objects:
        Draft202012Validator(schema("kubernetes", each["kind"])).validate(each)
        assert each["metadata"]["namespace"] == "callkeeper"
    places = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(places) == len(set(places))
    maps = {name for kind, name in places if kind == "ConfigMap"}
    assert pods(objects).keys() == {"callkeeper-web", "callkeeper-worker", "callkeeper-release"}
    for pod in pods(objects).values():
        assert pod["containers"][0]["image"].startswith("registry.example/callkeeper:")
        assert names_of_configuration(pod) <= maps


def test_rule_book_of_ones_own_is_mounted_under_a_name_of_its_content(tmp_path: Path) -> None:
    """Another file has another name, so that pods start anew; all three pods mount it and are told where it is."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    folder = tmp_path / "deploy/rules/kubernetes"
    before = built(folder)
    with (folder / "rules.toml").open("a") as rules:
        rules.write("# another line\n")
    after = built(folder)
    names = []
    for objects in (before, after):
        found = [each for each in objects if each["kind"] == "ConfigMap"]
        [own] = [each["metadata"]["name"] for each in found if "rules.toml" in each["data"]]
        assert all(own in names_of_configuration(pod) for pod in pods(objects).values())
        told = [each["data"]["CALLKEEPER_RULES"] for each in found if "CALLKEEPER_RULES" in each["data"]]
        assert told == ["/etc/callkeeper/rules.toml"] * 2
        names.append(own)
    assert names[0] != names[1]


@pytest.mark.parametrize("more", ["network-web.yaml", "secret.example.yaml"])
def test_other_files_can_be_added_as_the_readme_says(tmp_path: Path, more: str) -> None:
    """The files that are not in the base are built with it when they are added to its resources."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    path = tmp_path / "deploy/kubernetes/kustomization.yaml"
    own = yaml.safe_load(path.read_text())
    path.write_text(json.dumps({**own, "resources": [*own["resources"], more]}))
    added = len(built(path.parent)) - len(built(DEPLOY / "kubernetes"))
    assert added == len(list(yaml.safe_load_all((DEPLOY / "kubernetes" / more).read_text()))) > 0


def test_misspelt_patch_is_noticed(tmp_path: Path) -> None:
    """A patch that fits nothing ends with an error, so that a green test means something."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    path = tmp_path / "deploy/rules/kubernetes/mount.yaml"
    path.write_text(path.read_text().replace("/spec/template/spec/volumes", "/spec/template/spec/volume"))
    with pytest.raises(AssertionError, match="doc is missing path"):
        built(path.parent)
