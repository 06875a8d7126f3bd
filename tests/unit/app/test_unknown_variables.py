"""Variables with our prefix that are no settings."""

import re

import pytest
from click.testing import CliRunner

from callkeeper.app.cli import main
from callkeeper.app.doctor.configuration import unknown_variable_findings
from callkeeper.app.environment import misspelled_variables, unknown_variables
from callkeeper.app.settings import REMOVED_SETTINGS, VARIABLES, refuse_misspelled
from callkeeper.app.terminal import Misset

KNOWN = VARIABLES.keys()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("CALLKEEPER_SERVICE_RP", "CALLKEEPER_SERVICE_RPS"),
        ("CALLKEEPER_RULE", "CALLKEEPER_RULES"),
        ("CALLKEEPER_OUTCOMES_URL", "CALLKEEPER_OUTCOME_URL"),
        ("CALLKEEPER_FORWARDED_HOP", "CALLKEEPER_FORWARDED_HOPS"),
        ("CALLKEEPER_REDIS_URL", "REDIS_URL"),
        ("CALLKEEPER_PORT", "PORT"),
        ("callkeeper_rules", "CALLKEEPER_RULES"),
        ("CALLKEPER_RULES", "CALLKEEPER_RULES"),
        ("CALLKEEPER_ZZZZZZ", None),
    ],
)
def test_misspelled_variable_is_found_with_the_nearest_that_exists(name: str, nearest: str | None) -> None:
    """A variable that no setting has is named, with the most similar setting."""
    assert unknown_variables({name: "canary", "CALLKEEPER_EMAIL": "canary"}, KNOWN) == [(name, nearest)]


@pytest.mark.parametrize(
    "environ",
    [
        dict.fromkeys(VARIABLES, "canary"),
        {"PATH": "/bin", "KEEPER_RULES": "x", "CALL_RULES": "x"},
        {"CALLKEEPER_REMOVED_SECRETS": "CALLKEEPER_EMAIL"},
        {
            "CALLKEEPER_PORT": "tcp://10.0.0.1:80",
            "CALLKEEPER_WEB_SERVICE_HOST": "10.0.0.1",
            "CALLKEEPER_WEB_SERVICE_PORT": "80",
            "CALLKEEPER_WEB_SERVICE_PORT_HTTP": "80",
            "CALLKEEPER_WEB_PORT": "tcp://10.0.0.1:80",
            "CALLKEEPER_WEB_PORT_80_TCP": "tcp://10.0.0.1:80",
            "CALLKEEPER_WEB_PORT_80_TCP_PROTO": "tcp",
            "CALLKEEPER_WEB_PORT_80_TCP_ADDR": "10.0.0.1",
        },
    ],
    ids=["ours", "others", "ours-inside", "kubernetes"],
)
def test_variables_of_others_are_left_alone(environ: dict[str, str]) -> None:
    """Settings, variables of other software, and those that Kubernetes sets for services are no misspellings."""
    assert unknown_variables(environ, KNOWN) == []


@pytest.mark.parametrize(
    ("name", "is_misspelled"),
    [
        ("CALLKEEPER_RULE", True),
        ("CALLKEEPER_RULS", True),
        ("callkeeper_rules", True),
        ("CALLKEPER_RULES", True),
        ("CALLKEEPER_INSTITUTION", True),
        ("CALLKEEPER_REDIS_PREFX", True),
        ("CALLKEEPER_RULES_FOR_NIGHTS", False),
        ("CALLKEEPER_ARCHIVE_KEY_BEFORE", False),
        ("CALLKEEPER_ZZZZZZ", False),
    ],
)
def test_only_a_name_that_is_almost_a_settings_is_misspelled(name: str, is_misspelled: bool) -> None:
    """Others may be settings of a newer release."""
    assert bool(misspelled_variables({name: "canary"}, KNOWN)) is is_misspelled


def test_no_setting_is_almost_another() -> None:
    """Otherwise a rollback to a release without one of the two would refuse it as a misspelling."""
    for name in KNOWN:
        assert misspelled_variables({name: "canary"}, KNOWN - {name}) == []


@pytest.mark.parametrize("command", [("worker",), ("web",), ("pause", "--operator", "x", "because"), ("calls", "list")])
def test_no_command_works_without_the_setting_that_was_meant(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelled name ends the command as a wrong value does; its value is not shown."""
    monkeypatch.setenv("CALLKEEPER_INSTITUTION", "canary")
    result = CliRunner().invoke(main, command)
    line = "CALLKEEPER_INSTITUTION: is no setting; did you mean CALLKEEPER_INSTITUTIONS?"
    assert (result.exit_code, line in result.output, "canary" in result.output) == (2, True, False)


@pytest.mark.parametrize("name", REMOVED_SETTINGS)
def test_setting_of_an_earlier_release_stops_the_start(name: str) -> None:
    """The message names what replaces it, and not its value. The doctor says the same. A blank one counts as unset."""
    assert name not in VARIABLES
    with pytest.raises(Misset, match=f"{name}: .*{re.escape(REMOVED_SETTINGS[name])}") as refused:
        refuse_misspelled({name: "canary"})
    assert "canary" not in str(refused.value)
    (finding,) = unknown_variable_findings({name: "canary"}, frozenset())
    assert (finding.about, finding.remedy) == (name, REMOVED_SETTINGS[name])
    refuse_misspelled({name: " "})
