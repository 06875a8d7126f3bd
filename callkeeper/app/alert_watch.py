"""Watches the installation and sends alerts, in a separate thread of every web process and worker.

One of these processes is the leader: it decides and sends. When it ends, another takes over within half a minute. Redis
stores what was sent. While Redis is unreachable or refuses writes, the last leader continues from memory, and alerts.
"""

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from time import monotonic
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from callkeeper.app.acknowledgement_watch import AcknowledgementWatch
from callkeeper.app.alert_sender import AlertSender
from callkeeper.app.connections import worker_redis
from callkeeper.app.settings import AlertSettings, StoreSettings
from callkeeper.calls.alerts import Alert, AlertMessage, OpenAlert, Target, alerts_of, messages, note_taken, watched
from callkeeper.calls.causes import REDIS_AWAY, IncidentKind
from callkeeper.calls.incident_detection import found_in, incidents_of, symptoms_of
from callkeeper.calls.metrics.redis_writer import host
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.store.alert_state import AlertState
from callkeeper.calls.store.keys import Keys

POLL_EVERY_S: Final = 3.0
FIRST_RETRY_S: Final = 30.0
LONGEST_RETRY_S: Final = 600.0
"""Between two attempts for a target that accepts nothing."""

SLOW_S: Final = 5.0
"""A target that took longer than this gets no more messages at this look, so that others are told meanwhile."""

STANDS_BACK: Final = timedelta(seconds=60)
"""A leader that could not reach any target gives up the lead for this long. Its network policy may forbid outgoing
connections, as that of web in deploy/kubernetes does."""

_REDIS_AWAY: Final = Alert(
    key=REDIS_AWAY.name,
    title=REDIS_AWAY.title,
    advice=f"{REDIS_AWAY.see} {REDIS_AWAY.do}",
    weight=REDIS_AWAY.weight,
    section=REDIS_AWAY.section,
)

_AWAY: Final = (RedisError, OSError)


