"""One running stack and one browser for all tests. No two pages of a test share a browser profile."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from callkeeper.calls.store.keys import Keys
from tests.harness.browser import Profiles, Stage, running_browser
from tests.harness.courier import Receiver, receiving
from tests.harness.processes import Stack, stack
from tests.kept_together import KeptTogether
from tests.longest_first import longest_first
from tests.ports import free_port
from tests.waiting import until

LONGEST_FIRST = [
    "board_crowded",
    "unresolved_effect_is_shown_on_top_and_resolved_by_a_person",
    "incident_is_acknowledged_and_the_service_tried_again_on_a_page",
    "agent_page",
    "axe_finds_nothing_serious",
    "axe_finds_nothing_serious_in_either_colours",
    "call_is_held_by_a_pause_and_goes_on_after_it",
    "call_is_enrolled_after_a_passcode",
    "board_measured",
    "outcomes_page",
]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first."""
    longest_first(items, LONGEST_FIRST)


@pytest.hookimpl(optionalhook=True)  # without xdist there is no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> KeptTogether:
    """Start the servers of a file once."""
    return KeptTogether(config, log, {"agent_page", "board_crowded"})


@pytest.fixture(scope="session")
def receiver() -> Iterator[Receiver]:
    """Run a receiver of webhooks."""
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def agent_port() -> int:
    """Return a port for the page of an agent. Its origin has to be known before web starts."""
    return free_port()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver, agent_port: int) -> Iterator[Stack]:
    """Run Redis, the sandbox, a web process and a worker."""
    origins = {"CALLKEEPER_DESK_ORIGINS": f"http://localhost:{agent_port}"}
    outcomes = receiver.worker_environ
    with stack(tmp_path_factory.mktemp("browser"), workers=1, worker_environ=outcomes, web_environ=origins) as running:
        until(lambda: running.redis.exists(Keys().standings) or None, 60, "the institutions that pages offer")
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Run the browser."""
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def profiles(browser: Browser) -> Profiles:
    """Return the browser's profiles, which one test leaves to the next."""
    return Profiles(browser)


@pytest.fixture
def stage(profiles: Profiles, running: Stack) -> Iterator[Stage]:
    """Return a stage. The test fails if a page sent a request to another host or logged an error."""
    stage = Stage(profiles, running)
    yield stage
    stage.close()
    running.lift_faults()
    own = {url.partition("://")[2] for url in (stage.web_url, running.service_url)}
    assert stage.heard.hosts - {""} <= own, "a page sent a request to another host"
    assert stage.heard.complaints == [], "a page violated its security policy, or its script failed"
