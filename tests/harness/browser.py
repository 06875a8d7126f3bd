"""A browser for a running stack: the board, the sandbox's page, and a record of their requests and errors."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    ViewportSize,
    WebError,
    sync_playwright,
)

from tests.browser.chromium import MISSING, chromium
from tests.harness.processes import NOTHING, Stack

OPERATOR = "demo"
"""The core username of the demonstration's login."""


SIZES: Final = pytest.mark.parametrize(
    ("width", "height"),
    [
        (320, 640),
        pytest.param(390, 844, marks=pytest.mark.night),
        pytest.param(1440, 900, marks=pytest.mark.night),
        (3840, 2160),
    ],
)
"""Windows from a phone to a wall: for every change the narrowest, where most is too wide, and the widest."""


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

    def follow(self, context: BrowserContext) -> None:
        """Record the requests, errors and violations of the content security policy of a profile's pages."""
        context.on("request", self._request)
        context.on("weberror", self._error)
        context.on("console", self._console)

    def leave(self, context: BrowserContext) -> None:
        """Record nothing more of a profile."""
        context.remove_listener("request", self._request)
        context.remove_listener("weberror", self._error)
        context.remove_listener("console", self._console)

    def _request(self, request: Request) -> None:
        self.hosts.add(urlsplit(request.url).netloc)

    def _error(self, error: WebError) -> None:
        self.complaints.append(str(error.error))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)


DESKTOP: Final[ViewportSize] = {"width": 1440, "height": 900}


@dataclass(frozen=True)
class Profile:
    """A browser profile with one page."""

    options: str
    context: BrowserContext
    page: Page


class Profiles:
    """Browser profiles that one test leaves to the next: to make one costs the browser as much as to show three pages.

    Pages keep nothing in the browser but cookies. What a test took is given back without cookies, and empty.
    """

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self._idle: list[Profile] = []

    def take(
        self, *, viewport: ViewportSize = DESKTOP, color_scheme: Literal["light", "dark"] = "light", **options: Any
    ) -> Profile:
        """Return a profile with these options that nobody uses, with an empty page."""
        wanted = repr(sorted(options.items()))
        profile = next((idle for idle in self._idle if idle.options == wanted), None)
        if profile is None:
            context = self.browser.new_context(**options)
            context.set_default_timeout(20_000)
            profile = Profile(wanted, context, context.new_page())
        else:
            self._idle.remove(profile)
        profile.page.set_viewport_size(viewport)
        profile.page.emulate_media(media="screen", color_scheme=color_scheme)
        return profile

    def give_back(self, profile: Profile) -> None:
        """Leave a profile to others, unless its page was closed."""
        if profile.page.is_closed():
            profile.context.close()
            return
        for page in profile.context.pages:
            if page != profile.page:
                page.close()
        profile.page.unroute_all()
        profile.page.goto("about:blank")
        profile.context.clear_cookies()
        self._idle.append(profile)


class Pages:
    """The pages that one test opens, each in a profile of its own, and what is heard of them."""

    def __init__(self, profiles: Profiles) -> None:
        self.profiles = profiles
        self.heard = RequestResult()
        self._taken: list[Profile] = []

    def page(self, **more: Any) -> Page:
        """Return an empty page."""
        profile = self.profiles.take(**more)
        self.heard.follow(profile.context)
        self._taken.append(profile)
        return profile.page

    def close(self) -> None:
        """Give every profile back."""
        while self._taken:
            profile = self._taken.pop()
            self.heard.leave(profile.context)
            self.profiles.give_back(profile)


class Stage(Pages):
    """Opens pages of the board and of the sandbox."""

    def __init__(self, profiles: Profiles, stack: Stack) -> None:
        super().__init__(profiles)
        self.stack = stack
        self.web_url = stack.demo.web_url
        self._started: list[str] = []

    def close(self) -> None:
        """End the calls that were started: the board shows only some of very many, and the next test looks for its own."""
        super().close()
        while self._started:
            self.stack.happen({"voice_id": self._started.pop()}, "end")

    def page(self, **more: Any) -> Page:
        """Return an empty page with the demonstration's login."""
        user, _, password = self.stack.demo.admin.partition(":")
        return super().page(http_credentials={"username": user, "password": password}, **more)

    def board(self, path: str = "", **more: Any) -> Page:
        """Open a page of the board, and wait until its stream is connected."""
        page = self.page(**more)
        if more.get("java_script_enabled", True):
            self.turn(page, path)
        else:
            page.goto(f"{self.web_url}/board{path}")
        return page

    def turn(self, page: Page, path: str) -> None:
        """Go to another page of the board, and wait until its stream is connected."""
        page.goto(f"{self.web_url}/board{path}")
        page.locator("#link.live, body[data-stream='']").first.wait_for()

    def sandbox(self, **more: Any) -> Page:
        """Open the sandbox's page."""
        page = self.page(**more)
        page.goto(self.stack.service_url)
        return page

    def start(self, page: Page, story: str, *, after_s: float = 2, ends_s: float = 120, key: str = "cu-1") -> str:
        """Start a call on the sandbox's page as a person does; return its voice id."""
        page.locator("select[name=institution]").select_option(key)
        page.locator("input[name=after]").fill(str(after_s))
        page.locator("input[name=ends]").fill(str(ends_s))
        page.locator(f"button[name=story][value={story}]").click()
        self._started.append(page.locator(".started code").inner_text())
        return self._started[-1]


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


CUT_OFF = """() => {
  const isCut = (text) => {
    const right = text.getBoundingClientRect().right;
    for (let box = text.parentElement; box; box = box.parentElement) {
      const style = getComputedStyle(box), its = box.getBoundingClientRect();
      if (its.width < 2 || style.textOverflow === "ellipsis" || ["auto", "scroll"].includes(style.overflowX)) return false;
      const hides = style.overflowX !== "visible" || style.contentVisibility === "auto";
      if (hides && right > its.right + 1) return true;
    }
    return false;
  };
  const leaves = [...document.querySelectorAll("body *:not(:has(*))")];
  const texts = leaves.filter(e => e.textContent.trim() && e.checkVisibility());
  return texts.filter(isCut).map(e => `${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 60)}`);
}"""
"""Returns the elements whose end is cut off by a box that hides what is too wide for it."""


def assert_fits(page: Page) -> None:
    """Assert that no element is wider than the window, or cut off by its box, after the layout."""
    for _ in range(20):
        found = page.evaluate(STICKS_OUT) + page.evaluate(CUT_OFF)
        if not found:
            return
        page.wait_for_timeout(100)
    raise AssertionError(found)


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
    """Run the browser until the block ends. Of asynchronous tests, only those of tests/integration can run meanwhile.

    Playwright marks its event loop as running between its calls. ``no_loop_of_a_browser`` hides it from them.
    """
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()
