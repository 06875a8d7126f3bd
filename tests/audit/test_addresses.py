"""Addresses in the settings are checked in the form in which they are used."""

from collections.abc import Callable

import pytest

from callkeeper.app.parsing import outcome_url, public_url, service_url


@pytest.mark.parametrize("read", [outcome_url, public_url, service_url])
@pytest.mark.parametrize(
    "address",
    [
        "https://core.example/\r\nX-Injected: yes",
        "https://core.ex\nample/hook",
        "https://core.example/a\tb",
        "https://core.example/a b",
        "https://core.example/\x1b[2J",
        "https://core.example\u200b/",
        "https://core.example/\u202e",
        "https://core.example/\u3164",
    ],
)
def test_an_address_has_no_hidden_parts(read: Callable[[str], str], address: str) -> None:
    """An address with a space, line break or invisible character is refused, and the message does not repeat it."""
    with pytest.raises(ValueError, match="must hold no spaces, line breaks or invisible characters") as caught:
        read(address)
    assert "core" not in str(caught.value)
    assert read("https://core.example/hook") == "https://core.example/hook"
