"""All settings: frozen records, one for each kind of process, read from environment variables.

A process reads only what it needs, so the web process never holds the service account's password and a worker never
holds the push secret. The text below a field explains its variable; docs/configuration.md and ``.env.example`` show it.
"""

import hmac
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec.structs import asdict, replace

from callkeeper.app import credentials, parsing
from callkeeper.app.environment import (
    SettingsSection,
    Variable,
    defaulted,
    misspelled_variables,
    optional,
    part,
    required,
)
from callkeeper.app.parsing import AlertAddress, PerInstitution
from callkeeper.app.redis_location import RedisLocation, Tls, parse_location, tls_options
from callkeeper.app.terminal import Misset
from callkeeper.calls.metrics.redis_writer import KEYED_BY
from callkeeper.calls.rules import RuleBook, load_rules
from callkeeper.calls.store.account_use import AccountUse
from callkeeper.calls.store.keys import KEPT_S, PREFIX, Keys, Retention
from callkeeper.desk.access.configured_logins import AdminLogin, Grant, OidcConfig
from callkeeper.desk.access.rights import Rights
from callkeeper.service.config import is_loopback
from callkeeper.service.proxy import Proxy
from callkeeper.service.push_event import Headers
from callkeeper.service.secret import Secret

if TYPE_CHECKING:
    from callkeeper.archive.database import Database

_ISSUED: Final = "<as issued at onboarding>"
_PUSH_HEADERS: Final = "X-Push-Key: <printed by: callkeeper secret new>"
_SIGNING_KEY: Final = "whsec_<printed by: callkeeper secret outcome>"
_PROXY: Final = "http://proxy.example:3128, direct=core.example|login.example"
_ALERT_URLS: Final = "jsons://alerts.example/callkeeper, page=<an apprise URL>"


DIGEST_LENGTH: Final = 12
"""How many characters of a digest tell one value of a setting from another."""


def _keyed(key: Secret, text: str) -> str:
    return hmac.digest(key.reveal().encode(), text.encode(), "sha256").hex()


def _digests(key: Secret, values: Mapping[str, str | None]) -> dict[str, str]:
    """Return what tells values of settings from others of processes with this key, by variable; empty for None.

    Most values could be guessed, so nobody can find them without the key.
    """
    return {
        name: "" if value is None else _keyed(key, f"{name}\n{value}")[:DIGEST_LENGTH] for name, value in values.items()
    }


class NetworkSettings(SettingsSection, frozen=True, kw_only=True):
    """How servers outside are reached: whose certificates are trusted, and which go through the outgoing proxy."""

    ca: Path | None = optional("CALLKEEPER_CA", parsing.authorities, "/etc/ssl/bank-ca.pem")
    """Further authorities that are trusted, a PEM file. The archive's database: only these, or those of ?sslrootcert=."""
    proxy: Proxy | None = optional("CALLKEEPER_PROXY", Proxy.of, _PROXY, secret=True)
    """The outgoing proxy of https:// to the service, the identity provider and the receiver, but for hosts of direct=."""

    @property
    def ca_file(self) -> str | None:
        """Return the file of the authorities, as libraries take it."""
        return None if self.ca is None else str(self.ca)

    def proxy_to(self, url: str) -> Proxy | None:
        """Return the proxy through which an address is reached; None: directly, as this machine and all without TLS."""
        parts = urlsplit(url)
        is_readable = parts.scheme != "https" or is_loopback(parts.hostname or "")
        return None if self.proxy is None or is_readable or self.proxy.leaves_out(url) else self.proxy


