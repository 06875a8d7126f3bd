"""How long the sender of an answer asks us to wait."""

import pytest
from httpx import Headers

from callkeeper.service.retry_after import retry_after_s


@pytest.mark.parametrize(
    ("retry_after", "date", "expected"),
    [
        (None, None, None),
        ("5", None, 5.0),
        (" 5 ", None, 5.0),
        ("0", None, 0.0),
        ("-5", None, None),
        ("999999999999999", None, 60.0),
        ("soon", None, None),
        ("\u0665", None, None),
        ("Wed, 21 Oct 2026 07:28:30 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:30 GMT", 0.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", None, None),
        ("Wed, 21 Oct 2026 07:28:30", "Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("Wed, 21 Oct 99999999999999999999 07:28:30 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("Wed, 21 Oct 2026 07:28:30 GMT", "Wed, 21 Oct 2026 07:28:00 +99999999999999", None),
    ],
)
def test_retry_after_is_understood_or_none(retry_after: str | None, date: str | None, expected: float | None) -> None:
    """Seconds or a date, at most a minute; nonsense is nothing said."""
    given = {"Retry-After": retry_after, "Date": date}
    headers = Headers([(name.encode(), value.encode()) for name, value in given.items() if value is not None])
    assert retry_after_s(headers, 60) == expected
