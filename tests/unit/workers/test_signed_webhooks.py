"""What pages show of the receiver of outcomes."""

import pytest

from workers.signed_webhooks import WebhookClient


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://receiver.example/hook?key=secret", "https://receiver.example"),
        ("https://user:secret@receiver.example:8443/secret", "https://receiver.example:8443"),
        ("http://[::1]:9/secret", "http://[::1]:9"),
    ],
)
def test_place_of_a_receiver_has_its_port_and_no_secret(url: str, place: str) -> None:
    """Pages show it: two receivers of one host are told apart, and neither user nor path nor query is shown."""
    assert WebhookClient.open(url, ()).place == place