class StoreSettings(SettingsSection, frozen=True, kw_only=True):
    """Settings of every process: where the calls are kept."""

    network: NetworkSettings = part(NetworkSettings)
    redis_url: RedisLocation = required("REDIS_URL", parse_location, "redis://localhost:6379/0", secret=True)
    """Where the calls and the RQ queue are kept; rediss:// for TLS, redis+sentinel://h1:26379,h2:26379/master/0."""
    redis_tls: Tls = defaulted("CALLKEEPER_REDIS_TLS", parsing.one_of(Tls), "verified", Tls.VERIFIED)
    """unverified: accept any certificate of a rediss:// server, with a warning at every start. Default verified."""
    key_prefix: str = defaulted("CALLKEEPER_REDIS_PREFIX", parsing.key_prefix, "ck", PREFIX)
    """Prefix of our keys in Redis, so that several installations can share one server. Default ck."""
    keep_calls_s: int = defaulted("CALLKEEPER_KEEP_CALLS", parsing.span("mhd", "1m", "365d"), "14d", KEPT_S)
    """How long settled calls, their trails and the event log are kept: 1m to 365d. Default 14d."""
    country: str = defaulted("CALLKEEPER_COUNTRY", parsing.country, "US", "US")
    """The country of phone numbers that people type without a country code, as two letters. Default US."""

    @property
    def redis(self) -> RedisLocation:
        """Where Redis is, and how its certificate is verified."""
        return replace(self.redis_url, tls=self.redis_tls, authorities=self.network.ca)

    @property
    def keys(self) -> Keys:
        return Keys(self.key_prefix)

    @property
    def retention(self) -> Retention:
        """How long Redis keeps finished data."""
        return Retention(calls_s=self.keep_calls_s)


class ServiceSettings(SettingsSection, frozen=True, kw_only=True):
    """The address of the service, and our credentials for it.

    Spec: Authentication.
    """

    network: NetworkSettings = part(NetworkSettings)
    url: str = required("CALLKEEPER_SERVICE_URL", parsing.service_url, "https://service.example")
    """Base address of the voice-verification service, without /external."""
    access_token: Secret = required("CALLKEEPER_ACCESS_TOKEN", credentials.issued_header, _ISSUED, secret=True)
    """The access token issued at onboarding; sent only when logging in."""
    email: str = required("CALLKEEPER_EMAIL", parsing.email, "svc@reseller.example", secret=True)
    """The service account's e-mail address."""
    password: Secret = required("CALLKEEPER_PASSWORD", credentials.issued, _ISSUED, secret=True)
    """The service account's password."""
    requested_by: PerInstitution[str] = required(
        "CALLKEEPER_REQUESTED_BY", parsing.requested_by, "bot, cu-1=svc1, cu-2=svc2"
    )
    """Core username that automatic actions are recorded for; key=username for single institutions."""

    @property
    def account(self) -> str:
        """Return what tells this account from others. It does not lead to the address or the token."""
        return _keyed(self.access_token, f"{self.url}\n{self.email}")


class AlertSettings(SettingsSection, frozen=True, kw_only=True):
    """Where alerts are sent, and what they link to. Web and workers all watch; one of these processes sends."""

    addresses: tuple[AlertAddress, ...] = defaulted(
        "CALLKEEPER_ALERT_URLS", parsing.alert_addresses, _ALERT_URLS, (), secret=True
    )
    """Where alerts are sent: apprise URLs, separated by commas; page=URL gets only urgent ones. Unset: none are sent."""
    public_url: str | None = optional("CALLKEEPER_PUBLIC_URL", parsing.public_url, "https://callkeeper.example")
    """Public address of the web process. Alerts link to it, the doctor tests it, the identity provider redirects to it."""


class TelemetrySettings(SettingsSection, frozen=True, kw_only=True):
    """The collector of traces. OpenTelemetry's own variable; its SDK reads further ones itself."""

    endpoint: str = required("OTEL_EXPORTER_OTLP_ENDPOINT", parsing.collector, "http://otel-collector:4318")
    """Where traces are sent by OTLP over HTTP; needs the extra otel. Unset: nowhere."""


class ArchiveSettings(SettingsSection, frozen=True, kw_only=True):
    """Where calls are kept for years."""

    network: NetworkSettings = part(NetworkSettings)
    url: Secret = required(
        "CALLKEEPER_ARCHIVE_URL", parsing.archive_url, "postgresql://callkeeper@db.example/archive", secret=True
    )
    """Where calls are kept for years: postgresql:// (?sslmode=require: unverified), or sqlite:////path. Unset: nowhere."""

    @property
    def place(self) -> str:
        """Return which database it is, without the user and password, which may differ while they are replaced."""
        parts = urlsplit(self.url.reveal())
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def is_verified(self) -> bool:
        """Tell whether the address leaves the verification of the server's certificate on."""
        return "sslmode=require" not in urlsplit(self.url.reveal()).query

    def open(self) -> "Database":
        """Return the database, without connecting. SQLAlchemy is imported only here."""
        from callkeeper.archive.database import Database  # noqa: PLC0415  (as the docstring says)

        return Database(self.url.reveal(), tls_options(self.url.reveal(), self.network.ca))


