"""The files of deploy/: valid for their platforms, and each platform's known traps handled."""

import copy
import re
import subprocess
from typing import Any

import pytest
import yaml
from jsonschema_rs import Draft202012Validator, meta

from callkeeper.app.cli import main
from callkeeper.app.settings import VARIABLES
from callkeeper_sandbox.demo.fleet import STOP_S
from tests.unit.deploy.manifests import (
    COMPOSE,
    DEPLOY,
    HEROKU,
    KUSTOMIZATION,
    PROCFILE,
    RENDER,
    ROOT,
    documents,
    given_to,
    objects,
    of_kind,
    pods,
    schema,
)

DOCUMENTS = list(documents())
NAMES = [name for name, _, _ in DOCUMENTS]
RELEASE = "doctor --before-deploy"
GIVEN_BY_PLATFORM = {"REDIS_URL", "PORT"}
REQUIRED = {name for name, variable in VARIABLES.items() if variable.is_required} - GIVEN_BY_PLATFORM


@pytest.mark.parametrize(("_name", "schema_name", "document"), DOCUMENTS, ids=NAMES)
def test_document_keeps_to_its_schema(_name: str, schema_name: str, document: Any) -> None:
    """Every key is one that the platform knows, every value of a kind that it takes."""
    own = schema(schema_name, document.get("kind"))
    meta.validate(own)
    Draft202012Validator(own).validate(document)


@pytest.mark.parametrize(("_name", "schema_name", "document"), DOCUMENTS, ids=NAMES)
def test_schema_notices_every_misspelt_key(_name: str, schema_name: str, document: Any) -> None:
    """A schema that lets a misspelt key pass is no test: each key of each document, misspelt, is refused."""
    passed: list[tuple[Any, ...]] = []
    validator = Draft202012Validator(schema(schema_name, document.get("kind")))
    for path in _paths(document):
        changed = copy.deepcopy(document)
        holder = _at(changed, path[:-1])
        holder[f"{path[-1]}x"] = holder.pop(path[-1])
        if validator.is_valid(changed):
            passed.append(path)
    assert [path for path in passed if not _is_ours(path)] == []


_FREE = {
    *("services", "volumes", "networks", "environment", "options", "depends_on"),
    *("formation", "env"),
    *("labels", "matchLabels", "selector", "data", "stringData"),
}
"""Maps whose keys are names of our own, which no schema can know."""


def _is_ours(path: tuple[Any, ...]) -> bool:
    return str(path[0]).startswith("x-") or (len(path) > 1 and path[-2] in _FREE)


def _paths(document: Any, *above: Any) -> list[tuple[Any, ...]]:
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    found: list[tuple[Any, ...]] = []
    for key, value in inner:
        found += [(*above, key)] if isinstance(document, dict) else []
        found += _paths(value, *above, key)
    return found


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def variables_of_platforms() -> dict[str, set[str]]:
    """Return which variables each platform's file sets or asks for."""
    cluster = {name for each in of_kind("ConfigMap") for name in each["data"]}
    cluster |= {name for each in of_kind("Secret") for name in each["stringData"]}
    rendered, composed = (given_to(name, "web") | given_to(name, "worker") for name in ("render", "compose"))
    return {"heroku": set(HEROKU["env"]), "render": rendered, "compose": composed, "kubernetes": cluster}


@pytest.mark.parametrize("platform", ["heroku", "render", "compose", "kubernetes"])
def test_platform_asks_for_every_required_variable_and_for_no_other(platform: str) -> None:
    """Whoever fills in what the file asks for has a start that succeeds; a variable that does not exist is a mistake."""
    asked = variables_of_platforms()[platform]
    assert asked >= REQUIRED
    known = {*VARIABLES} | {"PYTHON_VERSION"}
    assert asked <= known


def test_every_command_exists() -> None:
    """What the files start are commands of ours."""
    words = [*PROCFILE.values(), *(each[key] for each in RENDER["services"] for key in _STARTS if key in each)]
    commands = [text.removeprefix("python -m callkeeper ").split() for text in words]
    commands += [service["command"] for name, service in COMPOSE["services"].items() if name not in {"redis", "proxy"}]
    commands += [pod["spec"]["containers"][0]["args"] for pod in pods().values()]
    for name, *options in commands:
        command = main.get_command(None, name)  # type: ignore[arg-type]  # no context is needed to find one
        assert command is not None, name
        assert set(options) - {"web", "worker"} <= {text for parameter in command.params for text in parameter.opts}


_STARTS = ("startCommand", "preDeployCommand")


