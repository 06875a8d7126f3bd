"""``callkeeper reseller`` against the sandbox: every command, without secrets in the output."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from callkeeper.app.cli import main
from callkeeper.app.commands.service_terminal import ADVICE
from callkeeper.service import (
    AccessRefused,
    AnswerUnreadable,
    NeedsPerson,
    NotSent,
    OutcomeUnknown,
    ResellerError,
    ServiceRefused,
    ServiceUnavailable,
    TokenLapsed,
)
from tests.sandbox_fixtures import KEY, PHONE, ServedSandbox

Run = Callable[..., Result]


@pytest.fixture
def environment(sandbox_server: ServedSandbox) -> dict[str, str]:
    """Return the environment that reaches the stand-in."""
    return {
        "CALLKEEPER_SERVICE_URL": sandbox_server.url,
        "CALLKEEPER_ACCESS_TOKEN": sandbox_server.credentials.access_token,
        "CALLKEEPER_EMAIL": sandbox_server.credentials.email,
        "CALLKEEPER_PASSWORD": sandbox_server.credentials.password,
        "CALLKEEPER_REQUESTED_BY": "bot, cu-1=svc1",
        "COLUMNS": "200",
    }


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """Run a command of ``callkeeper reseller``."""

    def run(*args: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(main, ["reseller", *args], env=environment, input=answer)

    return run


def ok(result: Result) -> str:
    """Return the output of a command that went well."""
    assert result.exit_code == 0, result.output
    return result.stdout


def parsed(result: Result) -> Any:
    """Return the JSON output of a command that went well."""
    return json.loads(ok(result))


def test_call_is_looked_at_by_hand(run: Run, sandbox_server: ServedSandbox) -> None:
    """Endpoints 3 and 5: find a call and read its record, which makes no check."""
    voice_id = sandbox_server.call()["voice_id"]
    listed = ok(run("queue", KEY, "--search", PHONE, "--start", "2020-01-01"))
    assert voice_id in listed
    assert "(p-1)" in listed
    assert re.search(r"institutionKey +cu-1|status +\S", ok(run("details", KEY, voice_id)))
    assert parsed(run("details", KEY, voice_id, "--json"))["voiceId"] == voice_id
    assert sandbox_server.tally(voice_id)["arrived"].get("check", 0) == 0


@pytest.mark.parametrize("word", ["assign", "enroll", "reject-voice", "check"])
def test_no_command_acts_on_a_call(run: Run, word: str) -> None:
    """What would pass by the law, the budget and the trail cannot be done here."""
    assert run(word, KEY, "voice-1").exit_code == 2
    assert run("details", KEY, "voice-1", f"--{word}").exit_code == 2


def test_candidates_in_json_have_nothing_sensitive(run: Run, sandbox_server: ServedSandbox) -> None:
    """The service tells the terminal more of a member than it shows."""
    sandbox_server.call()
    ((person,),) = [entry["persons"] for entry in parsed(run("queue", KEY, "--json"))]
    assert person["personId"]
    assert not {"fullSsn", "last4Ssn", "dateOfBirth", "supportPassword", "driverLicense"} & person.keys()


def test_institutions_are_shown(run: Run) -> None:
    """Endpoints 8 and 9: the list, and one record with its secrets masked."""
    assert "First Example Credit Union" in ok(run("institutions"))
    assert [each["key"] for each in parsed(run("institutions", "--json"))] == [KEY]
    assert "First Example Credit Union" in ok(run("institutions", KEY))


def test_refusal_says_what_to_do(run: Run) -> None:
    """A failure is one line with the reason and the remedy, and an exit code."""
    result = run("details", KEY, "no-such-call")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: details: refused with status ")
    assert result.stderr.endswith("; the service says: Phone call not found\n"), "once, in its own words"
    assert result.stdout == ""


def test_refused_login_names_the_variables(environment: dict[str, str]) -> None:
    """Wrong credentials point at where they come from, without showing them."""
    result = CliRunner().invoke(
        main, ["reseller", "institutions"], env=environment | {"CALLKEEPER_PASSWORD": "canary-1"}
    )
    assert result.exit_code == 1
    assert "CALLKEEPER_PASSWORD" in result.stderr
    assert "canary-1" not in result.output


def test_missing_settings_are_named_at_once() -> None:
    """No settings: every missing variable with its reason and an example, and no traceback."""
    nothing = dict.fromkeys(
        f"CALLKEEPER_{name}" for name in ("SERVICE_URL", "ACCESS_TOKEN", "EMAIL", "PASSWORD", "REQUESTED_BY")
    )
    result = CliRunner().invoke(main, ["reseller", "institutions"], env=nothing)
    assert result.exit_code == 2
    assert all(f"{name}: is required" in result.stderr for name in nothing)


def test_output_cannot_repaint_the_terminal(run: Run, sandbox_server: ServedSandbox) -> None:
    """Markup and control characters in the service's texts are escaped."""
    sandbox_server.call(phone_number="[red]\x1b[2J555")
    listed = ok(run("queue", KEY))
    assert "\x1b" not in listed
    assert "[red]\\x1b[2J555" in listed