class WorkerArchiveSettings(ArchiveSettings, frozen=True, kw_only=True):
    """Settings of workers that write to the archive, and of the commands that erase."""

    key: Secret | None = optional(
        "CALLKEEPER_ARCHIVE_KEY",
        credentials.strong_secret,
        "<printed by: callkeeper secret new, behind the colon>",
        secret=True,
    )
    """Signs the heads of the archive's chains in the log. The database's administrators must not be able to read it."""
    keep_s: PerInstitution[int] | None = optional("CALLKEEPER_ARCHIVE_KEEP", parsing.keep_archive, "10y, cu-1=7y")
    """How long the archive keeps calls, in years or days; key=length for single institutions. Unset: for ever."""

    def keep_ms(self, institution_key: str) -> int | None:
        """Return how long an institution's calls are kept, in milliseconds; None: for ever."""
        return None if self.keep_s is None else self.keep_s.for_institution(institution_key) * 1000


class RuleSettings(SettingsSection, frozen=True, kw_only=True):
    """The rules in force. The workers' decide; web shows the state of calls by its own."""

    rules: Path | None = optional("CALLKEEPER_RULES", parsing.rules_file, "rules.toml")
    """Path of the rules file, or the name of a shipped one. Default: the cautious one of the shipped ones."""

    def book(self, owned: frozenset[str] | None = None) -> RuleBook:
        """Return the rules in force; ``owned`` are the institutions that they may name (None: any).

        Raises:
            callkeeper.calls.rules.RulesError: The file has faults.
        """
        return load_rules(self.rules, owned=owned)


def _limits(limited: Iterable[Rights]) -> frozenset[str]:
    """Return every institution that something is limited to."""
    return frozenset[str]().union(*(each.institutions or () for each in limited))


class OidcSettings(SettingsSection, frozen=True, kw_only=True):
    """The identity provider by which people log in: OpenID Connect, authorization code with PKCE."""

    network: NetworkSettings = part(NetworkSettings)
    issuer: str = required("CALLKEEPER_OIDC_ISSUER", parsing.issuer, "https://login.example/realms/bank")
    """Issuer of the identity provider at which people log in, exactly as the provider writes it. Unset: none."""
    client_id: str = required("CALLKEEPER_OIDC_CLIENT_ID", parsing.plain_text, "callkeeper")
    """Our client id at the identity provider. The redirect URI is CALLKEEPER_PUBLIC_URL/login/callback."""
    client_secret: Secret = required("CALLKEEPER_OIDC_CLIENT_SECRET", Secret, "<as issued>", secret=True)
    """The secret that belongs to the client id."""
    grants: tuple[Grant, ...] = required(
        "CALLKEEPER_OIDC_ROLES", parsing.grants, "voice-agents=agent, voice-leads=supervisor@cu-1|cu-2"
    )
    """value=role of the role claim; @cu-1|cu-2 limits it. The highest role counts: viewer, agent, supervisor, admin."""
    role_claim: str = defaulted("CALLKEEPER_OIDC_ROLE_CLAIM", parsing.plain_text, "realm_access.roles", "groups")
    """The claim of the ID token that names groups or roles; a dot leads into an object. Default groups."""
    operator_claim: str = defaulted(
        "CALLKEEPER_OIDC_OPERATOR_CLAIM", parsing.plain_text, "core_username", "preferred_username"
    )
    """The claim of the ID token with the core username under which a person acts. Default preferred_username."""

    def config(self, public_url: str) -> OidcConfig:
        """Return the configuration of the login; ``public_url`` is our address."""
        settings = asdict(self)
        del settings["network"]
        ca, proxy = self.network.ca, self.network.proxy_to(self.issuer)
        return OidcConfig(redirect_uri=f"{public_url}/login/callback", ca=ca, proxy=proxy, **settings)


