"""Outcome webhooks: check the signature (Standard Webhooks) and read the message."""

import json
from collections.abc import Mapping

from standardwebhooks import Webhook, WebhookVerificationError

from callkeeper_client.views import Outcome


class NotSigned(Exception):
    """The message was not signed with a known secret, or is older than five minutes: answer 400."""


def verify(body: bytes, headers: Mapping[str, str], *secrets: str) -> Outcome:
    """Return the message of a post.

    Args:
        body: The raw body.
        headers: The headers, in any case.
        secrets: ``whsec_...``; several during a rotation.

    Raises:
        NotSigned: No secret matches, or the message is too old.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    for secret in secrets:
        webhook = Webhook(secret)
        try:
            webhook.verify(body, lower)
        except (WebhookVerificationError, ValueError):  # ValueError: the signature has another form, or is no base64
            continue
        message: Outcome = json.loads(body)
        return message
    raise NotSigned("no known secret signed this message within the last five minutes")
