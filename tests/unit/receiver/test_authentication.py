"""Authentication of pushes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.service.push_event import parse_header_settings
from receiver.authentication import PushAuthentication

CURRENT = parse_header_settings("X-Key: the-present-secret; X-Env: production")
PREVIOUS = parse_header_settings("X-Key: the-secret-before")
RIGHT = [(b"x-key", b"the-present-secret"), (b"x-env", b"production")]


def test_authentication_needs_every_header() -> None:
    """All configured headers, among any others, are the present sender."""
    assert PushAuthentication(CURRENT).recognise([(b"host", b"a"), *RIGHT]) == "current"


@pytest.mark.parametrize(
    "received",
    [
        pytest.param([], id="none"),
        pytest.param(RIGHT[:1], id="one-of-two"),
        pytest.param([(b"x-key", b"the-present-secre"), RIGHT[1]], id="a-prefix"),
        pytest.param([(b"x-key", b"the-present-secret "), RIGHT[1]], id="longer"),
        pytest.param([(b"x-key", b"The-present-secret"), RIGHT[1]], id="other-case"),
        pytest.param([(b"x-key", b""), RIGHT[1]], id="empty"),
        pytest.param([(b"x-key", "schlüssel".encode()), RIGHT[1]], id="utf-8"),
        pytest.param([(b"x-key", b"\xff\x00"), RIGHT[1]], id="any-byte"),
        pytest.param([*RIGHT, RIGHT[0]], id="twice"),
        pytest.param([(b"x-key", b"the-secret-before"), RIGHT[1]], id="the-previous-one"),
    ],
)
def test_authentication_refuses_everything_else(received: list[tuple[bytes, bytes]]) -> None:
    """A1, A2: headers that are missing, wrong, partly right or not text match no sender, and nothing raises."""
    assert PushAuthentication(CURRENT).recognise(received) is None


def test_authentication_accepts_the_previous_set_too() -> None:
    """A3: during a rotation the previous headers are accepted, and the caller learns which ones were sent."""
    authentication = PushAuthentication(CURRENT, PREVIOUS)
    assert authentication.recognise([(b"x-key", b"the-secret-before")]) == "previous"
    assert authentication.recognise(RIGHT) == "current"


def test_authentication_cannot_be_empty() -> None:
    """A set without headers would let everybody in: it is refused."""
    with pytest.raises(ValueError, match="no headers"):
        PushAuthentication(())


@given(value=st.binary())
def test_authentication_opens_to_one_value_only(value: bytes) -> None:
    """For all byte strings, only the configured one matches."""
    sender = PushAuthentication(CURRENT).recognise([(b"x-key", value), RIGHT[1]])
    assert (sender == "current") == (value == b"the-present-secret")
