"""Tokens that prove that one of our own pages asked for a change.

A browser sends the login along with whatever request a foreign page has started; the token stands in our pages only.
"""

import time
from collections.abc import Callable
from typing import Final

from desk.signing import Signer, key_for, key_of_login
from reseller.secret import Secret

FIELD: Final = "form_token"
"""The name of the form field that carries a token."""

HEADER: Final = "x-form-token"
"""The name of the header that carries one, where a script posts."""

VALID_S: Final = 12 * 3600
"""How long a page may be kept open before its buttons have to be asked for anew."""


class FormTokens(Signer):
    """Issues and recognises the tokens of one login; a changed password makes all of them worthless."""

    def __init__(self, user: str, password: Secret, *, now: Callable[[], float] = time.time) -> None:
        super().__init__(key_for("form tokens", key_of_login(user, password)), valid_s=VALID_S, now=now)
