"""``callkeeper secret``: new credentials."""

import os
import secrets
from base64 import b64encode

import click

from callkeeper.app.credentials import NAME_RULE, TOKEN_NAME, desk_tokens, push_headers
from callkeeper.app.redis_query import FORCE_HELP, refuse_unknown_institutions
from callkeeper.app.terminal import CommandGroup, Misused, say

_BYTES = 32


@click.group(cls=CommandGroup)
def secret() -> None:
    """Make credentials."""


@secret.command()
@click.option("--header", default="X-Push-Key", show_default=True, help="Name of the request header.")
def new(header: str) -> None:
    """Print a push header with a new secret: once for the dashboard, once for the environment.

    The value has no semicolon, which would end it in the dashboard's syntax.
    """
    line = f"{header}: {secrets.token_urlsafe(_BYTES)}"
    try:
        [_single] = push_headers(line)
    except ValueError:
        raise click.BadParameter("not the name of one request header", param_hint="--header") from None
    say("# In the dashboard: Settings, Push Notifications, request headers")
    say(line)
    say("# In the environment of the web process")
    say(f"CALLKEEPER_PUSH_HEADERS={line}")


@secret.command()
@click.argument("name")
@click.option("--institution", "-i", "institutions", multiple=True, help="Key it is limited to; may be given again.")
@click.option("--force", is_flag=True, help=FORCE_HELP)
def token(name: str, institutions: tuple[str, ...], *, force: bool) -> None:
    """Print a new token for software that uses the desk. Trails show NAME with its statements.

    If REDIS_URL is set, the institutions must exist.
    """
    if not TOKEN_NAME.fullmatch(name):
        raise Misused(NAME_RULE)
    if institutions and not force:
        _check(institutions)
    value = secrets.token_urlsafe(_BYTES)
    entry = f"{name}:{value}" + (f"@{'|'.join(institutions)}" if institutions else "")
    try:
        desk_tokens(entry)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="--institution") from None
    say("# For the software: it sends the header Authorization: Bearer, and this")
    say(value)
    say("# In the environment of the web process, after a comma if there are others")
    say(f"CALLKEEPER_DESK_TOKENS={entry}")


def _check(institutions: tuple[str, ...]) -> None:
    """Refuse institutions that do not exist, if REDIS_URL is set."""
    if not os.environ.get("REDIS_URL"):
        say("Not checked whether the institution exists: REDIS_URL is not set. The doctor checks it.", err=True)
        return
    refuse_unknown_institutions(institutions)


@secret.command()
def metrics() -> None:
    """Print a new token for Prometheus to read /metrics."""
    say("# In the environment of the web process; in Prometheus: authorization, credentials_file")
    say(f"CALLKEEPER_METRICS_TOKEN={secrets.token_urlsafe(_BYTES)}")


@secret.command()
def outcome() -> None:
    """Print a new signing key for outcomes, for the environment and for the receiver."""
    key = f"whsec_{b64encode(secrets.token_bytes(_BYTES)).decode()}"
    say("# In the environment of the workers. To replace an older key: the new one first, a comma, the older one")
    say(f"CALLKEEPER_OUTCOME_SECRET={key}")
