"""``callkeeper alerts``: list the alerts that were sent, and send a test message."""

import asyncio
import os

import click
from redis.asyncio import Redis

from callkeeper.alert_courier import AlertCourier
from callkeeper.extras import require
from callkeeper.redis_query import query_redis
from callkeeper.settings import AlertSettings
from callkeeper.terminal import Failed, Misused, say, say_table
from calls.alerts import AlertMessage, AlertTone, OpenAlert
from calls.metrics.writing import host
from calls.store.alert_state import AlertState
from calls.store.keys import Keys


@click.group()
def alerts() -> None:
    """Show which alerts were sent, send a test."""


@alerts.command("list")
def list_alerts() -> None:
    """List the alerts that were sent and are not over."""
    columns = ("since (UTC)", "weight", "what", "institution", "sent at (UTC)")
    say_table(columns, map(_row, query_redis(_load)), width_if_piped=140)


def _row(open_alert: OpenAlert) -> tuple[str, ...]:
    alert, told_at = open_alert.alert, max(told.at for told in open_alert.told.values())
    since = f"{open_alert.since:%m-%d %H:%M:%S}"
    return since, alert.weight, alert.title, alert.institution_key, f"{told_at:%m-%d %H:%M:%S}"


async def _load(redis: "Redis", keys: Keys) -> list[OpenAlert]:
    found = await AlertState(redis, keys, "").load()
    return sorted(found.values(), key=lambda open_alert: open_alert.since)


@alerts.command()
def test() -> None:
    """Send a test message to every address of CALLKEEPER_ALERT_URLS. Exits with 1 if one does not accept it."""
    require("callkeeper alerts test", "alerts")
    courier = AlertCourier(AlertSettings.load(os.environ).addresses)
    if not courier.targets:
        raise Misused("CALLKEEPER_ALERT_URLS is not set: no alerts are sent")
    body = f"A test from {host()}. Nothing is wrong."
    sent = [
        AlertMessage(target.name, "test", False, AlertTone.INFO, "callkeeper: a test", body)
        for target in courier.targets
    ]

    async def bring() -> tuple[list[str], list[AlertMessage]]:
        return await courier.wrong(), await courier.bring(sent)

    wrong, taken = asyncio.run(bring())
    for message in sent:
        refused = "not an address of apprise" if message.target in wrong else "not accepted"
        say(f"{courier.called(message.target)}: {'accepted' if message in taken else refused}")
    if len(taken) < len(sent):
        raise Failed(f"{len(sent) - len(taken)} of {len(sent)} did not accept the test")
