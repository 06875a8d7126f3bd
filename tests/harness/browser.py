"""A browser for a running stack: the board, the sandbox's page, and a record of their requests and errors."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, sync_playwright

from tests.browser.chromium import MISSING, chromium
from tests.harness.processes import NOTHING, Stack

OPERATOR = "demo"
"""The core username of the demonstration's login."""


def launch(playwright: Playwright) -> Browser:
    """Start the browser.

    Raises:
        RuntimeError: No browser is installed. The message says how to install one.
    """
    path = chromium()
    if path is None:
        raise RuntimeError(MISSING)
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


@dataclass
class RequestResult:
    """The hosts that pages sent requests to, and the errors that they logged."""

    hosts: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)

    def follow(self, page: Page) -> None:
        """Record a page's requests, errors and violations of the content security policy."""
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._console)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)


class Stage:
    """Opens pages of the board and of the sandbox."""

    def __init__(self, browser: Browser, stack: Stack) -> None:
        self.browser = browser
        self.stack = stack
        self.heard = RequestResult()
        self.web_url = stack.demo.web_url
        self._contexts: list[BrowserContext] = []

    def context(self, **more: Any) -> BrowserContext:
        """Return a new browser profile with the demonstration's login."""
        user, _, password = self.stack.demo.admin.partition(":")
        more.setdefault("viewport", {"width": 1440, "height": 900})
        context = self.browser.new_context(http_credentials={"username": user, "password": password}, **more)
        context.set_default_timeout(20_000)
        context.on("page", self.heard.follow)
        self._contexts.append(context)
        return context

    def board(self, path: str = "", **more: Any) -> Page:
        """Open a page of the board, and wait until its stream is connected."""
        page = self.context(**more).new_page()
        page.goto(f"{self.web_url}/board{path}")
        if more.get("java_script_enabled", True):
            page.locator("#link.live, body[data-stream='']").first.wait_for()
        return page

    def sandbox(self, **more: Any) -> Page:
        """Open the sandbox's page."""
        page = self.context(**more).new_page()
        page.goto(self.stack.service_url)
        return page

    def start(self, page: Page, story: str, *, after_s: float = 2, ends_s: float = 120, key: str = "cu-1") -> str:
        """Start a call on the sandbox's page as a person does; return its voice id."""
        page.locator("select[name=institution]").select_option(key)
        page.locator("input[name=after]").fill(str(after_s))
        page.locator("input[name=ends]").fill(str(ends_s))
        page.locator(f"button[name=story][value={story}]").click()
        return page.locator(".started code").inner_text()

    def close(self) -> None:
        """Close every profile."""
        while self._contexts:
            self._contexts.pop().close()


def line(page: Page, voice_id: str) -> Any:
    """Return a call's line in the list of live calls."""
    return page.locator("#groups .row").filter(has=page.locator(f"a[href$='{voice_id}']"))


def action_form(page: Page, action: str) -> Any:
    """Unfold an action on a call's page, if it is folded, and return its form."""
    fold = page.locator(f"#do-{action}")
    fold.wait_for()
    if fold.get_attribute("open") is None:
        fold.locator("summary").click()
    return fold.locator("form")


STICKS_OUT = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const wide = [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > width);
  return wide.map(e => `${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 60)}`);
}"""
"""Returns the elements that are wider than the window."""


def assert_fits(page: Page) -> None:
    """Assert that no element is wider than the window after the layout."""
    for _ in range(20):
        if page.evaluate(STICKS_OUT) == []:
            return
        page.wait_for_timeout(100)
    assert page.evaluate(STICKS_OUT) == []


def serious(page: Page) -> list[str]:
    """Return the serious and critical violations that axe finds; at night also those of contrast in dark colours."""
    found = violations(page, {"resultTypes": ["violations"]})
    if os.environ.get("TEST_NIGHT"):
        page.emulate_media(color_scheme="dark")
        found += violations(page, {"runOnly": ["color-contrast"]})
        page.emulate_media(color_scheme="light")
    return found


def violations(page: Page, options: dict[str, Any], *, every: bool = False) -> list[str]:
    """Return what axe finds: the serious and critical violations, or every one."""
    found: dict[str, Any] = Axe().run(page, options=options).response
    return [
        f"{violation['id']}: {node['html'][:160]}"
        for violation in found["violations"]
        if every or violation["impact"] in {"serious", "critical"}
        for node in violation["nodes"]
    ]


@contextmanager
def web_restarted(stack: Stack, environ: Mapping[str, str | None] = NOTHING) -> Iterator[None]:
    """Stop the web process before the block, and start another on its port after it; ``environ`` as in `Stack.start`."""
    port = urlsplit(stack.demo.web_url).port
    assert port is not None
    stack.member("web").stop()
    try:
        yield
    finally:
        stack.start("web", port=port, environ=environ)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run the browser until the block ends. Asynchronous tests cannot run meanwhile in the same process."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()
