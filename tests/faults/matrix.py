"""The crash matrix: plays one call through a crash to its end for each row and company, many at the same time.

The *company* says which worker continues after the crash. It is a worker started right after the crash, or a second
worker that ran all the time. In the third company the first worker is frozen for longer than its lease, the second
worker continues meanwhile, and then the first one continues too.
"""

import asyncio
import tomllib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import LEASE
from callkeeper.calls.effect_ledger import DONE, IN_DOUBT, EffectKind, EffectState
from callkeeper.calls.item_names import CallId, institution_member
from callkeeper.calls.record import Phase
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.push_intake import Intake
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.demo.fleet import ManagedProcess
from tests.faults.crashpoints import MID_REQUEST_S
from tests.faults.site import Site, Stage
from tests.harness.processes import PATIENCE_S, freeze, is_frozen, thaw
from tests.waiting import until

FROZEN_FOR_S = LEASE.seconds + 2
SLOW_S = 3 * MID_REQUEST_S
"""How long the service takes to answer if the worker is to crash in the middle of a request."""

AT_ONCE = 24

_OPERATIONS = {"assign": "assign", "enroll": "enroll", "reject": "reject_voice", "listing": "queue"}
_KEYS = Keys()
_UNDECIDED = {EffectState.NONE, EffectState.INTENDED, *IN_DOUBT}


