"""Checks alerts: whether their addresses are valid and accept messages."""

from typing import Final

from redis.asyncio import Redis

from callkeeper.app.alert_sender import AlertSender
from callkeeper.app.doctor.finding import Finding, Topic, fault, ok, warning
from callkeeper.app.settings import AlertSettings
from callkeeper.calls.store.alert_state import AlertState
from callkeeper.calls.store.keys import Keys

SETTING: Final = "CALLKEEPER_ALERT_URLS"


async def alert_findings(redis: Redis, keys: Keys, settings: AlertSettings) -> list[Finding]:
    """Check each address without sending anything."""
    sender = AlertSender(settings.addresses)
    if not sender.targets:
        return [ok(Topic.ALERTS, f"{SETTING} is not set: callkeeper sends no alerts")]
    wrong, failing = await sender.wrong(), await AlertState(redis, keys, "").failing_targets()
    found = []
    for target in sender.targets:
        about = f"{SETTING} {sender.called(target.name)}"
        if target.name in wrong:
            remedy = "correct it (docs/alerts.md), then callkeeper alerts test"
            found.append(fault(Topic.ALERTS, "is not valid for apprise: no alerts are sent there", remedy, about=about))
        elif target.name in failing:
            since, because = failing[target.name]
            detail = f"has not accepted messages since {since:%Y-%m-%d %H:%M:%S} UTC: {because}"
            remedy = "try it with callkeeper alerts test; check the receiver"
            found.append(warning(Topic.ALERTS, detail, remedy, about=about))
    return found or [ok(Topic.ALERTS, f"incidents are sent to {len(sender.targets)} addresses of {SETTING}")]
