"""``REDIS_URL``: which forms are accepted, and the options that they give the Redis client."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.app.connections import blocking_redis, receiver_redis, warn_of_redis
from callkeeper.app.redis_location import RedisLocation, Tls, parse_location, tls_options
from callkeeper.app.settings import StoreSettings

BEHIND = "rediss+sentinel://app:canary%40word@h1:26380,h2,[::1]:26381/calls-master/3"
OPTIONS = "sentinel_username=look&sentinel_password=canary-look&health_check_interval=30"


def test_place_behind_sentinels_is_read_in_full() -> None:
    """Every sentinel with its port, the master's name, both logins, the database, and the client's own options."""
    place = parse_location(f"{BEHIND}?{OPTIONS}")
    assert place.sentinels is not None
    assert place.sentinels.addresses == (("h1", 26380), ("h2", 26379), ("::1", 26381))
    assert (place.sentinels.master, place.sentinels.username) == ("calls-master", "look")
    assert place.sentinels.password is not None
    assert place.sentinels.password.reveal() == "canary-look"
    assert place.uses_tls
    options = blocking_redis(place).connection_pool.connection_kwargs
    assert {name: options[name] for name in ("username", "password", "db", "health_check_interval")} == {
        "username": "app",
        "password": "canary@word",
        "db": 3,
        "health_check_interval": 30,
    }


@pytest.mark.parametrize("text", [BEHIND, f"{BEHIND}?{OPTIONS}", "redis://app:canary@h1/0?health_check_interval=1"])
def test_place_shows_no_secret(text: str) -> None:
    """Promise 6: neither the record nor the address that pages and logs show holds a password."""
    place = parse_location(text)
    assert "canary" not in repr(place) + place.address
    assert "h1" in place.address


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("redis+sentinel://h1:26379", "names no master"),
        ("redis+sentinel://h1:26379/", "names no master"),
        ("redis+sentinel:///calls", "names no sentinel"),
        ("redis+sentinel://h1,,h2/calls", "names no sentinel"),
        ("redis+sentinel://h1:canary/calls", "port is no number"),
        ("redis+sentinel://h1/calls/canary", "number of a database"),
        ("sentinel://h1/calls", "must start with"),
        ("redis://h1/0?socket_timout=5&canary=1", "has an option"),
        ("redis://h1/0?protocol=9", "has an option"),
        ("redis://app:canary#word@h1:6379/0", "write %23"),
        ("redis://app:12/canary@h1:6379/0", "%2F"),
        ("redis://app:canary?12@h1:6379/0", "%3F"),
        ("redis+sentinel://app:canary#word@h1/calls/0", "write %23"),
        ("redis://h1/0?decode_responses=yes", "has an option"),
        ("redis+sentinel://h1/calls/0?socket_timout=5", "has an option"),
        ("rediss://h1/0?ssl_cert_reqs=none", "CALLKEEPER_REDIS_TLS"),
        ("rediss+sentinel://h1/calls/0?ssl_check_hostname=False", "CALLKEEPER_REDIS_TLS"),
    ],
)
def test_place_refuses_what_it_cannot_mean(text: str, problem: str) -> None:
    """The message names the fault without the URL, which may contain a password."""
    with pytest.raises(ValueError, match=problem) as caught:
        parse_location(text)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("url", ["rediss://h1/0", "rediss+sentinel://h1/calls/0"])
def test_place_verifies_certificates_unless_told_otherwise(url: str) -> None:
    """With TLS the certificate and its host name are verified, unless a separate setting disables that."""
    strict = StoreSettings.load({"REDIS_URL": url, "CALLKEEPER_CA": AUTHORITY})
    loose = StoreSettings.load({"REDIS_URL": url, "CALLKEEPER_REDIS_TLS": "unverified"})
    for connect in (blocking_redis, receiver_redis):
        asked = connect(strict.redis).connection_pool.connection_kwargs
        assert (asked["ssl_cert_reqs"], asked["ssl_check_hostname"]) == ("required", True)
        assert asked["ssl_ca_certs"] == AUTHORITY
        assert connect(loose.redis).connection_pool.connection_kwargs["ssl_cert_reqs"] == "none"


AUTHORITY = str(Path(__file__).parents[2] / "integration" / "service" / "certificates" / "authority.pem")
BUNDLE = Path("/etc/ssl/bank-ca.pem")


@pytest.mark.parametrize(
    ("host", "query", "authorities", "asked"),
    [
        ("db.example", "", BUNDLE, {"sslmode": "verify-full", "sslrootcert": str(BUNDLE)}),
        ("db.svc", "", None, {}),
        ("db.svc", "", BUNDLE, {}),
        ("10.0.0.7", "", BUNDLE, {}),
        ("localhost", "", BUNDLE, {}),
        ("db.svc", "?sslmode=verify-full", BUNDLE, {"sslrootcert": str(BUNDLE)}),
        ("db.example", "?sslmode=require", BUNDLE, {}),
        ("db.example", "?sslmode=verify-ca", BUNDLE, {"sslrootcert": str(BUNDLE)}),
        ("db.example", "?sslmode=verify-full&sslrootcert=system", BUNDLE, {}),
    ],
)
def test_archive_certificate_is_verified_unless_its_address_says_otherwise(
    host: str, query: str, authorities: Path | None, asked: dict[str, str]
) -> None:
    """Outside a private network libpq verifies by CALLKEEPER_CA; what the address says itself counts before that.

    Within one nothing is verified unless the address says so: a CALLKEEPER_CA for a proxy stops no archive.
    """
    assert tls_options(f"postgresql://user@{host}/archive{query}", authorities) == asked


@pytest.mark.parametrize(
    ("url", "tls", "warnings"),
    [
        ("rediss://h1/0", "unverified", ["redis_unverified"]),
        ("rediss://h1/0", "verified", []),
        ("redis://h1/0", "unverified", []),
        ("redis://127.0.0.1/0", "verified", []),
        ("redis://10.0.0.7:6379/0", "verified", []),
        ("redis://[fd00::7]:6379/0", "verified", []),
        ("redis://redis.callkeeper.svc/0", "verified", []),
        ("unix:///run/redis.sock", "verified", []),
        ("redis://user:canary@red.example:6379/0", "verified", ["redis_unencrypted"]),
        ("redis://203.0.114.9:6379/0", "verified", ["redis_unencrypted"]),
        ("redis+sentinel://h1,red.example/calls/0", "verified", ["redis_unencrypted"]),
        ("redis+sentinel://h1,10.0.0.8/calls/0", "verified", []),
        ("rediss+sentinel://red.example/calls/0", "verified", []),
    ],
)
def test_insecure_connections_are_warned_of(
    log: FilteringBoundLogger, logged: LogCapture, url: str, tls: str, warnings: list[str]
) -> None:
    """Every start logs an unverified certificate, and an unencrypted connection that leaves the private network."""
    store = StoreSettings.load({"REDIS_URL": url, "CALLKEEPER_REDIS_TLS": tls})
    warn_of_redis(store.redis, log)
    assert store.redis.tls is Tls(tls)
    assert [entry["event"] for entry in logged.entries] == warnings
    assert "canary" not in str(logged.entries)


SCHEMES = st.sampled_from(["redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "http", ""])
PARTS = st.text(st.sampled_from("ab1:@/,?&=%[]#. é\n"), max_size=24)


def read_or_refused(text: str) -> RedisLocation | ValueError:
    """Return the place, or why there is none."""
    try:
        return parse_location(text)
    except ValueError as problem:
        return problem


@given(SCHEMES, PARTS)
def test_place_is_read_or_refused_and_never_repeats_a_password(scheme: str, rest: str) -> None:
    """Any input gives a location or a ValueError. Its cause, which may quote the password, is not shown."""
    match read_or_refused(f"{scheme}://user:canary-word@{rest}"):
        case RedisLocation() as place:
            assert "canary-word" not in repr(place)
            assert blocking_redis(place).connection_pool.connection_kwargs
        case problem:
            assert "canary-word" not in str(problem)
            assert problem.__suppress_context__ or problem.__context__ is None
