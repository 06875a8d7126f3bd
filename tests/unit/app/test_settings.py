"""The settings: what each command needs, and the messages for a wrong environment."""

from pathlib import Path

import pytest

from callkeeper.app.credentials import outcome_secrets
from callkeeper.app.documents import meanings
from callkeeper.app.environment import SettingsWrong
from callkeeper.app.parsing import alert_addresses
from callkeeper.app.settings import VARIABLES, OidcSettings, ServiceSettings, StoreSettings, WebSettings, WorkerSettings
from callkeeper.desk.access.configured_logins import Grant
from callkeeper.desk.access.rights import Role

WEB = {
    "REDIS_URL": "rediss://user:canary-redis@redis.example:6380/1?health_check_interval=30",
    "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: canary-push-1f8b32d9-4c07a65e93d2",
}
SERVICE = {
    "CALLKEEPER_SERVICE_URL": "https://service.example/",
    "CALLKEEPER_ACCESS_TOKEN": "canary-access",
    "CALLKEEPER_EMAIL": "svc@reseller.example",
    "CALLKEEPER_PASSWORD": "canary pässword",
    "CALLKEEPER_REQUESTED_BY": "bot, cu-1=svc1, cu-2 = svc 2",
}
WORKER = {"REDIS_URL": "redis://localhost"} | SERVICE
OUTCOME_SECRET = "whsec_Y2FuYXJ5LW91dGNvbWUta2V5LTAxMjM0NTY3ODk="


def test_web_settings_need_redis_and_the_push_headers_only() -> None:
    """The web process starts without the service's credentials, and everything else has a default."""
    settings = WebSettings.load(WEB)
    assert [(name, value.reveal()) for name, value in settings.push_headers] == [
        ("x-push-key", "canary-push-1f8b32d9-4c07a65e93d2")
    ]
    assert settings.store.redis.url.reveal() == WEB["REDIS_URL"]
    assert (settings.port, settings.admin) == (8000, None)


def test_worker_settings_need_redis_and_the_service_only() -> None:
    """The worker starts without the push secret, and everything else has a default."""
    settings = WorkerSettings.load(WORKER)
    assert settings.service.url == "https://service.example"
    assert (settings.institutions, settings.rules, settings.service_rps) == (None, None, None)


def test_service_settings_need_no_redis() -> None:
    """The commands of ``callkeeper reseller`` need only the service's credentials."""
    settings = ServiceSettings.load(SERVICE)
    assert settings.requested_by.for_institution("cu-2") == "svc 2"
    assert settings.requested_by.for_institution("cu-9") == "bot"


def test_settings_name_every_fault_at_once() -> None:
    """A4: a start that fails lists all variables that are missing or wrong, each with the reason and an example."""
    with pytest.raises(SettingsWrong) as caught:
        WebSettings.load({"REDIS_URL": "http://localhost", "PORT": "http", "CALLKEEPER_REDIS_TLS": "xml"})
    assert {fault.name for fault in caught.value.faults} == {
        "REDIS_URL",
        "CALLKEEPER_REDIS_TLS",
        "PORT",
        "CALLKEEPER_PUSH_HEADERS",
    }
    assert "CALLKEEPER_PUSH_HEADERS: is required\n    for example: CALLKEEPER_PUSH_HEADERS=X-Push-Key: " in str(
        caught.value
    )


