"""Where outcomes may be sent to."""

import socket

import pytest

from workers.signed_webhooks import AddressRefused, WebhookClient, public_socket

INSIDE = """
    127.0.0.1 127.255.255.254 10.1.2.3 172.16.0.1 172.31.255.255 192.168.0.9 169.254.169.254 100.64.0.1 100.127.255.255
    100.100.100.200 0.0.0.0 0.1.2.3 168.63.129.16 192.0.0.1 192.0.0.192 192.0.2.1 198.51.100.1 203.0.113.1 192.88.99.1
    198.18.0.1 198.19.255.255 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
    :: ::1 fe80::1%eth0 fe80::1 febf::1 fec0::1 feff::1 fc00::1 fd00:ec2::254 ff02::1 ff0e::1
    ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0.0.0.0
    ::127.0.0.1 ::10.0.0.1 ::93.184.216.34 ::ffff:0:127.0.0.1
    64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b::100.64.0.1 64:ff9b:1::10.0.0.1
    2002:7f00:1:: 2002:a00:1::1 2002:a9fe:a9fe::1 2002:5db8:d822::1
    2001::1 2001:0:7f00:1::1 2001:0:5db8:d822:0:0:f5ff:fffe 2001:10::1 2001:20::1 2001:db8::1 3fff::1
    100::1 4000::1 5f00::1 8000::1
"""


@pytest.mark.parametrize("address", INSIDE.split())
def test_sink_refuses_every_address_that_is_not_public(address: str) -> None:
    """Neither this machine, nor a network inside, nor a cloud's metadata can be reached through an outcome's address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with pytest.raises(AddressRefused):
        public_socket((family, socket.SOCK_STREAM, 6, "", (address, 443)))


@pytest.mark.parametrize(
    "address",
    [
        *("93.184.216.34", "168.63.129.17", "172.32.0.1"),
        *("2606:2800:220:1:248:1893:25c8:1946", "2a00:1450:4001::1"),
        *("::ffff:93.184.216.34", "64:ff9b::93.184.216.34"),
    ],
)
def test_sink_takes_public_addresses(address: str) -> None:
    """Everybody else can be told."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    public_socket((family, socket.SOCK_STREAM, 6, "", (address, 443))).close()


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
    assert WebhookClient.open(url, (), may_be_private=True).place == place