def test_tables_cut_no_word_in_a_narrow_terminal(environment: dict[str, str], sandbox_server: ServedSandbox) -> None:
    """At 80 columns, ids, numbers, times and names of columns are whole, as in the tables of other commands."""
    call = sandbox_server.call(phone_number="5551000007")
    narrow = {**environment, "FORCE_COLOR": "1", "COLUMNS": "80"}  # as in a terminal
    queue = ok(CliRunner().invoke(main, ["reseller", "queue", KEY], env=narrow))
    started = call["started_at"][:19].replace("T", " ")
    whole = ("voice id", "phone number", "started (UTC)", "claimed by", call["voice_id"], "5551000007", started)
    assert [word for word in whole if word not in queue] == []
    institutions = ok(CliRunner().invoke(main, ["reseller", "institutions"], env=narrow))
    assert [
        word for word in ("voice auth", "test mode", "First Example Credit Union") if word not in institutions
    ] == []


def test_every_error_has_advice() -> None:
    """Whatever the client raises, the command says what to do about it."""
    leaves = [
        *(ServiceUnavailable, ServiceRefused, AccessRefused, NotSent, TokenLapsed, OutcomeUnknown),
        *(NeedsPerson, AnswerUnreadable),
    ]
    assert set(leaves) == set(ResellerError.__subclasses__())
    assert set(leaves) <= {kind for kind, _ in ADVICE}


@pytest.mark.parametrize(
    "command",
    [
        ("queue", "CU-1"),
        ("details", "CU-1", "v-1"),
        ("institutions", "CU-1"),
    ],
    ids=" ".join,
)
def test_reseller_refuses_an_institution_that_the_account_does_not_manage(run: Run, command: tuple[str, ...]) -> None:
    """A mistyped institution is an error with the nearest one and exit code 1; nothing is sent with its key."""
    result = run(*command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no institution with the key 'CU-1'; did you mean cu-1 (First Example Credit Union)?" in result.stderr


def test_refusal_is_shown_with_the_services_own_words(run: Run, sandbox_server: ServedSandbox) -> None:
    """The person at the command line sees the service's whole error text."""
    body = '{"success": false, "errors": ["Ada Example has two accounts", "Choose one"]}'
    sandbox_server.fault("details", "refused", body=body)
    result = run("details", KEY, "v-1")
    assert result.exit_code == 1
    assert "Ada Example has two accounts; Choose one" in result.stderr


def test_messages_of_a_success_are_shown(run: Run, sandbox_server: ServedSandbox) -> None:
    """What the service says besides goes to the person, each text once and in full; JSON stays JSON."""
    sandbox_server.control("PUT", "/variants", ["messages-everywhere"])
    voice_id = sandbox_server.call()["voice_id"]
    for command in (("details", KEY, voice_id), ("queue", KEY), ("institutions",)):
        result = run(*command)
        assert ok(result)
        assert result.stderr.count("the service says: Maintenance on Sunday.") == 1
    assert parsed(run("queue", KEY, "--json"))