@pytest.mark.parametrize("blank", ["", "  \n"])
def test_settings_take_blank_for_unset(blank: str) -> None:
    """A blank variable counts as unset."""
    assert WebSettings.load(WEB | {"PORT": blank, "CALLKEEPER_ADMIN": blank}).port == 8000
    with pytest.raises(SettingsWrong, match="REDIS_URL: is required"):
        StoreSettings.load({"REDIS_URL": blank})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDIS_URL", "localhost:6379"),
        ("REDIS_URL", "https://localhost"),
        ("REDIS_URL", "redis://"),
        ("REDIS_URL", "redis://localhost:canary/0"),
        ("REDIS_URL", "redis://localhost/canary"),
        ("REDIS_URL", "rediss://localhost/0/1"),
        ("REDIS_URL", "unix://"),
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("PORT", "٨٠"),
        ("CALLKEEPER_PUSH_HEADERS", "canary-without-a-colon"),
        ("CALLKEEPER_PUSH_HEADERS", "X-Push-Key: canary"),
        ("CALLKEEPER_PUSH_HEADERS", "X-Push-Key: aaaaaaaaaaaaaaaaaaaaaaaa"),
        ("CALLKEEPER_PUSH_HEADERS", "X-Push-Key: please-change-me-canary"),
        ("CALLKEEPER_PUSH_HEADERS", "X-Push-Key: <canary-canary-canary>"),
        ("CALLKEEPER_PUSH_HEADERS_PREVIOUS", "X-Push-Key: canary"),
        ("CALLKEEPER_ADMIN", "canary"),
        ("CALLKEEPER_ADMIN", "ops:canary"),
        ("CALLKEEPER_ADMIN", ":canary-canary-canary"),
        ("CALLKEEPER_ADMIN", "ops:changeme-canary-0815"),
        ("CALLKEEPER_FORWARDED_HOPS", "6"),
        ("CALLKEEPER_FORWARDED_HOPS", "-1"),
    ],
)
def test_web_settings_refuse(name: str, value: str) -> None:
    """A malformed or weak value is refused with its variable's name, and the message does not repeat it."""
    assert_refused(WebSettings, WEB, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CALLKEEPER_SERVICE_URL", "service.example"),
        ("CALLKEEPER_SERVICE_URL", "http://canary.example"),
        ("CALLKEEPER_SERVICE_URL", "http://[2001:db8::7]/canary"),
        ("CALLKEEPER_SERVICE_URL", "http://203.0.113.7"),
        ("CALLKEEPER_SERVICE_URL", "https://service.example/external"),
        ("CALLKEEPER_SERVICE_URL", "https://svc:canary@service.example"),
        ("CALLKEEPER_SERVICE_URL", "https://service.example?canary=1"),
        ("CALLKEEPER_SERVICE_URL", "https://service.example:canary"),
        ("CALLKEEPER_SERVICE_URL", "https://canary..example"),
        ("CALLKEEPER_SERVICE_URL", f"https://canary{'ä' * 60}.example"),
        ("CALLKEEPER_SERVICE_URL", r"https://service.example\canary"),
        ("CALLKEEPER_CA", "/nowhere/canary.pem"),
        ("CALLKEEPER_CA", __file__),
        ("CALLKEEPER_ACCESS_TOKEN", "canary token"),
        ("CALLKEEPER_ACCESS_TOKEN", "<canary>"),
        ("CALLKEEPER_EMAIL", "canary"),
        ("CALLKEEPER_PASSWORD", "<canary>"),
        ("CALLKEEPER_PASSWORD", "canary"),
        ("CALLKEEPER_PASSWORD", "Change-Me"),
        ("CALLKEEPER_ACCESS_TOKEN", "canary"),
        ("CALLKEEPER_REQUESTED_BY", "cu-1=canary"),
        ("CALLKEEPER_REQUESTED_BY", "bot, canary"),
        ("CALLKEEPER_REQUESTED_BY", "bot, cu-1=a, cu-1=canary"),
        ("CALLKEEPER_REQUESTED_BY", "ä canary"),
        ("CALLKEEPER_REQUESTED_BY", "bot,"),
        ("CALLKEEPER_INSTITUTIONS", "cu-1, canary/2"),
        ("CALLKEEPER_RULES", "/nowhere/canary.toml"),
        ("CALLKEEPER_KEEP_CALLS", "0d"),
        ("CALLKEEPER_KEEP_CALLS", "14"),
        ("CALLKEEPER_SERVICE_RPS", "0"),
        ("CALLKEEPER_SERVICE_RPS", "nan"),
        ("CALLKEEPER_ARCHIVE_URL", "mysql://u:canary@db.example/archive"),
        ("CALLKEEPER_ARCHIVE_URL", "postgresql://u:canary[canary]@db.example/archive"),
        ("CALLKEEPER_ARCHIVE_URL", "postgresql://u:canary\u2100@db.example/archive"),
        ("CALLKEEPER_ARCHIVE_URL", "postgresql://u:canary/canary@db.example/archive"),
        ("CALLKEEPER_ARCHIVE_URL", "postgresql://db.example/archive?sslmode=canary"),
    ],
)
def test_worker_settings_refuse(name: str, value: str) -> None:
    """A malformed value is refused with its variable's name, and the message does not repeat it."""
    assert_refused(WorkerSettings, WORKER, name, value)


