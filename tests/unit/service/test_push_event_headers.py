"""The dashboard's notation for request headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.service.push_event import HeaderSettingsUnreadable, parse_header_settings

CANARY = "canary-7f3a"


def revealed(text: str) -> list[tuple[str, str]]:
    """Parse a setting and show its values."""
    return [(name, value.reveal()) for name, value in parse_header_settings(text)]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("X-Key: abc", [("x-key", "abc")]),
        ("X-Key: abc; X-Env: prod", [("x-key", "abc"), ("x-env", "prod")]),
        ("X-Key:abc;X-Env:prod;", [("x-key", "abc"), ("x-env", "prod")]),
        ("Authorization: Bearer a.b=c:d ; ", [("authorization", "Bearer a.b=c:d")]),
    ],
    ids=["one", "two", "without-blanks", "colon-and-blank-inside"],
)
def test_header_settings_are_read(text: str, pairs: list[tuple[str, str]]) -> None:
    """Pairs are split at ``;`` and at the first colon, names in lower case. Spec: Events."""
    assert revealed(text) == pairs


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        CANARY,
        f"X-Key {CANARY}",
        "X-Key:",
        f"X Key: {CANARY}",
        f": {CANARY}",
        f"X-Key: {CANARY}; x-key: other",
        f"X-Key: {CANARY}; ; X-Env: a",
        f"X-Key: {CANARY}\r\nX-Other: b",
        f"X-Key: {CANARY}ü",
        f"Content-Length: {CANARY}",
        f"Host: {CANARY}",
    ],
)
def test_header_settings_refuse_what_cannot_be_sent(text: str) -> None:
    """A setting that would not arrive as it was typed is refused, and nothing of it is repeated."""
    with pytest.raises(HeaderSettingsUnreadable) as caught:
        parse_header_settings(text)
    assert CANARY not in str(caught.value)


NAMES = st.from_regex(r"X-[A-Za-z0-9-]{1,20}", fullmatch=True)
VALUES = st.from_regex(r"[!-:<-~]([ !-:<-~]{0,30}[!-:<-~])?", fullmatch=True)


@given(pairs=st.lists(st.tuples(NAMES, VALUES), min_size=1, unique_by=lambda pair: pair[0].lower()))
def test_header_settings_survive_the_notation(pairs: list[tuple[str, str]]) -> None:
    """For all legal pairs: written in the dashboard's notation and read back, they are the same."""
    text = "; ".join(f"{name}: {value}" for name, value in pairs)
    assert revealed(text) == [(name.lower(), value) for name, value in pairs]
