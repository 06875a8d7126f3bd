"""``callkeeper doctor``: each fault is named, with a remedy; nothing hides behind a fault that it does not need."""

from redis import Redis

from callkeeper.doctor import Finding, State, examine
from tests.sandbox_fixtures import ServedSandbox


def environment(redis_url: str, sandbox: ServedSandbox) -> dict[str, str]:
    """Return the settings of an installation against the stand-in."""
    own = sandbox.credentials
    return {
        "REDIS_URL": redis_url,
        "CALLKEEPER_SERVICE_URL": sandbox.url,
        "CALLKEEPER_ACCESS_TOKEN": own.access_token,
        "CALLKEEPER_EMAIL": own.email,
        "CALLKEEPER_PASSWORD": own.password,
        "CALLKEEPER_REQUESTED_BY": "bot",
        "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: 0123456789abcdef0123456789abcdef",
    }


async def findings(environ: dict[str, str]) -> dict[str, Finding]:
    """Return what the doctor found, by what was looked at."""
    return {finding.what: finding async for finding in examine(environ)}


async def test_doctor_finds_only_the_missing_processes_on_a_good_installation(
    redis_url: str, sandbox_server: ServedSandbox
) -> None:
    """With Redis, the service and all settings in order, only the processes that nobody started are a fault."""
    found = await findings(environment(redis_url, sandbox_server))
    faults = {what for what, finding in found.items() if finding.state is State.FAULT}
    assert faults == {"web", "workers"}
    assert found["queue cu-1"].state is State.OK
    assert "callkeeper worker" in found["workers"].remedy


async def test_doctor_names_a_missing_variable(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """A missing variable is named with an example, and what needs it is not looked at."""
    environ = environment(redis_url, sandbox_server)
    del environ["CALLKEEPER_PASSWORD"]
    found = await findings(environ)
    assert found["settings CALLKEEPER_PASSWORD"].state is State.FAULT
    assert "CALLKEEPER_PASSWORD=" in found["settings CALLKEEPER_PASSWORD"].remedy
    assert "login" not in found


async def test_doctor_names_a_refused_login(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """A wrong password is a fault of the login; the finding shows neither the password nor the service's answer."""
    environ = environment(redis_url, sandbox_server) | {"CALLKEEPER_PASSWORD": "not-the-right-one-at-all"}
    found = await findings(environ)
    assert found["login"].state is State.FAULT
    assert "CALLKEEPER_" in found["login"].remedy
    assert "not-the-right-one-at-all" not in str(found)


async def test_doctor_names_a_redis_that_forgets(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """A Redis that may evict keys would forget calls: a fault, with the setting to change."""
    with Redis.from_url(redis_url) as redis:
        redis.config_set("maxmemory-policy", "allkeys-lru")
        try:
            found = await findings(environment(redis_url, sandbox_server))
        finally:
            redis.config_set("maxmemory-policy", "noeviction")
    assert found["redis eviction"].state is State.FAULT
    assert "noeviction" in found["redis eviction"].remedy


async def test_doctor_names_a_redis_that_does_not_answer(sandbox_server: ServedSandbox) -> None:
    """An address at which nobody answers is named without user and password."""
    environ = environment("redis://user:very-secret-word@127.0.0.1:1/0", sandbox_server)
    found = await findings(environ)
    assert found["redis"].state is State.FAULT
    assert "very-secret-word" not in str(found)


async def test_doctor_names_an_institution_without_rights(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """An institution in the settings that the account may not manage is a fault of its own."""
    environ = environment(redis_url, sandbox_server) | {"CALLKEEPER_INSTITUTIONS": "cu-1, cu-9"}
    found = await findings(environ)
    assert found["institutions"].state is State.FAULT
    assert "cu-9" in found["institutions"].detail