def _shown(headers: Headers) -> str:
    """Return headers as one text: those that accept the same pushes are equal."""
    return "\n".join(sorted(f"{name.lower()}: {value.reveal()}" for name, value in headers))


def _limit(rights: Rights) -> str:
    return "" if rights.institutions is None else f"@{sorted(rights.institutions)}"


class WebSettings(RuleSettings, frozen=True, kw_only=True):
    """Settings of the web process. It has none of the service's credentials."""

    store: StoreSettings = part(StoreSettings)
    alerts: AlertSettings = part(AlertSettings)
    telemetry: TelemetrySettings | None = part(TelemetrySettings, only_if="OTEL_EXPORTER_OTLP_ENDPOINT")
    port: int = defaulted("PORT", parsing.between(0, 65535), "8000", 8000)
    """The port that the web process listens on; platforms set it. Default 8000."""
    push_headers: Headers = required("CALLKEEPER_PUSH_HEADERS", credentials.push_headers, _PUSH_HEADERS, secret=True)
    """The headers that every push must carry, exactly as typed in the dashboard."""
    push_headers_previous: Headers | None = optional(
        "CALLKEEPER_PUSH_HEADERS_PREVIOUS", credentials.push_headers, "X-Push-Key: <the one used before>", secret=True
    )
    """During a rotation: the previous headers, accepted too, with a warning of the doctor, until you remove this."""
    archive: ArchiveSettings | None = part(ArchiveSettings, only_if="CALLKEEPER_ARCHIVE_URL")
    admin: AdminLogin | None = optional(
        "CALLKEEPER_ADMIN", credentials.login, "ops:<32 or more characters>", secret=True
    )
    """user:password that opens everything in an emergency. Each use from another machine is an incident."""
    oidc: OidcSettings | None = part(OidcSettings, only_if="CALLKEEPER_OIDC_ISSUER")
    metrics_token: Secret | None = optional(
        "CALLKEEPER_METRICS_TOKEN", credentials.metrics_token, "<printed by: callkeeper secret metrics>", secret=True
    )
    """The bearer token of Prometheus for /metrics. Unset: /metrics needs a login."""
    desk_origins: tuple[str, ...] = defaulted("CALLKEEPER_DESK_ORIGINS", parsing.origins, "https://agents.example", ())
    """Origins of web pages that may use the desk from a browser. Default: none."""
    forwarded_hops: int = defaulted("CALLKEEPER_FORWARDED_HOPS", parsing.between(0, 5), "1", 0)
    """Routers in front of web that append to X-Forwarded-For, 0 to 5 (Heroku: 1). Default 0: the header is ignored."""

    def digests(self) -> dict[str, str]:
        """Return digests of the settings that must be equal in all web processes, by variable; empty where one is not set.

        A person chose the administrator's password, so its digest is made of the key that is derived slowly.
        """
        previous, oidc = self.push_headers_previous, self.oidc
        roles = None if oidc is None else "\n".join(f"{each.value}={each.role}{_limit(each)}" for each in oidc.grants)
        values = {
            KEYED_BY["web"]: "",
            "CALLKEEPER_PUSH_HEADERS_PREVIOUS": None if previous is None else _shown(previous),
            "CALLKEEPER_ADMIN": None if self.admin is None else self.admin.key_for("digest of settings").hex(),
            "CALLKEEPER_OIDC_ISSUER": None if oidc is None else f"{oidc.issuer}\n{oidc.client_id}",
            "CALLKEEPER_OIDC_ROLES": roles,
            "CALLKEEPER_METRICS_TOKEN": None if self.metrics_token is None else self.metrics_token.reveal(),
            "CALLKEEPER_DESK_ORIGINS": "\n".join(sorted(self.desk_origins)) or None,
            "CALLKEEPER_ARCHIVE_URL": None if self.archive is None else self.archive.place,
        }
        return _digests(Secret(_shown(self.push_headers)), values)

    def named_institutions(self) -> dict[str, frozenset[str]]:
        """Return the institutions that the settings name, by variable, without those of the rules file."""
        grants = self.oidc.grants if self.oidc is not None else ()
        return {"CALLKEEPER_OIDC_ROLES": _limits(grants)}

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a missing address for the identity provider's redirect."""
        if self.oidc is not None and self.alerts.public_url is None:
            yield "CALLKEEPER_PUBLIC_URL", "is required with CALLKEEPER_OIDC_ISSUER, which redirects people to it"

    @property
    def has_pages(self) -> bool:
        """Whether the board, the dashboard and the metrics are served."""
        return self.admin is not None or self.has_login_page

    @property
    def has_login_page(self) -> bool:
        """Whether people log in at an identity provider."""
        return self.oidc is not None


