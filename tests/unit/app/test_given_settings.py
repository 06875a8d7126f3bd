"""Settings that a person gives to ``callkeeper run``."""

from pathlib import Path

import pytest

from callkeeper.app.settings import WebSettings, WorkerSettings
from callkeeper_sandbox.demo.given_settings import OWN, GivenSettings, SettingsRefused

KEY = "whsec_Y2FuYXJ5LW91dGNvbWUta2V5LTAxMjM0NTY3ODlhYmNk"


def test_settings_go_to_the_processes_that_read_them(tmp_path: Path) -> None:
    """Origins go to web, an outcome address to workers, rules to both; a line counts before a file's."""
    file = tmp_path / "my.env"
    file.write_text("# what I try\nCALLKEEPER_DESK_ORIGINS=https://a.example\n\nCALLKEEPER_RULES='watch-only'\n")
    lines = ("CALLKEEPER_DESK_ORIGINS=https://b.example", "CALLKEEPER_OUTCOME_URL=http://localhost:9001/?a=b")
    given = GivenSettings.of([file], lines)
    rules = {"CALLKEEPER_RULES": "watch-only"}
    assert given.of_web() == {"CALLKEEPER_DESK_ORIGINS": "https://b.example", **rules}
    assert given.of_workers(KEY) == {
        "CALLKEEPER_OUTCOME_URL": "http://localhost:9001/?a=b",
        "CALLKEEPER_OUTCOME_SECRET": KEY,
        **rules,
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("CALLKEEPER_OUTCOM_URL=http://localhost:9001/", "did you mean CALLKEEPER_OUTCOME_URL?"),
        ("CALLKEEPER_OUTCOME_URL=canary", "CALLKEEPER_OUTCOME_URL: "),
        ("CALLKEEPER_RULES=/canary/rules.toml", "CALLKEEPER_RULES: "),
        ("CALLKEEPER_OIDC_ISSUER=http://localhost:9002", "--port 8000"),
        ("canary", "is no setting"),
        *((f"{name}=canary", f"{name}: the demonstration sets this itself") for name in sorted(OWN)),
    ],
)
def test_wrong_setting_is_refused_with_the_remedy(line: str, words: str) -> None:
    """Before anything is started, the refusal names the setting and what to do, and never a value."""
    with pytest.raises(SettingsRefused) as refused:
        GivenSettings.of([], [line])
    assert words in str(refused.value)
    assert line == "canary" or "canary" not in str(refused.value)


def test_every_own_setting_exists() -> None:
    """What the demonstration sets itself are settings."""
    assert (WebSettings.variables() | WorkerSettings.variables()).keys() >= OWN


def test_identity_provider_redirects_to_the_port() -> None:
    """With a port, web's public address is known before it starts, and can be registered at the provider."""
    lines = ("CALLKEEPER_OIDC_ISSUER=http://localhost:9002", "CALLKEEPER_OIDC_CLIENT_ID=demo")
    assert GivenSettings.of([], lines, port=8000).of_web()["CALLKEEPER_PUBLIC_URL"] == "http://127.0.0.1:8000"
