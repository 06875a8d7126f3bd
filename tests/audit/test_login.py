"""Password guessing at the shared login of a running web process."""

import time
from collections import Counter

import httpx
import pytest

from callkeeper.calls.store.attempt_limiter import ALLOWED, EVERY_S
from tests.audit.conftest import Target
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


@pytest.mark.parametrize("path", PAGES)
def test_wrong_passwords_lock_nobody_out(path: str, target: Target) -> None:
    """The right password is let in from the very address whose wrong ones are answered 429, without any cookie."""
    guesses = [guess(target.url, f"guess-{n}", path=path).status_code for n in range(ALLOWED + 5)]
    assert 429 in guesses
    answer = guess(target.url, PASSWORD, path=path)
    assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)