class OutcomeSettings(SettingsSection, frozen=True, kw_only=True):
    """Where outcomes are posted, and how they are signed."""

    network: NetworkSettings = part(NetworkSettings)
    url: str = required("CALLKEEPER_OUTCOME_URL", parsing.outcome_url, "https://core.example/callkeeper")
    """Where outcomes of calls are posted, signed by Standard Webhooks; https. Unset: nowhere."""
    secrets: tuple[Secret, ...] = required(
        "CALLKEEPER_OUTCOME_SECRET", credentials.outcome_secrets, _SIGNING_KEY, secret=True
    )
    """The signing key: whsec_ and 24 to 64 bytes in base64. During a rotation two, separated by a comma."""


class WorkerSettings(RuleSettings, frozen=True, kw_only=True):
    """Settings of a worker. It has no push secret."""

    store: StoreSettings = part(StoreSettings)
    alerts: AlertSettings = part(AlertSettings)
    telemetry: TelemetrySettings | None = part(TelemetrySettings, only_if="OTEL_EXPORTER_OTLP_ENDPOINT")
    service: ServiceSettings = part(ServiceSettings)
    institutions: tuple[str, ...] | None = optional("CALLKEEPER_INSTITUTIONS", parsing.institutions, "cu-1, cu-2")
    """The institutions to act for, separated by commas. Default: all that the service account manages."""
    test_institutions: tuple[str, ...] = defaulted("CALLKEEPER_TEST_INSTITUTIONS", parsing.institutions, "cu-test", ())
    """Institutions whose calls are handled although the service says that they are in test mode. Default: none."""
    service_rps: int | None = optional("CALLKEEPER_SERVICE_RPS", parsing.between(1, 10_000), "15")
    """Highest number of requests per second of all workers together, 1 to 10000. Unset: learned from 429 and 503."""
    archive: WorkerArchiveSettings | None = part(WorkerArchiveSettings, only_if="CALLKEEPER_ARCHIVE_URL")
    outcomes: OutcomeSettings | None = part(OutcomeSettings, only_if="CALLKEEPER_OUTCOME_URL")

    def account_use(self) -> AccountUse:
        """Return what notes which installations work with the account."""
        return AccountUse(self.store.keys, self.service.account, self.institutions)

    def digests(self) -> dict[str, str]:
        """Return digests of the settings that must be equal in all workers, by variable; empty where one is not set."""
        operators = self.service.requested_by
        values = {
            KEYED_BY["worker"]: "",
            "CALLKEEPER_SERVICE_URL": self.service.url,
            "CALLKEEPER_EMAIL": self.service.email,
            "CALLKEEPER_REQUESTED_BY": f"{operators.default}\n{sorted(operators.by_institution.items())}",
            "CALLKEEPER_INSTITUTIONS": None if self.institutions is None else ",".join(sorted(self.institutions)),
            "CALLKEEPER_TEST_INSTITUTIONS": ",".join(sorted(self.test_institutions)) or None,
            "CALLKEEPER_ARCHIVE_URL": None if self.archive is None else self.archive.place,
            "CALLKEEPER_OUTCOME_URL": None if self.outcomes is None else self.outcomes.url,
        }
        return _digests(self.service.access_token, values)

    def rule_book(self) -> RuleBook:
        """Return the rules in force, which may name the institutions to act for. Raises as `book`."""
        return self.book(frozenset(self.institutions) if self.institutions is not None else None)

    def named_institutions(self, in_rules: frozenset[str] = frozenset()) -> dict[str, frozenset[str]]:
        """Return the institutions that the settings name, by variable; ``in_rules`` are those of the rules file."""
        return {
            "CALLKEEPER_INSTITUTIONS": frozenset(self.institutions or ()),
            "CALLKEEPER_TEST_INSTITUTIONS": frozenset(self.test_institutions),
            "CALLKEEPER_REQUESTED_BY": frozenset(self.service.requested_by.by_institution),
            "CALLKEEPER_RULES": in_rules,
        }