def assert_refused(kind: type[WebSettings | WorkerSettings], environ: dict[str, str], name: str, value: str) -> None:
    """Assert that one wrong variable is the only one complained of, without its value."""
    with pytest.raises(SettingsWrong) as caught:
        kind.load(environ | {name: value})
    assert [fault.name for fault in caught.value.faults] == [name]
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CALLKEEPER_SERVICE_URL", "http://localhost:9000"),
        ("CALLKEEPER_SERVICE_URL", "http://127.0.0.1:9000"),
        ("CALLKEEPER_SERVICE_URL", "http://[::1]:9000"),
        ("CALLKEEPER_SERVICE_URL", "http://sandbox:9000"),
        ("CALLKEEPER_SERVICE_URL", "https://service.example/gateway/"),
        ("REDIS_URL", "unix:///run/redis.sock"),
        ("CALLKEEPER_RULES", __file__),
    ],
)
def test_worker_settings_accept(name: str, value: str) -> None:
    """Plain http is accepted only to this machine or to a host name without a domain."""
    WorkerSettings.load(WORKER | {name: value})


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("CALLKEEPER_KEEP_CALLS", "must be a number and a unit (m, h, d), from 1m to 365d"),
        ("CALLKEEPER_SERVICE_RPS", "must be a whole number, 1 to 10000"),
        ("CALLKEEPER_REDIS_TLS", "must be one of verified, unverified"),
    ],
)
def test_a_problem_names_the_bounds(name: str, problem: str) -> None:
    """The message for a wrong number, length of time or word says what is accepted."""
    with pytest.raises(SettingsWrong) as caught:
        WorkerSettings.load(WORKER | {name: "canary"})
    assert [fault.problem for fault in caught.value.faults] == [problem]


@pytest.mark.parametrize(
    ("text", "days"),
    [("10y", (3660, 3660)), ("400d, cu-1=1d", (1, 400)), ("10y,cu-2 = 7y ,cu-1=2y", (732, 3660))],
)
def test_archive_is_kept_for_years_or_days(text: str, days: tuple[int, int]) -> None:
    """A year is 366 days. Single institutions can have another length."""
    archive = {"CALLKEEPER_ARCHIVE_URL": "postgresql://db.example/archive", "CALLKEEPER_ARCHIVE_KEEP": text}
    settings = WorkerSettings.load(WORKER | archive).archive
    assert settings is not None
    assert settings.keep_s is not None
    assert tuple(settings.keep_s.for_institution(key) // 86400 for key in ("cu-1", "cu-9")) == days


@pytest.mark.parametrize(
    "text", ["10", "24h", "0d", "10y, cu-1", "cu-1=7y", "10y, cu-1=7y, cu-1=8y", "10y, canary/1=7y", "10y,"]
)
def test_archive_retention_refuses(text: str) -> None:
    """A length of time needs a unit of days or years, and an institution that is named once."""
    archive = {"CALLKEEPER_ARCHIVE_URL": "postgresql://db.example/archive"}
    assert_refused(WorkerSettings, WORKER | archive, "CALLKEEPER_ARCHIVE_KEEP", text)


def test_worker_settings_read_lists() -> None:
    """Lists are separated by commas, blanks do not matter, a repeated institution counts once."""
    settings = WorkerSettings.load(WORKER | {"CALLKEEPER_INSTITUTIONS": "cu-1,cu-2 , cu-1"})
    assert settings.institutions == ("cu-1", "cu-2")


def test_settings_turn_paths_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is relative to the start folder. The name of a shipped rules file is kept."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.toml").touch()
    authority = Path(__file__).parents[2] / "integration" / "service" / "certificates" / "authority.pem"
    (tmp_path / "ca.pem").write_bytes(authority.read_bytes())
    settings = WorkerSettings.load(WORKER | {"CALLKEEPER_RULES": "rules.toml", "CALLKEEPER_CA": "ca.pem"})
    assert settings.rules == tmp_path / "rules.toml"
    assert settings.store.redis.authorities == tmp_path / "ca.pem"
    assert WorkerSettings.load(WORKER | {"CALLKEEPER_RULES": "demo"}).rules == Path("demo")