class Company(StrEnum):
    """Which worker continues after the crash."""

    RESTARTED = "restarted"
    SECOND = "second worker"
    FROZEN = "frozen"


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the table of allowed outcomes; see crash_matrix.toml."""

    at: str
    words: str
    service: str = "does it"
    lost: int = 0
    sent: tuple[int, ...] = (1,)
    ledger: tuple[str, ...] = tuple(sorted(DONE))
    reason: tuple[str, ...] = ()
    may_freeze: bool = False
    frozen: dict[str, Any] = {}

    @property
    def step(self) -> str:
        """Return the step of the row's point, for example ``assign`` for ``assign.after-sent``."""
        return self.at.partition(".")[0]

    @property
    def kind(self) -> EffectKind:
        """Return the kind of effect that the row checks. Rows of other steps check the assign, which every call has."""
        return EffectKind(self.step) if self.step in set(EffectKind) else EffectKind.ASSIGN

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return the reasons for which the call may be settled."""
        return self.reason or ({"enroll": "enrolled", "reject": "rejected"}.get(self.step, "authenticated"),)

    def when_frozen(self) -> "Row":
        """Return the row for a worker that was frozen and then continued."""
        return msgspec.convert({**msgspec.structs.asdict(self), **self.frozen}, Row)


class Trial(msgspec.Struct, frozen=True):
    """One row, played with one company."""

    row: Row
    company: Company

    def __str__(self) -> str:
        """Return the trial's name, which is also its test id."""
        service = {"loses it": ", lost by the service", "answers 401": ", answered 401"}.get(self.row.service, "")
        return f"{self.row.at}{service}, {self.company}"

    def __hash__(self) -> int:
        """Hash the name, because a row contains a dict and cannot be hashed."""
        return hash(str(self))


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a trial. If the trial did not end, ``failure`` says why, and the other fields are unused.

    ``arrived`` counts all requests, ``sent`` those that passed authentication, and ``applied`` those that the service
    carried out. The sandbox counted them by operation.
    """

    failure: str = ""
    reason: str = ""
    ledger: str = ""
    sent: dict[str, int] = {}
    arrived: dict[str, int] = {}
    applied: dict[str, int] = {}
    checks_booked: int = 0

    def faults(self, trial: Trial) -> list[str]:
        """Return one text for each deviation from the table."""
        if self.failure:
            return [self.failure]
        row = trial.row.when_frozen() if trial.company is Company.FROZEN else trial.row
        if self.reason not in row.reasons:
            return [f"settled as {self.reason}, allowed: {row.reasons}"]
        if row.reasons == ("dropped",):
            return [f"requests for a hint: {self.arrived}"] if self.arrived else []
        return [*_ledger_faults(self, row), *_count_faults(self, row)]


def _ledger_faults(outcome: Outcome, row: Row) -> list[str]:
    if outcome.ledger not in row.ledger:
        return [f"the {row.kind} is {outcome.ledger}, allowed: {row.ledger}"]
    was_applied = outcome.applied.get(_OPERATIONS[row.kind], 0) > 0
    if was_applied != (outcome.ledger in DONE):
        return [f"the {row.kind} is {outcome.ledger}; the service applied it: {was_applied}"]
    return []


def _count_faults(outcome: Outcome, row: Row) -> list[str]:
    allowed = {"assign": (1,), "enroll": (0,), "reject_voice": (0,), _OPERATIONS[row.kind]: row.sent}
    lost = outcome.checks_booked - outcome.arrived.get("check", 0)
    return [
        *(
            f"{outcome.sent.get(operation, 0)} of {operation}, allowed: {counts}"
            for operation, counts in allowed.items()
            if outcome.sent.get(operation, 0) not in counts
        ),
        *([f"{lost} checks lost, allowed: {row.lost}"] if lost != row.lost else []),
        *(["a 21st check was booked"] if outcome.checks_booked > 20 else []),
    ]


@cache
def rows() -> tuple[Row, ...]:
    """Read the table."""
    table = tomllib.loads(Path(__file__).with_name("crash_matrix.toml").read_text(encoding="utf-8"))
    return msgspec.convert(table["row"], tuple[Row, ...])


def trials() -> list[Trial]:
    """Return a trial for every row and each of its companies."""
    return [
        Trial(row, company) for row in rows() for company in Company if company is not Company.FROZEN or row.may_freeze
    ]


def is_for_every_change(trial: Trial) -> bool:
    """Tell whether a trial runs for every change.

    Each row runs with one company; the companies take turns. Enrolls and rejects share their code, so a row of a reject
    that allows the same as the row of the enroll runs at night, except in the middle of its request.
    """
    if _repeats_an_enroll(trial.row):
        return False
    companies = [other.company for other in trials() if other.row == trial.row]
    return trial.company is companies[rows().index(trial.row) % len(companies)]


def _repeats_an_enroll(row: Row) -> bool:
    """Tell whether the row of an enroll at the same moment allows the same."""
    if row.step != "reject" or row.at.endswith("mid-request"):
        return False
    enroll = (row.at.replace("reject", "enroll"), row.service, _allowed(row))
    return any((other.at, other.service, _allowed(other)) == enroll for other in rows())


def _allowed(row: Row) -> tuple[object, ...]:
    """Return what a row allows. Its reason names its kind of effect, so it counts only as present or absent."""
    return row.lost, row.sent, row.ledger, row.may_freeze, row.frozen, bool(row.reason)


def play_all(site: Site, chosen: Iterable[Trial]) -> dict[str, Outcome]:
    """Play trials, many at the same time; return their outcomes by name."""
    chosen = sorted(chosen, key=_takes_long, reverse=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(lambda trial: play(site, trial), chosen)
        return dict(zip(map(str, chosen), outcomes, strict=True))


def _takes_long(trial: Trial) -> bool:
    """Tell whether the call waits until the stored details have shown no effect for 20 s or a minute."""
    return "unresolved" in trial.row.ledger or trial.row.at in {"assign.after-sent", "assign.first-byte"}


def play(site: Site, trial: Trial) -> Outcome:
    """Play one trial on its own stage. An error becomes this trial's outcome and does not affect other trials."""
    try:
        with site.stage() as stage:
            play = Play(stage, trial)
            try:
                return play.run()
            except Exception as error:  # noqa: BLE001  (the test of this trial reports it)
                return Outcome(failure=f"{type(error).__name__}: {error}\n{play.log()}")
    except Exception as error:  # noqa: BLE001
        return Outcome(failure=f"{type(error).__name__}: {error}")


