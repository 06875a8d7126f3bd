"""Password guessing at the shared login of running web processes."""

import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from callkeeper.calls.store.attempt_limiter import ALLOWED, EVERY_S
from tests.audit.conftest import Target, web_process
from tests.audit.raw_requests import ADMIN

PAGES = ("/board", "/rq/", "/metrics", "/board/pausing")
USER, _, PASSWORD = ADMIN.partition(":")


def guess(url: str, password: str, *, address: str = "203.0.113.7", path: str = "/board") -> httpx.Response:
    """Try a password from an address, which the router reports."""
    return httpx.get(url + path, auth=(USER, password), headers={"X-Forwarded-For": address}, trust_env=False)


def most_refused_as_wrong(elapsed_s: float) -> int:
    """Return how many wrong passwords may be checked within a time. On a slow machine old ones expire meanwhile."""
    return ALLOWED + int(elapsed_s / EVERY_S) + 1


def test_guesses_are_counted_for_all_pages(target: Target) -> None:
    """Wrong passwords at different pages are counted together."""
    began_s = time.monotonic()
    statuses = Counter(guess(target.url, f"guess-{n}", path=PAGES[n % len(PAGES)]).status_code for n in range(40))
    assert ALLOWED <= statuses[401] <= most_refused_as_wrong(time.monotonic() - began_s)
    assert statuses[401] + statuses[429] == 40


def test_guesses_are_counted_for_all_processes_and_restarts(redis_url: str, tmp_path: Path) -> None:
    """Wrong passwords are counted together across web processes, also after a restart."""
    began_s = time.monotonic()
    with web_process(redis_url, tmp_path) as first, web_process(redis_url, tmp_path) as second:
        urls = (first.url, second.url)
        statuses = [guess(urls[n % 2], f"guess-{n}").status_code for n in range(2 * ALLOWED)]
    with web_process(redis_url, tmp_path) as third:
        statuses += [guess(third.url, f"guess-again-{n}").status_code for n in range(2 * ALLOWED)]
        assert guess(third.url, PASSWORD, address="203.0.113.8").status_code == 200
    assert ALLOWED <= statuses.count(401) <= most_refused_as_wrong(time.monotonic() - began_s)


@pytest.mark.parametrize("path", PAGES)
def test_browser_that_has_logged_in_is_not_locked_out(path: str, target: Target) -> None:
    """Wrong passwords from the same address do not lock out a browser that has logged in."""
    answer = guess(target.url, PASSWORD, path=path)
    cookie, _, attributes = answer.headers["set-cookie"].partition(";")
    assert cookie.startswith("__Host-")
    assert {" Secure", " HttpOnly", " SameSite=Strict", " Path=/"} <= set(attributes.split(";"))
    for n in range(ALLOWED + 1):
        guess(target.url, f"guess-{n}")
    known = {"X-Forwarded-For": "203.0.113.7", "Cookie": cookie}
    assert httpx.get(target.url + path, auth=(USER, PASSWORD), headers=known, trust_env=False).status_code == 200
