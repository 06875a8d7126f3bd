"""The desk's API gives only answers that its OpenAPI description names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.conftest import Effort, Target
from tests.audit.raw_requests import TOKEN


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
