"""The documentation site, as `make docs` builds it: it uses no other host, can be searched, and is readable."""

import fcntl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page
from playwright.sync_api import TimeoutError as PlaywrightTimeout

ROOT = Path(__file__).parents[2]
PAGES = ("index", "architecture")

pytestmark = pytest.mark.timeout(300)  # the first test waits until the site has been built


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Iterator[str]:
    """Build the site, which fails on any warning, and serve it. The test processes of a run share one build."""
    folder = tmp_path_factory.getbasetemp().parent / f"documentation-{testrun_uid}"
    with folder.with_suffix(".lock").open("w") as lock:  # beside the folder, which a build empties
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "site").exists():
            subprocess.run(["make", "docs", f"BUILD={folder}"], cwd=ROOT, check=True, capture_output=True)  # noqa: S603, S607
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.fixture
def page(browser: Browser, site: str) -> Iterator[Page]:
    """Open a tab. At the end it may have sent requests to the site only."""
    context = browser.new_context(base_url=site)
    context.set_default_timeout(0)  # the test's own time limit ends a wait
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    yield context.new_page()
    context.close()
    assert {url for url in asked if not url.startswith((site, "data:", "blob:"))} == set()


def test_search_finds_a_section(page: Page) -> None:
    """Searching for words of the runbook finds its section, without any other host."""
    page.goto("/index.html", wait_until="networkidle")
    focused = page.locator("input:focus")
    while not focused.count():  # the page handles the key only some time after it was loaded
        page.keyboard.press("Control+k")
        with suppress(PlaywrightTimeout):
            focused.wait_for(timeout=1_000)
    focused.fill("unresolved effect")
    page.locator("a", has_text="Incident: unresolved effect").wait_for()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.night)])
@pytest.mark.parametrize("name", PAGES)
def test_page_can_be_read(page: Page, name: str, scheme: Literal["light", "dark"]) -> None:
    """Text has enough contrast, pictures have texts, and nothing is wider than a phone's screen.

    On a phone the letters of a diagram stay readable: the diagram scrolls within its figure.
    """
    page.emulate_media(color_scheme=scheme)
    page.goto(f"/{name}.html")
    found = Axe().run(page, context=".md-content", options={"runOnly": ["color-contrast", "image-alt", "svg-img-alt"]})
    assert [node["html"] for each in found.response["violations"] for node in each["nodes"]] == []
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    heights = page.evaluate(
        "[...document.querySelectorAll('.diagram text')].map(t => t.getBoundingClientRect().height)"
    )
    assert min(heights) >= 10