class AlertWatch:
    """Checks for alerts every three seconds until it is stopped."""

    def __init__(
        self,
        open_redis: Callable[[], Redis],
        sender: AlertSender,
        log: Any,
        *,
        keys: Keys,
        place: str | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        """``place``: the address of the web process, or else this machine's name. ``clock`` replaces all clocks."""
        self._open_redis = open_redis
        self._sender = sender
        self._log = log
        self._keys = keys
        self._place = place or host()
        self._clock = clock
        self._began_at, self._began_s = datetime.now(UTC), monotonic()
        self._works: set[str] = set()
        """Targets that accepted their last message from this process."""
        self._leads = False
        self._stands_back_until: datetime | None = None
        self._stored: dict[str, OpenAlert] = {}
        self._shared: dict[str, OpenAlert] = {}
        """Alerts that every process can see. The leader sends them."""
        self._own: dict[str, OpenAlert] = {}
        """Alerts that Redis is unreachable or refuses writes. Only this process knows that it sent them."""
        self._retry: dict[str, tuple[datetime, float]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        """Start the thread, if there are targets."""
        if self._sender.targets:
            self._thread.start()

    def stop(self) -> None:
        """Stop, and cancel messages that are being sent."""
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)
            self._thread.join(timeout=2)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            try:
                runner.run(self._watch())
            except asyncio.CancelledError:
                return

    async def _watch(self) -> None:
        self._task = asyncio.current_task()
        async with self._open_redis() as redis:
            state = AlertState(redis, self._keys, f"{host()}-{os.getpid()}-{token_hex(4)}")
            reader, acknowledgements = SignalReader(redis, self._keys), AcknowledgementWatch(redis, self._keys)
            try:
                while True:
                    try:
                        await self.poll(state, reader)
                        if self._leads:
                            await _quietly(acknowledgements.poll())
                    except Exception:  # noqa: BLE001  (a bug here must not end the watch for good)
                        self._log.error("alert_watch_failed", exc_info=True)
                    await asyncio.sleep(POLL_EVERY_S)
            finally:
                if self._leads:
                    await _quietly(state.lead(lets_go=True))

    def _now(self) -> datetime:
        """Return the time by a clock that never goes back: machines' clocks may differ by hours, and jump."""
        return self._clock() if self._clock else self._began_at + timedelta(seconds=monotonic() - self._began_s)

    async def poll(self, state: AlertState, reader: SignalReader) -> None:
        """Check once and send the alerts that are due. Shared times use Redis's clock."""
        now = self._now()
        if self._stands_back_until is not None and now < self._stands_back_until:
            return
        leads, is_redis_back = await self._lead(state)
        if not leads:
            self._shared, self._stored = {}, {}
        if is_redis_back:
            self._own = watched(self._own, [], now)
            await self._notify(state, self._own, now)
        if not leads:
            return
        try:
            signals = await reader.read(now=self._clock() if self._clock else None)
            attention = await state.attention()
        except _AWAY:
            self._own = watched(self._own, [_REDIS_AWAY], now)
            await self._notify(None, self._own, now)
            return
        alerts = alerts_of(incidents_of(signals), attention)
        own = [alert for alert in alerts if alert.key == IncidentKind.REDIS_REFUSES]
        self._own = watched(self._own, own, now)
        hidden = symptoms_of(found_in(signals))
        self._shared = watched(self._shared, [one for one in alerts if one not in own], signals.now, hidden=hidden)
        await self._notify(state, self._own, now)
        await self._notify(state, self._shared, signals.now)
        if self._leads:
            await _quietly(self._save(state))

    async def _lead(self, state: AlertState) -> tuple[bool, bool]:
        """Lead if no other process does; return whether this process leads, and whether Redis has just confirmed it.

        While Redis is unreachable or refuses writes, the last leader continues.
        """
        try:
            leads = await state.lead()
            if leads and not self._leads:
                self._stored = await state.load()
                self._shared = dict(self._stored)
        except _AWAY:
            return self._leads, False
        self._leads = leads
        return leads, True

    async def _save(self, state: AlertState) -> None:
        await state.save(self._shared, self._stored)
        self._stored = {key: open_alert for key, open_alert in self._shared.items() if open_alert.told}

    async def _notify(self, state: AlertState | None, open_alerts: dict[str, OpenAlert], now: datetime) -> None:
        """Send what is due, one message after the other. A slow target's other messages wait for the next look."""
        told: dict[str, dict[AlertMessage, str]] = {}
        spent_s: dict[str, float] = defaultdict(float)
        for message in list(messages(open_alerts, self._ready(), now, place=self._place)):
            if spent_s[message.target] > SLOW_S:
                continue
            if state is not None and open_alerts is self._shared and not (await self._lead(state))[0]:
                break
            began_s = monotonic()
            because = told.setdefault(message.target, {})[message] = await self._sender.send(message)
            spent_s[message.target] += monotonic() - began_s
            if not because:
                note_taken(open_alerts, message, now)
                if state is not None:
                    await _quietly(self._save(state))
        for target, answers in told.items():
            await self._judge(state, target, answers, now)
        if told and state is not None and not self._works:
            await self._stand_back(state)

    async def _stand_back(self, state: AlertState) -> None:
        """Let another process lead, if Redis accepts the write."""
        try:
            await state.lead(lets_go=True)
        except _AWAY:
            return
        self._leads, self._stands_back_until = False, self._now() + STANDS_BACK

    def _ready(self) -> list[Target]:
        """Return the targets to tell now. Those that failed come last, so that they do not delay the others."""
        now = self._now()
        ready = [one for one in self._sender.targets if now >= self._retry.get(one.name, (now, 0.0))[0]]
        return sorted(ready, key=lambda target: target.name in self._retry)

    async def _judge(
        self, state: AlertState | None, target: str, answers: Mapping[AlertMessage, str], now: datetime
    ) -> None:
        """Log which messages a target accepted. A target that fails is tried again after a doubled wait."""
        called = self._sender.called(target)
        for message, because in answers.items():
            if because:
                self._log.warning(
                    "alert_not_told", kind=message.key, is_over=message.is_over, target=called, because=because
                )
            else:
                self._log.info("alert_told", kind=message.key, is_over=message.is_over, target=called)
        failure = next(filter(None, answers.values()), None)
        if failure is not None:
            _, before_s = self._retry.get(target, (None, 0.0))
            wait_s = min(max(FIRST_RETRY_S, before_s * 2), LONGEST_RETRY_S)
            self._retry[target] = (self._now() + timedelta(seconds=wait_s), wait_s)
            self._works.discard(target)
        else:
            self._retry.pop(target, None)
            self._works.add(target)
        if state is not None:
            await _quietly(state.note_target(target, failure, now))


async def _quietly(writing: Any) -> None:
    """Wait for a write that may fail while Redis is unreachable. The next message repeats it."""
    try:
        await writing
    except _AWAY:
        return


def alert_watch(alerts: AlertSettings, store: StoreSettings, log: Any) -> AlertWatch:
    """Build the watch of a process. Without an address it does nothing."""
    sender = AlertSender(alerts.addresses)
    return AlertWatch(lambda: worker_redis(store.redis), sender, log, keys=store.keys, place=alerts.public_url)
