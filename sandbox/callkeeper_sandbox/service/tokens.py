"""SSO tokens that live 30 minutes from their last successful use, and user tokens that live 30 minutes.

Assumed: every login mints a new token and leaves earlier ones alive.

Spec: Authentication; Limits.
"""

import datetime as dt
import uuid

from callkeeper_sandbox.service.state import State, UserToken

LIFETIME = dt.timedelta(minutes=30)


def mint(state: State, now: dt.datetime) -> str:
    """Return a new SSO token, and forget those that have lapsed."""
    for lapsed in [token for token, expires_at in state.tokens.items() if expires_at <= now]:
        del state.tokens[lapsed]
    token = str(uuid.uuid4())
    state.tokens[token] = now + LIFETIME
    return token


def is_alive(state: State, token: str, now: dt.datetime) -> bool:
    """Tell whether a token was issued and has not expired."""
    expires_at = state.tokens.get(token)
    return expires_at is not None and now < expires_at


def slide(state: State, token: str, now: dt.datetime) -> None:
    """Set a token's expiry to 30 minutes from now.

    Spec: Authentication, rule 3.
    """
    state.tokens[token] = now + LIFETIME


def mint_user_token(state: State, institution_key: str, now: dt.datetime) -> str:
    """Return a login token for one institution, and forget those that have lapsed."""
    for lapsed in [token for token, held in state.user_tokens.items() if held.expires_at <= now]:
        del state.user_tokens[lapsed]
    token = str(uuid.uuid4())
    state.user_tokens[token] = UserToken(institution_key, now + LIFETIME)
    return token