def test_settings_of_the_provider_configure_the_login() -> None:
    """Every setting of the identity provider reaches the login, with our address to redirect to."""
    environ = {
        "CALLKEEPER_OIDC_ISSUER": "https://login.example",
        "CALLKEEPER_OIDC_CLIENT_ID": "callkeeper",
        "CALLKEEPER_OIDC_CLIENT_SECRET": "canary-client-5d0b7f2c91-4c07a65e93d2",
        "CALLKEEPER_OIDC_ROLES": "voice-leads=supervisor@cu-1",
    }
    config = OidcSettings.load(environ).config("https://desk.example")
    assert config.redirect_uri == "https://desk.example/login/callback"
    assert config.grants == (Grant(value="voice-leads", role=Role.SUPERVISOR, institutions=frozenset({"cu-1"})),)
    assert (config.issuer, config.client_id, config.role_claim) == ("https://login.example", "callkeeper", "groups")


SAME: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "order": ({"CALLKEEPER_INSTITUTIONS": "cu-1, cu-2"}, {"CALLKEEPER_INSTITUTIONS": "cu-2,cu-1"}),
    "operators": ({}, {"CALLKEEPER_REQUESTED_BY": "bot,cu-2=svc 2,cu-1=svc1"}),
    "rotated password of the archive": (
        {"CALLKEEPER_ARCHIVE_URL": "postgresql://a:old@db.example/archive"},
        {"CALLKEEPER_ARCHIVE_URL": "postgresql://b:new@db.example/archive"},
    ),
    "what each worker may have its own": ({}, {"CALLKEEPER_SERVICE_RPS": "9", "CALLKEEPER_COUNTRY": "DE"}),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_settings_that_mean_the_same_have_the_same_digests(one: dict[str, str], other: dict[str, str]) -> None:
    """Workers are compared by what the settings mean."""
    assert WorkerSettings.load(WORKER | one).digests() == WorkerSettings.load(WORKER | other).digests()


