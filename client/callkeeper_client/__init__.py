"""A client of callkeeper's desk API: read calls, state who a caller is, follow changes, verify outcome webhooks."""

from callkeeper_client.desk import AsyncDesk, Desk
from callkeeper_client.protocol import Change, DeskError, DeskRefused, DeskUnavailable
from callkeeper_client.views import Action, Call, Outcome, Story
from callkeeper_client.webhooks import NotSigned, verify

__all__ = [
    "Action",
    "AsyncDesk",
    "Call",
    "Change",
    "Desk",
    "DeskError",
    "DeskRefused",
    "DeskUnavailable",
    "NotSigned",
    "Outcome",
    "Story",
    "verify",
]
