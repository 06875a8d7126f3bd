"""The client's configuration."""

import pytest

from callkeeper.service.config import ServiceConfig
from callkeeper.service.secret import Secret

SECRET = Secret("s-1")


def config(base_url: str = "https://service.example", password: Secret = SECRET, **more: bool) -> ServiceConfig:
    """Return a configuration."""
    return ServiceConfig(base_url=base_url, access_token=SECRET, email=SECRET, password=password, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["https://service.example/", "http://127.0.0.1:8", "http://localhost", "http://[::1]"])
def test_url_is_https_or_on_this_machine(url: str) -> None:
    """A closing slash is left out."""
    assert config(url).base_url == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://service.example",
        "ftp://service.example",
        "service.example",
        "https://",
        "https://a@b.example",
        "https://b.example?x=1",
        "https://b.example#x",
    ],
)
def test_url_that_would_send_credentials_in_clear_or_is_none_is_refused(url: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match="the service URL must"):
        config(url)


def test_plain_http_must_be_allowed() -> None:
    """By name."""
    assert config("http://service.example", allow_plain_http=True).base_url == "http://service.example"


def test_account_names_credentials_without_revealing_them() -> None:
    """The same for the same, another for others."""
    assert config().account == config().account
    assert config().account != config(password=Secret("s-2")).account
    assert "s-1" not in config().account


def test_credential_must_be_a_secret() -> None:
    """A plain text would be shown in a traceback."""
    with pytest.raises(TypeError, match="password must be a Secret"):
        config(password="s-1")  # type: ignore[arg-type]
