"""``callkeeper secret``: new credentials."""

import secrets
from base64 import b64encode
from typing import Final

import click

from callkeeper.app.terminal import say

_BYTES: Final = 32


@click.command()
@click.argument("kind", type=click.Choice(("new", "metrics", "outcome")))
def secret(kind: str) -> None:
    """Print a new secret, with the line for the environment.

    new: a push header, for the environment and for the service's dashboard. metrics: for Prometheus, to read /metrics.
    outcome: the key that signs outcomes.
    """
    value = secrets.token_urlsafe(_BYTES)
    if kind == "new":
        say("# In the dashboard: Settings, Push Notifications, request headers", f"X-Push-Key: {value}")
        say("# In the environment of the web process", f"CALLKEEPER_PUSH_HEADERS=X-Push-Key: {value}")
    elif kind == "metrics":
        say("# In the environment of the web process; in Prometheus: authorization, credentials_file")
        say(f"CALLKEEPER_METRICS_TOKEN={value}")
    else:
        say("# In the environment of the workers. To replace an older key: the new one first, a comma, the older one")
        say(f"CALLKEEPER_OUTCOME_SECRET=whsec_{b64encode(secrets.token_bytes(_BYTES)).decode()}")
