"""A scenario: simulated calls from a seed.

The caller, the times and the outcome of call number n depend only on the seed and n, so requests do not change them,
and a restart with a state file continues where the last run stopped. The ids of a call also depend on its start time.
So a restart without a state file repeats the callers, but never an id.
"""

import datetime as dt
import random
import uuid

import msgspec

from callkeeper_sandbox.service import population
from callkeeper_sandbox.service.faults import PUSH, Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind

_STORIES = {
    "green": 38,
    "pending_then_green": 7,
    "red": 6,
    "mismatch": 6,
    "mismatch_then_passcode": 4,
    "questions": 11,
    "passcode": 11,
    "opt_out": 4,
    "review": 4,
    "impostor": 5,
    "nothing": 4,
}
_CALLERS = {"member": 74, "shared": 10, "stranger": 12, "ignored": 4}


class Tempo(msgspec.Struct, frozen=True):
    """How busy a scenario is.

    Attributes:
        gap_s: Mean seconds between two calls.
        shortest_s, longest_s: How long a call lasts, unless the caller hangs up early.
        median_result_s: Median seconds until the provider or the operator has a result.
        hangup_share, claimed_share, late_share: Probability of an early hang-up, of a call that an operator has already
            claimed, of a listing that is up to three seconds late.
        lost_share, doubled_share: Probability that a push is lost, or sent twice.
    """

    gap_s: float = 2.0
    shortest_s: float = 20.0
    longest_s: float = 90.0
    median_result_s: float = 12.0
    hangup_share: float = 0.06
    claimed_share: float = 0.05
    late_share: float = 0.1
    lost_share: float = 0.05
    doubled_share: float = 0.03


class Progress(msgspec.Struct):
    """The position of a scenario: the next call and its time, or None if it is paused."""

    seed: int
    next_at: dt.datetime
    tempo: Tempo = Tempo()
    index: int = 0
    is_paused: bool = False


class Planned(msgspec.Struct, frozen=True):
    """A call for the scenario to start."""

    voice_id: str
    alternate_id: str
    institution_key: str
    phone_number: str
    started_at: dt.datetime
    listed_after_s: float
    script: list[Happening]
    gap_s: float


class Scenario:
    """Plans calls."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def due(self, now: dt.datetime) -> list[Planned]:
        planned: list[Planned] = []
        while not self.progress.is_paused and self.progress.next_at <= now:
            call = plan(self.progress.seed, self.progress.index, self.progress.tempo, self.progress.next_at)
            planned.append(call)
            self.progress.index += 1
            self.progress.next_at += dt.timedelta(seconds=call.gap_s)
        return planned

    def pause(self) -> None:
        """Start no further calls."""
        self.progress.is_paused = True

    def resume(self, now: dt.datetime) -> None:
        """Skip the time of the pause: the next call starts now or later."""
        self.progress.is_paused = False
        self.progress.next_at = max(self.progress.next_at, now)

    def push_faults(self) -> list[Fault]:
        """Return the faults that lose and double pushes."""
        tempo, seed = self.progress.tempo, self.progress.seed
        return [
            Fault(target=PUSH, action=Action.LOST, share=tempo.lost_share, seed=seed),
            Fault(target=PUSH, action=Action.DOUBLED, share=tempo.doubled_share, seed=seed),
        ]


def plan(seed: int, index: int, tempo: Tempo, started_at: dt.datetime) -> Planned:
    """Draw call number ``index`` of a scenario, which starts at ``started_at``."""
    draw = random.Random(f"{seed}/{index}")  # noqa: S311  (repeatable, not secret)
    ids = random.Random(f"{seed}/{index}/{started_at.isoformat()}")  # noqa: S311  (repeatable, not secret)
    key = draw.choice(list(population.INSTITUTIONS))
    length_s = draw.uniform(tempo.shortest_s, tempo.longest_s)
    if draw.random() < tempo.hangup_share:
        length_s = draw.uniform(3, 12)
    script = _story(draw, tempo, length_s)
    if draw.random() < tempo.claimed_share:
        script.append(Happening(Kind.CLAIMED, 0.0, "operator-1"))
    script.append(Happening(Kind.END, length_s))
    return Planned(
        voice_id=_guid(ids),
        alternate_id=_guid(ids),
        institution_key=key,
        phone_number=_caller(draw, key),
        started_at=started_at,
        listed_after_s=draw.uniform(0.5, 3) if draw.random() < tempo.late_share else 0.0,
        script=script,
        gap_s=min(draw.expovariate(1 / tempo.gap_s), 4 * tempo.gap_s),
    )


def _guid(draw: random.Random) -> str:
    return str(uuid.UUID(int=draw.getrandbits(128), version=4))


def _pick(draw: random.Random, weights: dict[str, int]) -> str:
    return draw.choices(list(weights), list(weights.values()))[0]


def _caller(draw: random.Random, key: str) -> str:
    match _pick(draw, _CALLERS):
        case "member":
            return population.phone(key, draw.randrange(population.SHARED, population.MEMBERS))
        case "shared":
            return population.phone(key, draw.randrange(population.SHARED))
        case "stranger":
            return population.phone(key, draw.randrange(500_000, 900_000))
        case _:
            return population.ignored_phone(key)


def _story(draw: random.Random, tempo: Tempo, length_s: float) -> list[Happening]:
    """Draw the story of a call. A result after its end is left out."""
    at = tempo.median_result_s * draw.lognormvariate(0, 0.5)
    later = at + draw.uniform(3, 10)
    match _pick(draw, _STORIES):
        case "green":
            happenings = [Happening(Kind.GREEN, at)]
        case "pending_then_green":
            happenings = [Happening(Kind.PENDING, 1.0), Happening(Kind.GREEN, at)]
        case "red":
            happenings = [Happening(Kind.HIGH_RISK, at), Happening(Kind.RED, at)]
        case "mismatch":
            happenings = [Happening(Kind.MISMATCH, at)]
        case "mismatch_then_passcode":
            happenings = [
                Happening(Kind.MISMATCH, at),
                Happening(Kind.SENT_SMS, at + 1),
                Happening(Kind.MFA_VALIDATED, later, "operator-2"),
            ]
        case "impostor":
            happenings = [Happening(Kind.HIGH_RISK, at), Happening(Kind.MISMATCH, at)]
        case "questions":
            happenings = [Happening(Kind.ANSWERED_QUESTIONS, at, "operator-2")]
        case "passcode":
            happenings = [Happening(Kind.SENT_SMS, at), Happening(Kind.MFA_VALIDATED, later, "operator-2")]
        case "opt_out":
            happenings = [
                Happening(Kind.OPT_OUT, at, "operator-3"),
                Happening(Kind.ANSWERED_QUESTIONS, later, "operator-3"),
            ]
        case "review":
            happenings = [Happening(Kind.POLICY, at, "Yellow Review")]
        case _:
            happenings = []
    return [happening for happening in happenings if happening.after_s < length_s]
