"""``callkeeper secret``: new credentials."""

import secrets
from base64 import b64encode
from typing import Final

import click

from callkeeper.app.credentials import NAME_RULE, TOKEN_NAME
from callkeeper.app.terminal import Misused, say

_BYTES: Final = 32
_KINDS: Final = ("new", "token", "metrics", "outcome")


@click.command()
@click.argument("kind", type=click.Choice(_KINDS))
@click.argument("name", required=False)
def secret(kind: str, name: str | None) -> None:
    """Print a new secret, with the line for the environment.

    new: a push header, for the environment and for the service's dashboard. token NAME: for software that uses the desk;
    trails show NAME with its statements. metrics: for Prometheus, to read /metrics. outcome: the key that signs outcomes.
    """
    if (name is None) is (kind == "token"):
        raise Misused("a token needs a NAME, and nothing else has one")
    value = secrets.token_urlsafe(_BYTES)
    if kind == "new":
        say("# In the dashboard: Settings, Push Notifications, request headers", f"X-Push-Key: {value}")
        say("# In the environment of the web process", f"CALLKEEPER_PUSH_HEADERS=X-Push-Key: {value}")
    elif kind == "metrics":
        say("# In the environment of the web process; in Prometheus: authorization, credentials_file")
        say(f"CALLKEEPER_METRICS_TOKEN={value}")
    elif kind == "outcome":
        say("# In the environment of the workers. To replace an older key: the new one first, a comma, the older one")
        say(f"CALLKEEPER_OUTCOME_SECRET=whsec_{b64encode(secrets.token_bytes(_BYTES)).decode()}")
    else:
        if name is None or not TOKEN_NAME.fullmatch(name):
            raise Misused(NAME_RULE)
        say("# For the software: it sends the header Authorization: Bearer, and this", value)
        say(
            "# In the environment of the web process, after a comma if there are others; @cu-1|cu-2 behind it limits it"
        )
        say(f"CALLKEEPER_DESK_TOKENS={name}:{value}")