VARIABLES: Final[dict[str, Variable]] = WebSettings.variables() | WorkerSettings.variables()
"""All variables, by name."""


_ONE_CA: Final = "name all authorities of your own in CALLKEEPER_CA; they are trusted besides the usual ones"
_ONE_PROXY: Final = "set CALLKEEPER_PROXY, with direct= and the hosts that are reached without it"

REMOVED_SETTINGS: Final = {
    "CALLKEEPER_ARCHIVE_CA": _ONE_CA,
    "CALLKEEPER_ARCHIVE_TLS": "unverified is ?sslmode=require in CALLKEEPER_ARCHIVE_URL",
    "CALLKEEPER_CHECK_AT": "write the times into the rules file: [checks] at",
    "CALLKEEPER_DESK_TOKENS": "callkeeper tokens issue NAME makes a token, which applies at once",
    "CALLKEEPER_KEEP_EVENTS": "the event log holds 100,000 lines",
    "CALLKEEPER_KEEP_FIGURES": "figures per minute are kept for an hour; Prometheus keeps them for longer",
    "CALLKEEPER_LOCAL_USERS": "people log in at an identity provider: set CALLKEEPER_OIDC_ISSUER",
    "CALLKEEPER_LOG_FORMAT": "the log is for people on a terminal, and JSON everywhere else",
    "CALLKEEPER_OIDC_CA": _ONE_CA,
    "CALLKEEPER_OIDC_PROXY": _ONE_PROXY,
    "CALLKEEPER_OIDC_SCOPE": "the scopes follow from the claims that CALLKEEPER_OIDC_ROLE_CLAIM and _OPERATOR_CLAIM name",
    "CALLKEEPER_OUTCOME_CA": _ONE_CA,
    "CALLKEEPER_OUTCOME_PRIVATE": "CALLKEEPER_OUTCOME_URL may lead to a private network",
    "CALLKEEPER_OUTCOME_PROXY": _ONE_PROXY,
    "CALLKEEPER_PUSH_HEADERS_PREVIOUS_UNTIL": "a rotation ends when you remove CALLKEEPER_PUSH_HEADERS_PREVIOUS",
    "CALLKEEPER_QUEUE_PAGE": "the size of a page adapts to the service",
    "CALLKEEPER_RECONCILE_S": "the queue is listed every 5 s while calls are live",
    "CALLKEEPER_REDIS_CA": _ONE_CA,
    "CALLKEEPER_SERVICE_CA": _ONE_CA,
    "CALLKEEPER_SERVICE_PROXY": _ONE_PROXY,
}
"""Settings of earlier releases, and what replaces them."""


def removed_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what replaces each setting of an earlier release that has a value."""
    return {name: instead for name, instead in REMOVED_SETTINGS.items() if environ.get(name, "").strip()}


def refuse_misspelled(environ: Mapping[str, str]) -> None:
    """Refuse to go on without the setting that was meant: it may be the one that keeps callkeeper from acting.

    Raises:
        Misset: A variable is a setting's name but for a character or two, or a setting of an earlier release.
    """
    gone = [f"  {name}: is no setting any more; {instead}" for name, instead in removed_settings(environ).items()]
    if gone:
        raise Misset("a setting was removed:", *gone)
    misspelled = misspelled_variables({name: environ[name] for name in environ.keys() - REMOVED_SETTINGS}, VARIABLES)
    if misspelled:
        lines = [f"  {name}: is no setting; did you mean {meant}? Correct or remove it" for name, meant in misspelled]
        raise Misset("a setting is misspelled:", *lines)