class Play:
    """One trial: a call, a crash, and the call's end."""

    def __init__(self, stage: Stage, trial: Trial) -> None:
        self.stage = stage
        self.row = trial.row
        self.company = trial.company
        self.call: dict[str, Any] = {}

    def run(self) -> Outcome:
        """Play the trial to its end.

        Raises:
            AssertionError: An expected event did not happen in time.
        """
        second = self._second_worker() if self.company is not Company.RESTARTED else None
        self._script_trouble()
        first = self.stage.worker(crash=f"{self.row.at}:{self._action}")
        first.wait_for(lambda line: line if "worker_started" in line else None, PATIENCE_S)
        self._begin_call()
        if self.row.step == "enroll":
            self._await(self._is_assigned, "the assign")
            self.stage.verify(self.call)
        self._await_crash(first)
        if second is None:
            self.stage.worker()
        else:
            thaw(second)
        if self.row.step == "drop":
            self._await(lambda: not self.stage.redis.exists(self._item), "the hint to be dropped")
            return Outcome(reason="dropped", arrived=self._tally("arrived"))
        if self.row.step != "settle":
            self._await(self._is_through, "the call to get over the crash")
            self.stage.happen(self.call, "end")
        record = self.stage.settled(self.call, PATIENCE_S)
        if self.company is Company.FROZEN:
            self._await(lambda: "lease_lost" in first.log.read_text(), "the frozen worker to be refused")
        return Outcome(
            reason=record.life.reason or "",
            ledger=record.effect(self.row.kind).state,
            sent=self._tally("authenticated"),
            arrived=self._tally("arrived"),
            applied=self._tally("applied"),
            checks_booked=record.plan.checks_used,
        )

    def log(self) -> str:
        """Return the last lines of the workers' logs."""
        return "\n".join(f"{worker.name}: {worker.tail(4)}" for worker in self.stage.members)

    @property
    def _action(self) -> str:
        return f"stop={FROZEN_FOR_S}" if self.company is Company.FROZEN else "kill"

    @property
    def _item(self) -> str:
        return _KEYS.item(CallId(self.stage.key, self.call["voice_id"]).member)

    def _second_worker(self) -> ManagedProcess:
        """Start the second worker and freeze it until it is needed, so that the first one gets the call."""
        worker, item = self.stage.worker(), _KEYS.item(institution_member(self.stage.key))

        def is_idle() -> bool:
            has_record, is_held = self.stage.redis.hexists(item, "rec"), self.stage.redis.hexists(item, "nonce")
            return bool(has_record and not is_held)

        def stands_idle() -> bool:
            if not is_idle():
                return False
            freeze(worker)
            if not is_idle():
                thaw(worker)
            return is_frozen(worker)

        self._await(stands_idle, "the second worker to be idle")
        return worker

    def _script_trouble(self) -> None:
        """Make the service slow for a crash in mid-request, and the queue slow for a crash while looking."""
        stage, row = self.stage, self.row
        if row.at.endswith("mid-request"):
            target = _OPERATIONS.get(row.step, row.step)
            is_lost = row.service == "loses it"
            stage.trouble(target, "reset" if is_lost else "pass", applied=not is_lost, latency_s=SLOW_S, times=1)
        if row.service == "answers 401":
            stage.trouble(_OPERATIONS[row.step], "unauthorized", times=1)
        if row.step == "look":
            stage.trouble("listing", latency_s=3.0, times=1)

    def _begin_call(self) -> None:
        stage, step = self.stage, self.row.step
        if step == "drop":
            self.call = {"voice_id": f"{stage.key}-hint", "institution_key": stage.key}
        else:
            self.call = stage.begin(*_script(step))  # pushed below, so that the test need not wait for the next listing
        self._push()

    def _push(self) -> None:
        """Record a push about the call, as the receiver does."""
        event = PushEvent(type="CallStart", institution_key=self.stage.key, voice_id=self.call["voice_id"])

        async def record() -> None:
            async with Redis.from_url(
                self.stage.redis_url, socket_timeout=PATIENCE_S, socket_connect_timeout=PATIENCE_S
            ) as redis:
                await Intake(redis, within_s=PATIENCE_S).record(event, event_id="event-1")

        asyncio.run(record())

    def _await(self, look: Callable[[], object], what: str) -> None:
        until(look, PATIENCE_S, what, every_s=self.stage.poll_every_s)

    def _await_crash(self, worker: ManagedProcess) -> None:
        def crashed() -> bool:
            return is_frozen(worker) if self.company is Company.FROZEN else not worker.is_running

        self._await(crashed, f"a worker to crash at {self.row.at}")

    def _is_assigned(self) -> bool:
        record = self.stage.record(self.call)
        return record is not None and record.ledger.assign.state in DONE

    def _is_through(self) -> bool:
        """Tell whether the call may end, because the effect is decided or the voice was recognised."""
        assert any(worker.is_running for worker in self.stage.members), "no worker is left"
        record = self.stage.record(self.call)
        if record is None or record.life.phase is Phase.HINTED:
            return False
        if self.row.step in {EffectKind.ENROLL, EffectKind.REJECT}:
            return record.effect(self.row.kind).state not in _UNDECIDED
        return record.seen.authenticated

    def _tally(self, count: str) -> dict[str, int]:
        if self.row.step == "drop":
            return {}
        tally: dict[str, int] = self.stage.account(self.call)["tally"][count]
        return tally


def _script(step: str) -> list[dict[str, object]]:
    match step:
        case "enroll":
            return []
        case "reject":
            return [{"kind": "mismatch", "after_s": 1}, {"kind": "high_risk_device", "after_s": 1}]
        case "settle":
            return [{"kind": "green", "after_s": 2}, {"kind": "end", "after_s": 6}]
        case _:
            return [{"kind": "green", "after_s": 3}]