def test_every_platform_runs_the_doctor_before_it_deploys() -> None:
    """A release that cannot work is stopped before it replaces one that does."""
    assert PROCFILE["release"] == f"python -m callkeeper {RELEASE}"
    for process, service in zip(("web", "worker"), RENDER["services"][1:], strict=True):
        assert service["preDeployCommand"].endswith(f"{RELEASE} --only {process}")
    assert " ".join(COMPOSE["services"]["release"]["command"]) == RELEASE
    assert " ".join(pods()["callkeeper-release"]["spec"]["containers"][0]["args"]) == RELEASE
    for name in ("web", "worker"):
        assert COMPOSE["services"][name]["depends_on"] == {"release": {"condition": "service_completed_successfully"}}


def test_every_platform_leaves_time_to_finish() -> None:
    """A process that is told to leave finishes what is in flight: 30 s, three times what it takes."""
    graces = [int(COMPOSE["services"][name]["stop_grace_period"].rstrip("s")) for name in ("web", "worker")]
    graces += [each["maxShutdownDelaySeconds"] for each in RENDER["services"] if each["type"] != "keyvalue"]
    graces += [each["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for each in of_kind("Deployment")]
    assert len(graces) == 6
    assert all(grace >= 3 * STOP_S for grace in graces)


def test_every_redis_forgets_nothing() -> None:
    """Where a file configures its own Redis, it evicts nothing; compose's keeps every write in a file, and has a limit."""
    command = COMPOSE["services"]["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    kept = {"--appendonly": "yes", "--appendfsync": "everysec", "--maxmemory-policy": "noeviction"}
    assert options == {**kept, "--maxmemory": "2gb", "--aclfile": "/etc/redis/users.acl"}
    assert RENDER["services"][0]["maxmemoryPolicy"] == "noeviction"


def test_containers_have_no_rights_that_they_do_not_need() -> None:
    """Neither root nor a writable file system, capabilities or all memory, on either platform that lets us say so."""
    for name in ("release", "web", "worker"):
        service = COMPOSE["services"][name]
        assert (service["read_only"], service["cap_drop"], service["mem_limit"]) == (True, ["ALL"], "384m")
    for pod in pods().values():
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["automountServiceAccountToken"] is False
        [container] = pod["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert "limits" in container["resources"]


def test_there_is_one_public_port() -> None:
    """From outside only web is reached, in compose by its proxy; in the cluster only its push endpoint and its readiness."""
    published = {name: service["ports"] for name, service in COMPOSE["services"].items() if "ports" in service}
    assert list(published) == ["proxy"]
    [ingress] = of_kind("Ingress")
    paths = {path["path"] for rule in ingress["spec"]["rules"] for path in rule["http"]["paths"]}
    assert paths == {"/push", "/readyz"}
    assert [each["name"] for each in RENDER["services"] if each["type"] == "web"] == ["callkeeper-web"]


def test_every_release_of_keda_accepts_the_scaling() -> None:
    """KEDA before 2.18 refuses a fallback beside metrics of the type Value."""
    [scaled] = of_kind("ScaledObject")
    types = {trigger["metricType"] for trigger in scaled["spec"]["triggers"]}
    assert types == {"Value"}
    assert "fallback" not in scaled["spec"]


def test_objects_of_the_cluster_find_each_other() -> None:
    """Selectors match the labels of pods, mounts their volumes, references objects that exist; all are applied."""
    labels = {name: pod["metadata"]["labels"] for name, pod in pods().items()}
    by_name = {(each["kind"], each["metadata"]["name"]) for each in objects()}
    for deployment in of_kind("Deployment"):
        name = deployment["metadata"]["name"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels[name]
        [budget] = [each for each in of_kind("PodDisruptionBudget") if each["metadata"]["name"] == name]
        assert budget["spec"]["selector"]["matchLabels"] == labels[name]
    for pod in pods().values():
        spec = pod["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        assert {mount["name"] for mount in spec["containers"][0]["volumeMounts"]} == volumes
        assert ("ServiceAccount", spec["serviceAccountName"]) in by_name
        for source in spec["containers"][0]["envFrom"]:
            [(kind, reference)] = source.items()
            assert ({"configMapRef": "ConfigMap", "secretRef": "Secret"}[kind], reference["name"]) in by_name
    [service] = of_kind("Service")
    assert service["spec"]["selector"] == labels["callkeeper-web"]
    [scaled] = of_kind("ScaledObject")
    assert scaled["spec"]["scaleTargetRef"]["name"] == "callkeeper-worker"
    on_disk = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")}
    assert on_disk == {*KUSTOMIZATION["resources"], "kustomization.yaml", "secret.example.yaml", "network-web.yaml"}


def test_release_step_is_applied_without_the_pods_that_it_must_precede() -> None:
    """The selector of the page leaves out the Deployments and nothing else: the release step runs before they change."""
    page = (DEPLOY / "README.md").read_text(encoding="utf-8")
    [(label, names)] = re.findall(r"kubectl apply -k deploy/kubernetes -l '(\S+) notin \((.+)\)'", page)
    left_out = [each for each in objects() if each["metadata"].get("labels", {}).get(label) in names.split(", ")]
    assert left_out == of_kind("Deployment")


def test_workers_are_scaled_by_a_figure_that_is_exported() -> None:
    """Lateness, as /metrics names it: a query for a figure that nobody exports would never start a worker."""
    [scaled] = of_kind("ScaledObject")
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    source = (ROOT / "callkeeper" / "desk" / "prometheus_page.py").read_text(encoding="utf-8")
    names = set(re.findall(r"callkeeper_(\w+)", query))
    assert names == {"late_seconds", "service_away"}
    assert all(f'"{name}"' in source for name in names)


def test_probes_ask_what_they_should() -> None:
    """Liveness never depends on Redis: a restart of every web process would not bring it back."""
    container = pods()["callkeeper-web"]["spec"]["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert RENDER["services"][1]["healthCheckPath"] == "/healthz"


def test_dockerfile_copies_every_package_and_nothing_secret() -> None:
    """What pyproject.toml builds is copied; the context holds no data, no .env, no repository."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    packages = re.search(r"packages = \[(.+)]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert packages
    for name in re.findall(r'"(\w+)"', packages.group(1)):
        assert f"COPY {name} {name}\n" in text
        assert f"!{name}" in ignore
    assert ignore[0] == "*"
    assert not {"!.env", "!data", "!.git", "!tests"} & set(ignore)
    assert re.search(r"^USER \d+:\d+$", text, re.MULTILINE)
    assert "HEALTHCHECK" in text


def test_redis_of_compose_is_reached_with_a_password_only() -> None:
    """Redis takes its users from the file that the read-me describes, is published nowhere and reaches nothing outside."""
    redis = COMPOSE["services"]["redis"]
    assert "./redis/users.acl:/etc/redis/users.acl:ro" in redis["volumes"]
    assert "ports" not in redis
    assert redis["networks"] == ["inside"]
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    first, *others = (DEPLOY / "redis" / "users.acl.example").read_text(encoding="utf-8").splitlines()
    assert first.startswith("user default off resetpass ")
    assert all(" on >PASSWORD-OF-" in line and "nopass" not in line for line in others)


def test_network_policies_name_both_sides() -> None:
    """Every rule says from or to whom, and at which port; web reaches only DNS, Redis, PostgreSQL and, if wanted, HTTPS."""
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind("NetworkPolicy")}
    for spec in policies.values():
        for rule in [*spec.get("ingress", []), *spec.get("egress", [])]:
            assert rule.get("from") or rule.get("to")
            assert rule["ports"]
    common = policies["callkeeper"]
    assert (set(common["policyTypes"]), common.get("ingress", [])) == ({"Ingress", "Egress"}, [])
    assert {port["port"] for rule in common["egress"] for port in rule["ports"]} == {53, 5432, 6379, 26379}
    assert "egress" not in policies["callkeeper-web"]
    wanted = yaml.safe_load((DEPLOY / "kubernetes" / "network-web.yaml").read_text(encoding="utf-8"))
    [outside] = wanted["spec"]["egress"]
    assert [port["port"] for port in outside["ports"]] == [443]
    [expression] = policies["callkeeper-worker"]["podSelector"]["matchExpressions"]
    assert expression["values"] == ["callkeeper-worker", "callkeeper-release"]


def test_no_file_holds_a_secret() -> None:
    """Whatever looks like a credential in deploy/ is a placeholder."""
    listed = subprocess.run(["git", "ls-files", "deploy"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    assert "deploy/kubernetes/secret.yaml" not in listed.stdout
    for secret in of_kind("Secret"):
        held = {name: value for name, value in secret["stringData"].items() if name != "CALLKEEPER_EMAIL"}
        assert all("<" in value for value in held.values())
    given = {name for name, asked in HEROKU["env"].items() if "value" in asked}
    assert given == {"CALLKEEPER_RULES", "CALLKEEPER_REDIS_TLS", "CALLKEEPER_FORWARDED_HOPS"}