DIFFERENT = {
    "CALLKEEPER_SERVICE_URL": "https://staging.example",
    "CALLKEEPER_EMAIL": "other@reseller.example",
    "CALLKEEPER_REQUESTED_BY": "bot, cu-1=svc1",
    "CALLKEEPER_INSTITUTIONS": "cu-1",
    "CALLKEEPER_TEST_INSTITUTIONS": "cu-1",
    "CALLKEEPER_OUTCOME_URL": "https://core.example/callkeeper",
    "CALLKEEPER_ARCHIVE_URL": "sqlite:////var/archive.db",
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_setting_that_must_be_equal_in_all_workers_changes_its_digest(name: str) -> None:
    """And no other one's."""
    usual = WorkerSettings.load(WORKER).digests()
    changed = WorkerSettings.load(
        WORKER | {"CALLKEEPER_OUTCOME_SECRET": OUTCOME_SECRET, name: DIFFERENT[name]}
    ).digests()
    assert {each for each in usual if usual[each] != changed[each]} == {name}


def test_digests_of_settings_lead_to_no_value() -> None:
    """Most values could be guessed, so the digests need the access token. Of what is not set they say just that."""
    settings = {"CALLKEEPER_INSTITUTIONS": "cu-1", "CALLKEEPER_TEST_INSTITUTIONS": "cu-1"}
    one = WorkerSettings.load(WORKER | settings).digests()
    other = WorkerSettings.load(WORKER | settings | {"CALLKEEPER_ACCESS_TOKEN": "canary-other"}).digests()
    told = {name for name, digest in one.items() if digest}
    assert told == set(one) - {"CALLKEEPER_OUTCOME_URL", "CALLKEEPER_ARCHIVE_URL"}
    assert all(one[name] != other[name] for name in told)
    assert one["CALLKEEPER_INSTITUTIONS"] != one["CALLKEEPER_TEST_INSTITUTIONS"]
    assert max(map(len, one.values())) == 12


def test_settings_show_no_secret() -> None:
    """Promise 6: neither the repr of a record nor the address for logs holds a credential."""
    web = WebSettings.load(WEB | {"CALLKEEPER_ADMIN": "ops:canary-admin-0123456-4c07a65e93d2"})
    assert "canary" not in repr(web) + repr(WorkerSettings.load(WORKER))
    assert web.store.redis.address == "rediss://redis.example:6380/1"


def test_env_example_lists_exactly_what_exists() -> None:
    """`.env.example` and the code name the same variables, in the same order, with the same meanings."""
    root = Path(__file__).parents[3]
    assert (root / ".env.example").read_text(encoding="utf-8") == "\n".join(
        f"# {meanings()[variable.name]}{' Required.' if variable.is_required else ''}\n"
        f"{'' if variable.is_required else '# '}{variable.name}={variable.example}\n"
        for variable in VARIABLES.values()
    )


def test_env_example_is_not_a_working_configuration() -> None:
    """An unchanged copy of `.env.example` is refused, because of its placeholders."""
    with pytest.raises(SettingsWrong) as caught:
        WebSettings.load({variable.name: variable.example for variable in VARIABLES.values()})
    assert "CALLKEEPER_PUSH_HEADERS" in {fault.name for fault in caught.value.faults}


@pytest.mark.parametrize("host", ["core.example", "core", "10.0.0.7", "127.0.0.1.example", "[::ffff:10.0.0.1]"])
def test_outcome_url_is_https_beyond_this_machine(host: str) -> None:
    """Outcomes are never posted unencrypted over a network; to a private network they are posted as to others."""
    environ = {**WORKER, "CALLKEEPER_OUTCOME_SECRET": OUTCOME_SECRET}
    with pytest.raises(SettingsWrong, match="CALLKEEPER_OUTCOME_URL: must be https"):
        WorkerSettings.load({**environ, "CALLKEEPER_OUTCOME_URL": f"http://{host}/hook"})
    assert WorkerSettings.load({**environ, "CALLKEEPER_OUTCOME_URL": f"https://{host}/hook"}).outcomes is not None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_outcome_url_may_be_plain_on_this_machine(host: str) -> None:
    """A receiver on this machine needs no certificate."""
    environ = {**WORKER, "CALLKEEPER_OUTCOME_SECRET": OUTCOME_SECRET, "CALLKEEPER_OUTCOME_URL": f"http://{host}:9/"}
    assert WorkerSettings.load(environ).outcomes is not None


ONE, TWO, THREE = (f"whsec_{digit}aaaDqq7Wc3kZr9TnXb5Ym2LsVhEw8{digit}Q" for digit in "123")


@pytest.mark.parametrize(
    "text", [f"{ONE},{ONE}", f"{ONE},{TWO},{THREE}", f"{ONE},", "whsec_", "x", f"{ONE} {TWO}", "whsec_QQ=="]
)
def test_outcome_secrets_are_one_or_two(text: str) -> None:
    """During a rotation there are two different secrets. A message never repeats them."""
    with pytest.raises(ValueError) as problem:  # noqa: PT011  (every fault of a setting is one)
        outcome_secrets(text)
    assert "aaaD" not in str(problem.value)
    assert len(outcome_secrets(f"{ONE}, {TWO}")) == 2


def test_web_and_worker_know_the_address_that_alerts_link_to() -> None:
    """Either of them may be the process that sends the alerts."""
    place = {"CALLKEEPER_PUBLIC_URL": "https://callkeeper.example"}
    assert WebSettings.load(WEB | place).alerts == WorkerSettings.load(WORKER | place).alerts
    assert WorkerSettings.load(WORKER | place).alerts.public_url == "https://callkeeper.example"


def test_alert_addresses_are_split_and_never_shown() -> None:
    """Addresses are separated by commas or blanks, some with ``page=``. Invalid ones are kept for the doctor."""
    text = "json://u:canary@h/?to=a,b, page=slack://canary/x\n mailto://canary@h canary"
    found = alert_addresses(text)
    assert [(each.scheme, each.is_page_only) for each in found] == [("json", False), ("slack", True), ("mailto", False)]
    assert found[0].url.reveal() == "json://u:canary@h/?to=a,b"
    assert "canary" not in repr(found)
    assert [each.scheme for each in alert_addresses("canary")] == ["?"]


COLLECTOR = {**WEB, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


WEB_DIFFERENT = {
    "CALLKEEPER_PUSH_HEADERS_PREVIOUS": "X-Push-Key: k3y-Before-9QzR7tW2-4c07a65e93d2",
    "CALLKEEPER_ADMIN": "ops:Wavy-otter-47-lantern-4c07a65e93d2",
    "CALLKEEPER_METRICS_TOKEN": "m3trics-Q8vT-z5Lw-9Rk2-4c07a65e93d2",
    "CALLKEEPER_DESK_ORIGINS": "https://agents.example",
    "CALLKEEPER_ARCHIVE_URL": "sqlite:////var/archive.db",
}


@pytest.mark.parametrize("name", WEB_DIFFERENT)
def test_setting_that_must_be_equal_in_all_web_processes_changes_its_digest(name: str) -> None:
    """And no other one's. What is not set says just that."""
    usual = WebSettings.load(WEB).digests()
    changed = WebSettings.load(WEB | {name: WEB_DIFFERENT[name]}).digests()
    assert {each for each in usual if usual[each] != changed[each]} == {name}
    assert not usual[name]
    assert changed[name]


def test_limits_of_rights_have_no_order() -> None:
    """Sets have another order in each process: the digests of roles must not."""
    oidc = {
        "CALLKEEPER_PUBLIC_URL": "https://callkeeper.example",
        "CALLKEEPER_OIDC_ISSUER": "https://login.example",
        "CALLKEEPER_OIDC_CLIENT_ID": "callkeeper",
        "CALLKEEPER_OIDC_CLIENT_SECRET": "canary-client-5d0b7f2c91-4c07a65e93d2",
    }
    digests = [
        WebSettings.load(
            WEB
            | oidc
            | {
                "CALLKEEPER_OIDC_ROLES": f"voice-leads=supervisor@{limit}",
            }
        ).digests()
        for limit in ("cu-1|cu-2|cu-3", "cu-3|cu-2|cu-1", "cu-1")
    ]
    assert digests[0] == digests[1]
    differ = {name for name in digests[0] if digests[0][name] != digests[2][name]}
    assert differ == {"CALLKEEPER_OIDC_ROLES"}


def test_digests_of_a_web_process_need_its_push_headers() -> None:
    """With other push headers all digests are others. Order and the case of names mean nothing."""
    both = "X-One: k3y-Q8vT-z5Lw-9Rk2-4c07a65e93d2b8; X-Two: 2"
    one, same = (
        WebSettings.load(WEB | {"CALLKEEPER_PUSH_HEADERS": text}).digests()
        for text in (both, "x-two: 2; X-ONE: k3y-Q8vT-z5Lw-9Rk2-4c07a65e93d2b8")
    )
    assert one == same
    other = WebSettings.load(WEB).digests()
    assert one["CALLKEEPER_PUSH_HEADERS"] != other["CALLKEEPER_PUSH_HEADERS"]
    assert "k3y" not in f"{one}"
