"""The files of deploy/, read once: what the tests ask of them."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
SCHEMAS = Path(__file__).parent / "schemas"

COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
HEROKU: Any = json.loads((DEPLOY / "heroku" / "app.json").read_text(encoding="utf-8"))
RENDER: Any = yaml.safe_load((DEPLOY / "render" / "render.yaml").read_text(encoding="utf-8"))
KUSTOMIZATION: Any = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8"))
PROCFILE = dict(
    line.split(": ", 1) for line in (ROOT / "Procfile").read_text(encoding="utf-8").splitlines() if line.strip()
)


@cache
def objects() -> list[Any]:
    """Return every Kubernetes object, the example of the secret included."""
    folder = DEPLOY / "kubernetes"
    names = [*KUSTOMIZATION["resources"], "secret.example.yaml"]
    return [each for name in names for each in yaml.safe_load_all((folder / name).read_text(encoding="utf-8"))]


def of_kind(kind: str) -> list[Any]:
    """Return the Kubernetes objects of a kind."""
    return [each for each in objects() if each["kind"] == kind]


def pods() -> dict[str, Any]:
    """Return the pod templates by the name of what runs them."""
    return {each["metadata"]["name"]: each["spec"]["template"] for each in of_kind("Deployment") + of_kind("Job")}


def _keys(text: str) -> set[str]:
    return {line.partition("=")[0] for line in text.splitlines() if line and not line.startswith("#")}


def _compose(process: str) -> set[str]:
    service = COMPOSE["services"][process]
    files = [(DEPLOY / f"{name}.example").read_text(encoding="utf-8") for name in service["env_file"]]
    return set().union(*map(_keys, files), service.get("environment", {}))


def _render(process: str) -> set[str]:
    [service] = [each for each in RENDER["services"] if each["name"] == f"callkeeper-{process}"]
    groups = {group["name"]: {each["key"] for each in group["envVars"]} for group in RENDER["envVarGroups"]}
    given: set[str] = set()
    for each in service["envVars"]:
        given |= groups[each["fromGroup"]] if "fromGroup" in each else {each["key"]}
    return given - {"PYTHON_VERSION"}


def _kubernetes(process: str) -> set[str]:
    held = {(each["kind"], each["metadata"]["name"]): each for each in of_kind("ConfigMap") + of_kind("Secret")}
    [container] = pods()[f"callkeeper-{process}"]["spec"]["containers"]
    given = {each["name"] for each in container.get("env", [])}
    for source in container["envFrom"]:
        [(kind, reference)] = source.items()
        found = held[{"configMapRef": "ConfigMap", "secretRef": "Secret"}[kind], reference["name"]]
        given |= found.get("data", {}).keys() | found.get("stringData", {}).keys()
    return given


def given_to(platform: str, process: str) -> set[str]:
    """Return the names of the variables that a platform's files give to a process: ``web`` or ``worker``."""
    return {"compose": _compose, "render": _render, "kubernetes": _kubernetes}[platform](process)


@cache
def schema(name: str, kind: str | None = None) -> Any:
    """Return one of the schemas that are kept here; of a cluster's, the one of a kind of object."""
    whole = yaml.safe_load((SCHEMAS / f"{name}.yaml").read_text(encoding="utf-8"))
    if kind is None:
        return whole
    [own] = [each for each in whole["kinds"] if each["properties"]["kind"]["const"] == kind]
    return {"type": "object", "$defs": whole["$defs"], "required": ["apiVersion", "kind", "metadata"], "allOf": [own]}


def documents() -> Iterator[tuple[str, str, Any]]:
    """Yield every document with a name for it and its schema's."""
    yield "compose", "compose", COMPOSE
    yield "heroku", "heroku", HEROKU
    yield "render", "render", RENDER
    for each in objects():
        yield f"{each['kind']} {each['metadata']['name']}", "kubernetes", each
