"""``callkeeper alerts``: list the alerts that were sent, acknowledge an incident, and send a test message."""

import asyncio
import os
from datetime import timedelta

import click
from redis.asyncio import Redis

from callkeeper.app.alert_sender import AlertSender
from callkeeper.app.redis_query import Span, note_command, query_redis
from callkeeper.app.settings import AlertSettings
from callkeeper.app.terminal import CommandGroup, Failed, Misused, say, say_table
from callkeeper.calls.acknowledgement import LONGEST, SHORTEST, Acknowledgement
from callkeeper.calls.alerts import AlertMessage, AlertTone, OpenAlert
from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident import parts_of
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.redis_writer import host
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.store.acknowledging import Acknowledging
from callkeeper.calls.store.alert_state import AlertState
from callkeeper.calls.store.audit_log import AuditEvent
from callkeeper.calls.store.keys import Keys


@click.group(cls=CommandGroup)
def alerts() -> None:
    """Show which alerts were sent, acknowledge an incident, send a test."""


@alerts.command("list")
def list_alerts() -> None:
    """List the alerts that were sent and are not over."""
    columns = ("since (UTC)", "weight", "what", "institution", "sent at (UTC)")
    say_table(columns, map(_row, query_redis(_load)))


def _row(open_alert: OpenAlert) -> tuple[object, ...]:
    alert, sent_at = open_alert.alert, max(sent.at for sent in open_alert.told.values())
    return open_alert.began_at, alert.weight, alert.title, alert.institution_key, sent_at


async def _load(redis: Redis, keys: Keys) -> list[OpenAlert]:
    found = await AlertState(redis, keys, "").load()
    return sorted(found.values(), key=lambda open_alert: open_alert.began_at)


@alerts.command(options_metavar="--for 2h --operator NAME [--institution KEY] [OPTIONS]")
@click.argument("name", type=click.Choice([str(kind) for kind in IncidentKind]), metavar="INCIDENT")
@click.option("--institution", default="", metavar="KEY", help="Only of this institution. Default: of all.")
@click.option("--for", "lasts", type=Span(), help="For how long, for example 30m, 2h, 1d; seven days at most.")
@click.option("--operator", required=True, help="Your core username. The board shows it.")
@click.option(
    "--reason", default="", help="Why you wait, or what is being done. The board shows it; no names of members."
)
@click.option("--end", "wants_end", is_flag=True, help="End the acknowledgement now.")
def acknowledge(
    name: str, institution: str, lasts: timedelta | None, operator: str, reason: str, *, wants_end: bool
) -> None:
    """Say that you know of INCIDENT, so that no more messages are sent about it for a while.

    It is the kind in the metric callkeeper_incident, such as service_away. The incident stays on the board. The
    acknowledgement ends at its time, when the incident is over, or with --end. Exits with 1 if there is no such incident.
    """
    operator, note = (" ".join(text.split())[:200] for text in (operator, reason))
    if not operator:
        raise click.UsageError("--operator must not be blank: the board shows it")
    if (lasts is None) != wants_end:
        raise click.UsageError("give either --for or --end")
    if lasts is not None and not SHORTEST <= lasts <= LONGEST:
        raise click.UsageError("--for must be between a minute and seven days")
    kind = IncidentKind(name)

    async def change(redis: Redis, keys: Keys) -> Acknowledgement | None:
        acknowledging, done = Acknowledging(redis, keys), None
        if lasts is None:
            if not await acknowledging.end(kind, institution):
                raise Failed(f"nobody has acknowledged {name}{' of ' + institution if institution else ''}")
        else:
            found = incidents_of(await SignalReader(redis, keys).read())
            meant = [each for each in found if each.kind is kind and institution in {"", each.institution_key}]
            if not meant:
                names = sorted({f"{each.kind} {each.institution_key}".strip() for each in found})
                raise Failed(f"there is no such incident now; there are: {', '.join(names) or 'none'}")
            done = await acknowledging.acknowledge(
                kind, institution, operator=operator, lasts=lasts, note=note, parts=parts_of(meant)
            )
        detail = f"{'end' if wants_end else 'acknowledge'} {name}"
        parts = {"operator": operator, "institution": institution, "detail": detail}
        await note_command(redis, keys, AuditEvent.ACKNOWLEDGED, **parts)
        return done

    done = query_redis(change)
    place = f" of {institution}" if institution else ""
    say(f"{name}{place}: {done.words}" if done is not None else f"{name}{place}: no longer acknowledged")


@alerts.command()
def test() -> None:
    """Send a test message to every address of CALLKEEPER_ALERT_URLS. Exits with 1 if one does not accept it."""
    sender = AlertSender(AlertSettings.load(os.environ).addresses)
    if not sender.targets:
        raise Misused("CALLKEEPER_ALERT_URLS is not set: no alerts are sent")
    body = f"A test from {host()}. Nothing is wrong."
    tests = [
        AlertMessage(each.name, "test", False, AlertTone.INFO, "callkeeper: a test", body) for each in sender.targets
    ]

    async def send_all() -> int:
        """Send them one after the other; return how many were refused."""
        refused = 0
        for message in tests:
            why = await sender.send(message)
            say(f"{sender.called(message.target)}: {f'not accepted: {why}' if why else 'accepted'}")
            refused += bool(why)
        return refused

    if refused := asyncio.run(send_all()):
        raise Failed(f"{refused} of {len(tests)} did not accept the test")
