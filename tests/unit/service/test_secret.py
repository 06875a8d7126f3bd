"""A secret shows a mask, refuses to be written out, and gives its text only when asked by name."""

import copy
import json
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.service import Secret, ServiceConfig
from callkeeper.service.answer_records import UserTokenAnswer

texts = st.text(min_size=4).filter(lambda text: text not in "Secret(***)")


@given(texts)
def test_secret_shows_nothing_of_its_text(text: str) -> None:
    """Neither repr, str, format nor percent shows the text."""
    secret = Secret(text)
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret:>20}", "%s %r" % (secret, secret), str([secret])):  # noqa: UP031
        assert text not in shown


@given(st.text(), st.text())
def test_secrets_are_equal_when_their_texts_are(one: str, other: str) -> None:
    """Equality and hash follow the text; a secret is never equal to a bare text."""
    assert (Secret(one) == Secret(other)) == (one == other)
    assert hash(Secret(one)) == hash(Secret(one))
    assert Secret(one) != one
    assert Secret(one).reveal() == one
    assert bool(Secret(one)) == bool(one)


@pytest.mark.parametrize(
    "encode", [msgspec.json.encode, msgspec.msgpack.encode, msgspec.to_builtins, json.dumps, pickle.dumps]
)
@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: [s], lambda s: {"a": s}, lambda s: UserTokenAnswer(token=s)])
def test_secret_refuses_to_be_encoded(encode: object, wrap: object) -> None:
    """No encoder gets at the text, alone or inside something else."""
    assert callable(encode)
    assert callable(wrap)
    with pytest.raises(TypeError):
        encode(wrap(Secret("123-45-6789")))


def test_secret_can_be_copied() -> None:
    """Copies are the same secret: copying encodes nothing."""
    secret = Secret("a")
    assert copy.copy(secret) is copy.deepcopy(secret) is secret


def config_at(url: str, *, allow_plain_http: bool = False) -> ServiceConfig:
    """Make a config of a base URL."""
    return ServiceConfig(
        base_url=url,
        access_token=Secret("AAAA"),
        email=Secret("BBBB"),
        password=Secret("CCCC"),
        allow_plain_http=allow_plain_http,
    )


def test_config_shows_no_credential() -> None:
    """The repr of a config holds no access token, email or password."""
    config = config_at("https://service.test")
    assert not any(text in repr(config) for text in ("AAAA", "BBBB", "CCCC"))


def test_config_refuses_bare_credentials() -> None:
    """A credential that is not masked is refused by type, without being shown."""
    with pytest.raises(TypeError, match="password must be a Secret"):
        ServiceConfig(
            base_url="https://service.test",
            access_token=Secret("a"),
            email=Secret("b"),
            password="hunter2",  # type: ignore[arg-type]
        )


@pytest.mark.parametrize(
    ("url", "is_fine"),
    [
        ("https://service.test", True),
        ("https://service.test/", True),
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000", True),
        ("http://localhost:8000", True),
        ("http://service.test", False),
        ("http://127.0.0.1.service.test", False),
        ("http://localhost.service.test", False),
        ("ftp://service.test", False),
        ("service.test", False),
        ("https://", False),
        ("https://user@service.test", False),
        ("https://service.test?a=1", False),
        ("", False),
    ],
)
def test_base_url_never_sends_credentials_in_the_clear(url: str, is_fine: bool) -> None:
    """Only https, or plain http on this machine."""
    if is_fine:
        assert config_at(url).base_url == url.rstrip("/")
    else:
        with pytest.raises(ValueError, match="service URL"):
            config_at(url)


def test_base_url_may_be_plain_when_said_so() -> None:
    """The flag opens http beyond this machine."""
    assert config_at("http://service.test", allow_plain_http=True).base_url == "http://service.test"
