"""The desk's API gives only answers that its OpenAPI description names."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Candidate
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.openapi import document
from tests.audit.conftest import Effort, Target, web_process
from tests.audit.raw_requests import TOKEN
from tests.unit.calls.specimens import call

BOUND = 8
"""Requests for each operation, besides those that try its limits."""


SCHEMA = schemathesis.openapi.from_dict(json.loads(document())).exclude(path="/desk/stream")
OPERATIONS: list[Any] = [found.ok() for found in SCHEMA.get_all_operations()]  # type: ignore[union-attr]  # a failure ends it
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.mark.timeout(900)
@pytest.mark.night
def test_desk_keeps_to_its_description(target: Target, effort: Effort, tmp_path: Path) -> None:
    """Schemathesis finds no 5xx, no undescribed status, media type or body, and no access without the token."""
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{target.url}/desk/openapi.json"),
        *("--header", f"Authorization: Bearer {TOKEN}", "--checks", f"{checks},ignored_auth"),
        *("--phases", "examples,fuzzing", "--max-examples", str(effort.calls), "--request-timeout", "10"),
        *("--exclude-path", "/desk/stream", "--no-color", "--seed", "1"),
    ]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    answer = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)  # noqa: S603
    print(answer.stdout[-1500:])  # noqa: T201
    assert answer.returncode == 0, answer.stdout[-8000:] + answer.stderr[-2000:]
    assert target.events("error", "critical") == []


@pytest.fixture(scope="module")
def desk_url(redis_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a desk that knows one call; return where it is."""
    with Redis.from_url(redis_server.url) as redis:
        redis.flushall()
        known = call(candidates=(Candidate(person_id="p-1", name="Ada Example", person_type="Primary"),))
        member = CallId(known.institution_key, known.voice_id).member
        redis.hset(Keys().item(member), "rec", encode_call(known))
        redis.zadd(Keys().live, {member: 1})
    with web_process(redis_server.url, tmp_path_factory.mktemp("desk")) as web:
        assert json.loads(document()) == httpx.get(f"{web.url}/desk/openapi.json", trust_env=False).json()
        yield web.url


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
@given(data=st.data(), is_known=st.booleans())
@settings(max_examples=BOUND, deadline=None, suppress_health_check=list(HealthCheck))
def test_desk_answers_as_its_document_says(desk_url: str, operation: Any, data: st.DataObject, is_known: bool) -> None:
    """Whatever is asked: no 5xx, no undocumented status, media type or shape."""
    mode = data.draw(st.sampled_from(list(schemathesis.GenerationMode)))
    case = data.draw(operation.as_strategy(generation_mode=mode))
    if is_known and "voice_id" in case.path_parameters:
        case.path_parameters.update(institution="cu-1", voice_id="v-1")
    with requests.Session() as session:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        case.call_and_validate(base_url=desk_url, headers=headers, checks=CHECKS, session=session)
