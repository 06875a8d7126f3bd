"""Fixtures that every kind of test may ask for by name."""

import inspect
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop
from fakeredis import FakeAsyncRedis, FakeServer
from hypothesis import HealthCheck, settings
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.driver_info import DriverInfo
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.app.connections import with_command_packing
from callkeeper.app.process import collect_seldom
from callkeeper.app.settings import VARIABLES
from callkeeper_sandbox.demo.embedded_redis import EmbeddedRedis, embedded_redis

# Otherwise libuv starts a kernel thread for each event loop, which polls for files that no test reads through the loop.
os.environ.setdefault("UV_USE_IO_URING", "0")

# A terminal may have loaded the settings of a running demonstration: `. data/demo.env`.
for _name in VARIABLES:
    os.environ.pop(_name, None)

# How long an example takes says how busy the machine is, not whether a law holds. By day the same examples are tried
# each time, so that a change is judged by itself; every night, with many more, chance looks for new ones.
IS_NIGHT = os.environ.get("TEST_MODEL") == "nightly"
NIGHTLY = 300


def examples(n: int) -> settings:
    """Return the settings of a law that is tried with ``n`` examples for every change, and with many at night."""
    return settings(max_examples=max(n, NIGHTLY) if IS_NIGHT else n)


settings.register_profile(
    "laws",
    deadline=None,
    max_examples=NIGHTLY if IS_NIGHT else 15,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not IS_NIGHT,
)
settings.load_profile("laws")

if (Path(__file__).parent / "sandbox_fixtures.py").exists():
    pytest_plugins = ["tests.sandbox_fixtures"]


DRIVER = DriverInfo()
"""What connections tell Redis about the client. Without it each would read the metadata of the installed package."""

_opened: list[sqlite3.Connection] = []


def _note_connection(name: str, arguments: tuple[Any, ...]) -> None:
    if name == "sqlite3.connect/handle":
        _opened.append(arguments[0])


sys.addaudithook(_note_connection)


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


@pytest.fixture(scope="module", autouse=True)
def databases_are_closed() -> Iterator[None]:
    """Hold that every SQLite connection that a module's tests open is closed, by the product or by the test.

    Python 3.13 warns of one that is not, in whichever test runs when it is collected; earlier ones say nothing.
    """
    _opened.clear()
    yield
    left = [connection for connection in _opened if _is_open(connection)]
    for connection in left:
        connection.close()
    assert not left, f"{len(left)} of {len(_opened)} SQLite connections were left open"


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """Run one real Redis server for the whole session. It writes no file: nothing here outlives it."""
    with embedded_redis(tmp_path_factory.mktemp("redis")) as server:
        with BlockingRedis.from_url(server.url) as redis:
            redis.config_set("appendonly", "no")
        yield server


@pytest.fixture(scope="session")
def flushing_redis(redis_server: EmbeddedRedis) -> Iterator[BlockingRedis]:
    """Return the client that empties the server before each test. To connect takes longer than to empty."""
    with BlockingRedis.from_url(redis_server.url) as redis:
        yield redis


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis, flushing_redis: BlockingRedis) -> str:
    """Return the URL of the real Redis server, emptied."""
    flushing_redis.flushall()
    return redis_server.url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """Return an asyncio client of the real Redis server, emptied."""
    async with with_command_packing(Redis.from_url(redis_url, driver_info=DRIVER)) as redis:
        yield redis


@pytest.fixture
def blocking_redis(redis_url: str) -> Iterator[BlockingRedis]:
    """Return a blocking client of the same server, for what enqueues jobs."""
    with BlockingRedis.from_url(redis_url, driver_info=DRIVER) as redis:
        yield redis


@pytest.fixture
async def fake_redis() -> AsyncIterator[FakeAsyncRedis]:
    """Return an asyncio Redis client on an empty server that lives in this process."""
    async with FakeAsyncRedis(server=FakeServer()) as redis:
        yield redis


@pytest.fixture
def logged() -> LogCapture:
    """Return what was logged through ``log``: one dict per event in ``entries``."""
    return LogCapture()


@pytest.fixture
def log(logged: LogCapture) -> FilteringBoundLogger:
    """Return a logger of every level that writes into ``logged``."""
    logger: FilteringBoundLogger = structlog.wrap_logger(
        None, processors=[logged], wrapper_class=structlog.make_filtering_bound_logger(0)
    )
    return logger


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked ``night`` to ``make nightly``, which sets ``TEST_NIGHT``."""
    if os.environ.get("TEST_NIGHT"):
        return
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        (left if item.get_closest_marker("night") else kept).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let a thread end an asynchronous test that takes too long: while uvloop waits, no handler of a signal runs."""
    if inspect.iscoroutinefunction(getattr(item, "obj", None)):
        limit = item.get_closest_marker("timeout")
        usual = item.config.getoption("timeout") or item.config.getini("timeout")
        seconds = limit.args[0] if limit is not None else float(usual)
        item.add_marker(pytest.mark.timeout(seconds, method="thread"), append=False)


def pytest_collection_finish() -> None:
    """Look for cycles as seldom as production does: all that was imported and collected would be visited each time."""
    collect_seldom()


def pytest_asyncio_loop_factories() -> dict[str, Any]:
    """Run tests in production's event loop."""
    return {"uvloop": uvloop.new_event_loop}
