"""Where outcomes may be sent to."""

import socket

import pytest

from workers.sink import AddressRefused, public_socket

INSIDE = """
    127.0.0.1 10.1.2.3 192.168.0.9 169.254.169.254 0.0.0.0 100.64.0.1 224.0.0.1
    ::1 fe80::1%eth0 fd00::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1
"""


@pytest.mark.parametrize("address", INSIDE.split())
def test_sink_refuses_every_address_that_is_not_public(address: str) -> None:
    """Neither this machine, nor a network inside, nor a cloud's metadata can be reached through an outcome's address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with pytest.raises(AddressRefused):
        public_socket((family, socket.SOCK_STREAM, 6, "", (address, 443)))


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"])
def test_sink_takes_public_addresses(address: str) -> None:
    """Everybody else can be told."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    public_socket((family, socket.SOCK_STREAM, 6, "", (address, 443))).close()
