"""Reads how long the sender of an answer asks us to wait: ``Retry-After``, in seconds or as a date."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def retry_after_s(headers: Mapping[str, str], most_s: float) -> float | None:
    """Return the wait that an answer asks for, in seconds, at most ``most_s``; None if it does not say.

    ``headers`` ignore case. A date is compared with the answer's own ``Date``, not with our clock.
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), most_s)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError, OverflowError):  # no date, none with a zone, or a number that is too long
        return None
    return min(max(wait.total_seconds(), 0.0), most_s)
