"""Who is let in at the desk."""

import pytest

from desk.tokens import DeskToken, DeskTokens
from reseller import Secret

DESKTOP = DeskToken("desktop", Secret("token-0123456789"))
IVR = DeskToken("ivr", Secret("other-0123456789"), frozenset({"cu-2"}))
TOKENS = DeskTokens([DESKTOP, IVR])


@pytest.mark.parametrize(
    ("authorization", "name"),
    [
        (b"Bearer token-0123456789", "desktop"),
        (b"bearer  other-0123456789 ", "ivr"),
        (b"Bearer token-012345678", None),
        (b"Bearer token-01234567890", None),
        (b"Basic token-0123456789", None),
        (b"token-0123456789", None),
        (b"Bearer", None),
        (b"", None),
        (b"Bearer \xff\xfe", None),
        (b"Bearer " + b"t" * 100_000, None),
    ],
)
def test_token_is_recognised_by_its_whole_value(authorization: bytes, name: str | None) -> None:
    """Nothing but the scheme and the exact value lets anybody in; bytes that are no text are a stranger's, not an error."""
    token = TOKENS.recognise(authorization)
    assert (token.name if token else None) == name


def test_token_sees_its_institutions_only() -> None:
    """A limited token sees what it names; the others see everything."""
    assert (DESKTOP.may_see("cu-1"), IVR.may_see("cu-1"), IVR.may_see("cu-2")) == (True, False, True)
