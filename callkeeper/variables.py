"""Every environment variable there is; `.env.example` shows the same list."""

from datetime import datetime
from pathlib import Path
from typing import Any

from callkeeper import credentials, parsing
from callkeeper.environment import Variable
from callkeeper.redis_place import RedisPlace, Tls, parse_place
from calls.keys import PREFIX
from desk.access import AdminLogin, DeskToken
from reseller.push_headers import Headers
from reseller.secret import Secret

REDIS_URL = Variable[RedisPlace](
    name="REDIS_URL",
    meaning="Where the calls and the RQ queue are kept; rediss:// for TLS, redis+sentinel://h1:26379,h2:26379/master/0.",
    example="redis://localhost:6379/0",
    parse=parse_place,
    is_required=True,
    is_secret=True,
)
REDIS_CA = Variable[Path](
    name="CALLKEEPER_REDIS_CA",
    meaning="Certificates of the authorities trusted for rediss://, a PEM file. Default: the system's.",
    example="/etc/ssl/redis-ca.pem",
    parse=parsing.certificates,
)
REDIS_TLS = Variable[Tls](
    name="CALLKEEPER_REDIS_TLS",
    meaning="unverified: take any certificate of a rediss:// server; a warning at every start. Default verified.",
    example="verified",
    parse=parsing.redis_tls,
    default=Tls.VERIFIED,
)
REDIS_PREFIX = Variable[str](
    name="CALLKEEPER_REDIS_PREFIX",
    meaning="What our keys in Redis begin with, where several installations share one. Default ck.",
    example="ck",
    parse=parsing.key_prefix,
    default=PREFIX,
)
PORT = Variable(
    name="PORT",
    meaning="The port that the web process listens on; platforms set it. Default 8000.",
    example="8000",
    parse=parsing.port,
    default=8000,
)
SERVICE_URL = Variable(
    name="CALLKEEPER_SERVICE_URL",
    meaning="Base address of the voice-verification service, without /external.",
    example="https://service.example",
    parse=parsing.service_url,
    is_required=True,
)
ACCESS_TOKEN = Variable(
    name="CALLKEEPER_ACCESS_TOKEN",
    meaning="The access token issued at onboarding; sent only when logging in.",
    example="<as issued at onboarding>",
    parse=parsing.header_secret,
    is_required=True,
    is_secret=True,
)
EMAIL = Variable(
    name="CALLKEEPER_EMAIL",
    meaning="The service account's e-mail address.",
    example="svc@reseller.example",
    parse=parsing.email,
    is_required=True,
    is_secret=True,
)
PASSWORD = Variable(
    name="CALLKEEPER_PASSWORD",
    meaning="The service account's password.",
    example="<as issued at onboarding>",
    parse=parsing.credential,
    is_required=True,
    is_secret=True,
)
REQUESTED_BY = Variable(
    name="CALLKEEPER_REQUESTED_BY",
    meaning="Core username that automatic actions are recorded for; key=username for single institutions.",
    example="bot, cu-1=svc1, cu-2=svc2",
    parse=parsing.requested_by,
    is_required=True,
)
INSTITUTIONS = Variable[tuple[str, ...]](
    name="CALLKEEPER_INSTITUTIONS",
    meaning="The institutions to act for, separated by commas. Default: all that the service account manages.",
    example="cu-1, cu-2",
    parse=parsing.institutions,
)
PUSH_HEADERS = Variable[Headers](
    name="CALLKEEPER_PUSH_HEADERS",
    meaning="The headers that every push must carry, exactly as typed in the dashboard.",
    example="X-Push-Key: <printed by: callkeeper secret new>",
    parse=credentials.push_headers,
    is_required=True,
    is_secret=True,
)
PUSH_HEADERS_PREVIOUS = Variable[Headers](
    name="CALLKEEPER_PUSH_HEADERS_PREVIOUS",
    meaning="While the secret is exchanged: the headers used before, accepted too.",
    example="X-Push-Key: <the one used before>",
    parse=credentials.push_headers,
    is_secret=True,
)
PUSH_HEADERS_PREVIOUS_UNTIL = Variable[datetime](
    name="CALLKEEPER_PUSH_HEADERS_PREVIOUS_UNTIL",
    meaning="Until when: an ISO date (through the end of that day, UTC) or an instant with its zone.",
    example="2027-01-31",
    parse=parsing.until,
)
RULES = Variable[Path](
    name="CALLKEEPER_RULES",
    meaning="Path of the rules file, or the name of a shipped one. Default: the shipped, cautious one.",
    example="rules.toml",
    parse=parsing.rules_file,
)
CHECK_AT = Variable[tuple[float, ...]](
    name="CALLKEEPER_CHECK_AT",
    meaning="Check times in seconds after assignment, at most 20; replaces those of the rules file.",
    example="2, 5, 9, 14, 20, 30, 45, 60",
    parse=parsing.check_times,
)
RECONCILE_S = Variable[float](
    name="CALLKEEPER_RECONCILE_S",
    meaning="Seconds between two looks for new calls while calls are live, 1 to 60. Default 5.",
    example="5",
    parse=parsing.reconcile_period,
    default=5.0,
)
QUEUE_PAGE = Variable[int](
    name="CALLKEEPER_QUEUE_PAGE",
    meaning="Entries of the queue asked for at once, 10 to 10000; halved where the service refuses. Default 500.",
    example="500",
    parse=parsing.between(10, 10_000),
    default=500,
)
KEEP_CALLS = Variable[int](
    name="CALLKEEPER_KEEP_CALLS",
    meaning="How long settled calls, their trails and the event log are kept: 1m to 365d. Default 14d.",
    example="14d",
    parse=parsing.span(60, 365 * 86400),
    default=14 * 86400,
)
KEEP_EVENTS = Variable[int](
    name="CALLKEEPER_KEEP_EVENTS",
    meaning="How many events the event log holds at most, 1000 to 10000000. Default 100000.",
    example="100000",
    parse=parsing.between(1000, 10_000_000),
    default=100_000,
)
KEEP_FIGURES = Variable[int](
    name="CALLKEEPER_KEEP_FIGURES",
    meaning="How long figures are kept by the minute: 1h to 2d. Default 1h.",
    example="1h",
    parse=parsing.span(3600, 2 * 86400),
    default=3600,
)
PUBLIC_URL = Variable[str](
    name="CALLKEEPER_PUBLIC_URL",
    meaning="Where the web process is reached from outside; callkeeper doctor looks there. Unset: it does not.",
    example="https://callkeeper.example",
    parse=parsing.public_url,
)
ADMIN = Variable[AdminLogin](
    name="CALLKEEPER_ADMIN",
    meaning="user:password for the board, the RQ dashboard and /metrics. Unset: none of them is served.",
    example="ops:<12 or more characters>",
    parse=credentials.login,
    is_secret=True,
)
DESK_TOKENS = Variable[tuple[DeskToken, ...]](
    name="CALLKEEPER_DESK_TOKENS",
    meaning="name:token of the software that may use the desk, @cu-1|cu-2 limits it. Unset: there is no desk API.",
    example="desktop:<16 or more characters>, ivr:<16 or more characters>@cu-1|cu-2",
    parse=credentials.desk_tokens,
    is_secret=True,
)
DESK_ORIGINS = Variable[tuple[str, ...]](
    name="CALLKEEPER_DESK_ORIGINS",
    meaning="Origins of web pages that may use the desk from a browser. Default: none.",
    example="https://agents.example",
    parse=parsing.origins,
    default=(),
)
FORWARDED_HOPS = Variable[int](
    name="CALLKEEPER_FORWARDED_HOPS",
    meaning="Routers in front of web that append to X-Forwarded-For, 0 to 5 (Heroku: 1). Default 0: the header is ignored.",
    example="1",
    parse=parsing.hops,
    default=0,
)
OUTCOME_URL = Variable[str](
    name="CALLKEEPER_OUTCOME_URL",
    meaning="Where outcomes of calls are posted, signed by Standard Webhooks; https. Unset: nowhere.",
    example="https://core.example/callkeeper",
    parse=parsing.outcome_url,
)
OUTCOME_SECRET = Variable[Secret](
    name="CALLKEEPER_OUTCOME_SECRET",
    meaning="The key of the signatures: whsec_ and 24 to 64 bytes in base64. Required with the URL.",
    example="whsec_<printed by: callkeeper secret outcome>",
    parse=parsing.outcome_secret,
    is_secret=True,
)
OUTCOME_PRIVATE = Variable[bool](
    name="CALLKEEPER_OUTCOME_PRIVATE",
    meaning="yes: outcomes may go to addresses of this machine or of a private network. Default no.",
    example="no",
    parse=parsing.yes_or_no,
    default=False,
)
LOG_FORMAT = Variable[str](
    name="CALLKEEPER_LOG_FORMAT",
    meaning="How log lines look: json or console. Default json.",
    example="json",
    parse=parsing.log_format,
    default="json",
)

VARIABLES: tuple[Variable[Any], ...] = tuple(value for value in list(globals().values()) if isinstance(value, Variable))
"""Every variable there is, in the order of `.env.example`."""
